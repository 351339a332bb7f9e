# rocm-fa:<ROCm version>: the HIP runtime, Python, torch and the finished wheel, for a user without rights.
#
# The context is prepared by wheel_builder/stages/runtime_image.py; `wheels/` holds torch and what it needs,
# fetched by stage `system` with the host's own pip settings, and the finished wheel.  Stage `venv` installs
# them without any index, so nothing of the host's settings can stay in a layer.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE} AS system
ARG PACKAGES
COPY install_packages.sh /usr/local/lib/flash-attn-rocm/
RUN sh /usr/local/lib/flash-attn-rocm/install_packages.sh "${PACKAGES}"

FROM system AS venv
ARG PYTHON
COPY install_venv.sh /usr/local/lib/flash-attn-rocm/
COPY wheels /usr/local/lib/flash-attn-rocm/wheels
RUN sh /usr/local/lib/flash-attn-rocm/install_venv.sh "${PYTHON}" torch numpy flash_attn_rocm

FROM system
COPY runtime_entrypoint.sh /usr/local/bin/rocm-fa
RUN useradd --create-home --uid 10001 user
COPY --from=venv /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH \
    LANG=C.UTF-8
USER 10001
WORKDIR /home/user
ENTRYPOINT ["rocm-fa"]
# Healthy means usable: the wheel and torch load.  Whether a GPU is there is the doctor's business.
HEALTHCHECK --interval=5m --timeout=60s --start-period=30s CMD ["python", "-c", "import flash_attn_rocm"]

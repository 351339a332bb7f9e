# rocm-fa:<ROCm version>: the HIP runtime, Python, torch and the finished wheel, for a user without rights.
# rocm-fa:<ROCm version>-slim: for another torch, to be added.
#
# wheel_builder/build/runtime_image.py prepares the context. `wheels/` has the finished wheel and, except for slim, torch
# with its dependencies, fetched by stage `system` with the host's pip settings. Stage `venv` installs them without an
# index, so layers are free of the host's settings.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE} AS system
ARG PACKAGES
COPY install_packages.sh forget_documents.sh /usr/local/lib/flash-attn-rocm/
# One layer: files removed by a later layer still count.
RUN sh /usr/local/lib/flash-attn-rocm/install_packages.sh "${PACKAGES}" && \
    sh /usr/local/lib/flash-attn-rocm/forget_documents.sh

FROM system AS venv
ARG PYTHON
ARG MODULES
COPY install_venv.sh /usr/local/lib/flash-attn-rocm/
COPY wheels /usr/local/lib/flash-attn-rocm/wheels
# hadolint ignore=SC2086  # the modules are meant to be split
RUN sh /usr/local/lib/flash-attn-rocm/install_venv.sh "${PYTHON}" ${MODULES}

FROM system
COPY runtime_entrypoint.sh /usr/local/bin/rocm-fa
COPY runtime_healthy.sh /usr/local/bin/rocm-fa-healthy
RUN useradd --create-home --uid 10001 user
COPY --from=venv /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH \
    LANG=C.UTF-8
USER 10001
WORKDIR /home/user
ENTRYPOINT ["rocm-fa"]
HEALTHCHECK --interval=5m --timeout=60s --start-period=30s CMD ["rocm-fa-healthy"]

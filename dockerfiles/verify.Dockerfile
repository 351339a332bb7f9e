# The image in which a finished wheel is verified: another distribution than the builder's, CPU torch,
# neither GPU nor ROCm, and a user without rights, as on a machine of a user.
#
# The context is prepared by wheel_builder/images/stages.py; `wheels/` was fetched by stage `system`.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE} AS system
ARG PACKAGES
COPY install_packages.sh /usr/local/lib/flash-attn-rocm/
RUN sh /usr/local/lib/flash-attn-rocm/install_packages.sh "${PACKAGES}"

FROM system
COPY install_venv.sh /usr/local/lib/flash-attn-rocm/
COPY wheels /usr/local/lib/flash-attn-rocm/wheels
RUN useradd --create-home --uid 10001 user && install --directory --owner user /opt/venv
USER 10001
# The last one has what the first gradient loads.
RUN sh /usr/local/lib/flash-attn-rocm/install_venv.sh python3 torch numpy pytest hypothesis \
    torch.fx.experimental.symbolic_shapes
ENV PATH=/opt/venv/bin:$PATH \
    LANG=C.UTF-8
WORKDIR /home/user
CMD ["python"]

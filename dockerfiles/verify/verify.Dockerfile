# The image for verifying a finished wheel: another distribution than the builder's, CPU torch, and a user without
# rights, as on a user's machine. It has neither GPU nor ROCm.
#
# wheel_builder/images/stages.py prepares the context. Stage `system` fetched `wheels/`.

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
# The first gradient loads the last module.
RUN sh /usr/local/lib/flash-attn-rocm/install_venv.sh python3 torch numpy pytest hypothesis \
    torch.fx.experimental.symbolic_shapes
ENV PATH=/opt/venv/bin:$PATH \
    LANG=C.UTF-8
WORKDIR /home/user
CMD ["python"]

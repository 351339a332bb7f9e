# The builder image of a ROCm version, with the headers for an extension module of PyTorch: those of a Python and of
# ROCm's mathematical libraries.
#
# wheel_builder/extras/upstream/torch.py prepares the context.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE}
ARG PACKAGES
ARG HEADERS
COPY install_packages.sh unpack_headers.sh /usr/local/lib/flash-attn-rocm/
RUN sh /usr/local/lib/flash-attn-rocm/install_packages.sh "${PACKAGES}" && \
    sh /usr/local/lib/flash-attn-rocm/unpack_headers.sh "${HEADERS}"

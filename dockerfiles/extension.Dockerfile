# The builder image of a ROCm version, and what an extension module of PyTorch's is compiled with besides: the
# headers of a Python and of ROCm's mathematical libraries.
#
# The context is prepared by wheel_builder/extras/upstream/torch.py.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE}
ARG PACKAGES
ARG HEADERS
COPY install_packages.sh unpack_headers.sh /usr/local/lib/flash-attn-rocm/
RUN sh /usr/local/lib/flash-attn-rocm/install_packages.sh "${PACKAGES}" && \
    sh /usr/local/lib/flash-attn-rocm/unpack_headers.sh "${HEADERS}"

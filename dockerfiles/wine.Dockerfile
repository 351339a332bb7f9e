# The image in which the wheel for Windows is verified: wine, CPython and PyTorch's CPU build for Windows, and a user
# without rights.  Nothing in it is Windows.
#
# The context is prepared by wheel_builder/images/wine.py; `wheels/` was fetched by stage `system`, `python/` has the
# source distribution that CPython for Windows is in.

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
# The C++ runtime is Microsoft's: with wine's own, a C++ exception that torch catches ends the process.  OpenMP's
# affinity is off, because wine does not answer what it asks for.
ENV PATH=/usr/lib/wine:$PATH \
    WINEPREFIX=/home/user/wine \
    WINEDEBUG=-all \
    WINEDLLOVERRIDES="winedbg.exe=d;vcruntime140,vcruntime140_1,msvcp140=n" \
    KMP_AFFINITY=disabled \
    LANG=C.UTF-8
# The last one has what the first gradient loads.
RUN sh /usr/local/lib/flash-attn-rocm/install_windows_python.sh torch pytest hypothesis \
    torch.fx.experimental.symbolic_shapes
WORKDIR /home/user
CMD ["windows-python"]

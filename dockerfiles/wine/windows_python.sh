#!/bin/sh
# CPython for Windows, under wine.
#
#   windows-python ARGUMENT...
#
# Its output goes through a pipe, because wine gives it an invalid handle for some other files. Ordinary means do not end
# a hanging process in wine, so it has its own limit: FA_WINE_SECONDS.
set -eu

# wine does not ask Linux for AMX's registers: with AMX, PyTorch's products of bf16 are illegal instructions.
export ONEDNN_MAX_CPU_ISA="${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_BF16}"

# wine's first process starts services, which would keep the pipe open: they start here, and stay. -p keeps the server
# from ending while the next process asks it, and fails if a server runs already.
wineserver -p 2>/dev/null || true
wine64 wineboot </dev/null >/dev/null 2>&1
status=$(mktemp)
trap 'rm "$status"' EXIT
{
    code=0
    timeout -s KILL "${FA_WINE_SECONDS:-600}" wine64 /opt/windows/python/python.exe "$@" </dev/null 2>&1 || code=$?
    echo "$code" >"$status"
} | cat
exit "$(cat "$status")"

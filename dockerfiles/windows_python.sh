#!/bin/sh
# CPython for Windows, under wine.
#
#   windows-python ARGUMENT...
#
# Its output goes through a pipe, because of some other files wine gives it no valid handle.  A process that hangs in
# wine is not ended by what ends others, and so has a limit of its own: FA_WINE_SECONDS.
set -eu

# Services that wine starts with its first process would keep the pipe open: they start here, and stay.  A server that
# ended by itself could do so while the next process asks it; of one that is there already, -p says so and fails.
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

#!/bin/sh
# Runs the command. Without one, reports on this machine and says what to do next.
set -eu
if [ "$#" -eq 0 ]; then set -- python -m flash_attn_rocm doctor; fi
exec "$@"

#!/bin/sh
# Without a command, say what this machine has and what to do next; with one, run it.
set -eu
if [ "$#" -eq 0 ]; then set -- python -m flash_attn_rocm doctor; fi
exec "$@"

#!/bin/sh
# Healthy means usable: the wheel is there and loads, with torch where there is one.  Whether a GPU is there is
# the doctor's business.
set -eu
if python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
    exec python -c 'import flash_attn_rocm'
fi
exec python -m flash_attn_rocm doctor

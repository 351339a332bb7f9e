#!/bin/sh
# Healthy means usable: the wheel loads with the torch that is there.  Whether a GPU is there is the doctor's
# business; the slim image is healthy when a torch was added.
set -eu
exec python -c 'import flash_attn_rocm'

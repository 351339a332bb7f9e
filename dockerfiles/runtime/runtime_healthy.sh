#!/bin/sh
# Healthy: the wheel loads with the installed torch. The slim image becomes healthy when a torch is added. The doctor
# reports on GPUs.
set -eu
exec python -c 'import flash_attn_rocm'

"""The arch under test, and the wheel's kernels for it: a test for each."""

import ctypes
import os

from flash_attn_rocm.suite.target import (
    BACKWARD_OP,
    FUSED_OP,
    MASKED_BACKWARD_OP,
    UNEVEN_OP,
    arch,
    compiled,
    dtypes_of,
    fused_with_features,
    on_gpu,
)

if DLL := os.environ.get("FA_FAKE_HIP_DLL"):
    ctypes.CDLL(DLL)  # the HIP runtime under wine: Windows has no LD_PRELOAD
ON_GPU, ARCH = on_gpu(), arch()
FORWARD, TALL, WIDE, UNEVEN = map(compiled, ("fwd", "fwd_tall", "fwd_wide", "fwd_uneven"))
MASKED, LATENT, CODED_LATENT, DECODE = map(compiled, ("fwd_masked", "mla", "mla_8bit", "decode"))
PACKED_LATENT = compiled("mla_rows")
BACKWARD, UNEVEN_BACKWARD = compiled(BACKWARD_OP), compiled(UNEVEN_OP)
FUSED, MASKED_BACKWARD = compiled(FUSED_OP), compiled(MASKED_BACKWARD_OP)
LARGE, LARGE_BACKWARD = ([each for each in made if each[1] > 128] for made in (FORWARD, BACKWARD))
FUSED_FEATURES = fused_with_features()
APPEND = dtypes_of("append")

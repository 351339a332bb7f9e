"""The recipe of upstream's setup.py for its kernels: generated files, and compiler options. Pure data."""

import re
from collections.abc import Sequence

from wheel_builder.base.errors import SelectionError
from wheel_builder.matrix.model import Plan, Upstream

# Upstream's folder of CK, and the parts of it included by kernels.
CK = "csrc/composable_kernel"
INCLUDES = ("include", "library/include", "example/ck_tile/01_fmha")
GENERATOR = "example/ck_tile/01_fmha/generate.py"
DIRECTIONS = ("fwd", "fwd_appendkv", "fwd_splitkv", "bwd")
GENERATOR_OPTIONS = ("--receipt", "2", "--optdim", "32,64,128,256")

# The flags of upstream's setup.py, and those added by hipcc and PyTorch.
FLAGS = (
    "-x", "hip", "-std=c++17", "-O3", "-fPIC", "-w", "-fuse-cuid=hash",
    "-fgpu-flush-denormals-to-zero", "-fno-offload-uniform-block",
    "-D__HIP_PLATFORM_AMD__=1", "-D__HIP_PLATFORM_HCC__=1", "-DUSE_PROF_API=1",
    "-DCK_TILE_FMHA_FWD_FAST_EXP2=1", "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=3", "-DCK_USE_XDL",
    *(f"-DCK_ENABLE_{name}" for name in ("BF16", "BF8", "FP16", "FP32", "FP64", "FP8", "INT8")),
)  # fmt: skip
# Upstream passes these too. Each alone is almost free, the last two together are expensive (figures in
# ``why``).
INLINED = (
    ("-mllvm", "-amdgpu-early-inline-all=true"),
    ("-mllvm", "-amdgpu-function-calls=false"),
)
LEFT_OUT = (("-mllvm", "--lsr-drop-solution=1"), ("-mllvm", "-enable-post-misched=0"), *INLINED)

# Upstream's host part, its module name, and the flags added by PyTorch for extensions.
HOST = "csrc/flash_attn_ck"
MODULE = "flash_attn_2_cuda"
HOST_FLAGS = (
    "-DUSE_ROCM=1", "-DHIPBLAS_V2", "-DCUDA_HAS_FP16=1", "-DHIP_ENABLE_WARP_SYNC_BUILTINS=1",
    "-D__HIP_NO_HALF_OPERATORS__=1", "-D__HIP_NO_HALF_CONVERSIONS__=1",
    "-DTORCH_API_INCLUDE_EXTENSION_H", f"-DTORCH_EXTENSION_NAME={MODULE}",
)  # fmt: skip

# The minimum for one forward call: fp16, head dim 128, any lengths, no mask, bias, dropout, log-sum-exp.
ONE_CALL = "fmha_fwd_d128_fp16_batch_*_qr_async_vr_psskddv_nlogits_nbias_nmask_nlse_ndropout_*"
# The same with the smallest head dim, used to measure flags.
SMALLEST = ONE_CALL.replace("d128", "d32")
# Host code only: the choice among kernels.
HOST_ONLY = re.compile(r"fmha_\w+_api")


def compile_options(arch: str, sources: str) -> list[str]:
    """The compiler's options for one generated file. ``sources`` is the folder with CK's."""
    return [*FLAGS, f"--offload-arch={arch}", *(f"-I{sources}/{name}" for name in INCLUDES)]


def shard_of(names: Sequence[str], number: int, count: int) -> tuple[str, ...]:
    """The names of shard ``number`` (from 1) of ``count``: every count-th, to spread kinds evenly."""
    if not 1 <= number <= count:
        title = f"there is no shard {number} of {count}"
        raise SelectionError(title, [], advice=f"choose one of 1/{count} to {count}/{count}")
    return tuple(sorted(names)[number - 1 :: count])


def rows(plan: Plan, upstream: Upstream, shards: int) -> dict[str, list[dict[str, str]]]:
    """Rows of the workflow's matrices: ``upstream`` compiles shards, ``upstream_library`` joins them."""
    jobs = dict.fromkeys((job.builder, job.rocm.version) for job in plan.jobs)
    whole = [{"job": job, "rocm": rocm, "arch": arch} for job, rocm in jobs for arch in upstream.archs]
    parts = [
        {**row, "shard": f"{number}/{shards}", "number": str(number)}
        for row in whole
        for number in range(1, shards + 1)
    ]
    return {"upstream": parts, "upstream_library": whole}

"""Which calls a kernel serves.  The library's registry decides; here its answer is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import torch

from flash_attn_rocm import _kernels
from flash_attn_rocm._options import DTYPES, Inputs, Options
from flash_attn_rocm._tracing import constant_when_traced

ArchOf = Callable[[torch.device], str]

# A row for each feature beyond dense (causal) attention: its name, whether a call asks for it, and the
# argument that the operator ``fwd`` has when kernels have the feature.
FEATURES: tuple[tuple[str, Callable[[Inputs, Options], bool], str], ...] = (
    ("dropout_p > 0", lambda _, options: options.dropout_p > 0.0, "dropout_p"),
    ("window_size", lambda _, options: options.windowed, "window_left"),
    ("softcap", lambda _, options: options.softcap > 0.0, "softcap"),
    ("alibi_slopes", lambda inputs, _: inputs.alibi_slopes is not None, "alibi_slopes"),
    ("cu_seqlens", lambda inputs, _: inputs.cu_seqlens_q is not None, "cu_seqlens_q"),
    ("cache_seqlens", lambda inputs, _: inputs.seqused_k is not None, "seqused_k"),
    ("cache_leftpad", lambda inputs, _: inputs.leftpad_k is not None, "leftpad_k"),
    ("block_table", lambda inputs, _: inputs.block_table is not None, "block_table"),
    ("cache_batch_idx", lambda inputs, _: inputs.cache_batch_idx is not None, "cache_batch_idx"),
)
WITHOUT_KERNEL = tuple(
    row[:2] for row in FEATURES if row[2] not in _kernels.ARGUMENTS or row[2] in _kernels.REFUSED
)


@dataclass(frozen=True)
class Support:
    """Whether a kernel serves; ``reason`` says in words why not, ``path`` who answers instead."""

    ok: bool
    reason: str = ""

    @property
    def path(self) -> str:
        """``"kernel"`` or ``"pytorch"``."""
        return "kernel" if self.ok else "pytorch"

    def __bool__(self) -> bool:
        return self.ok


def is_supported(arch: str, dtype: torch.dtype | str, head_dim: int) -> Support:
    """Whether this wheel has a forward kernel for a gfx arch, dtype and head dim.

    ``arch`` is a name such as ``gfx942`` or ``gfx942:sramecc+:xnack-``; ``dtype`` is torch.float16,
    torch.bfloat16 or ``"fp16"``, ``"bf16"``.  Needs no GPU.
    """
    name = dtype if isinstance(dtype, str) else DTYPES.get(dtype, str(dtype))
    return _support(_registry_says(arch, name, head_dim))


def device_arch(device: torch.device) -> str:
    """The device's gfx arch as the HIP runtime reports it; a device without one raises RuntimeError."""
    return str(torch.ops.flash_attn_rocm.device_arch(device.index))


@cache
def _known_arch(device: torch.device) -> str:
    return device_arch(device)


def support_of(inputs: Inputs, options: Options, *, arch_of: ArchOf | None = None) -> Support:
    """Whether a kernel serves checked arguments; ``arch_of`` stands in for the machine's devices."""
    features = [name for name, asked in WITHOUT_KERNEL if asked(inputs, options)]
    if features:
        return Support(ok=False, reason=f"no kernel has {', '.join(features)}")
    q = inputs.q
    if arch_of is None and q.device.type != "cuda":
        return Support(ok=False, reason=f"the tensors are on {q.device.type}, and kernels run on AMD GPUs")
    if arch_of is None and torch.version.hip is None:
        return Support(ok=False, reason="this PyTorch is a CUDA build, and kernels need a ROCm build")
    return _support(_device_says(arch_of or _known_arch, q.device, DTYPES[q.dtype], q.shape[-1]))


@constant_when_traced
def _device_says(arch_of: ArchOf, device: torch.device, dtype: str, head_dim: int) -> str:
    return _registry_says(arch_of(device), dtype, int(head_dim))


@lru_cache(maxsize=1024)
def _registry_says(arch: str, dtype: str, head_dim: int) -> str:
    return str(torch.ops.flash_attn_rocm.explain(arch, dtype, _kernels.padded_head_dim(head_dim)))


def _support(reason: str) -> Support:
    return Support(ok=not reason, reason=reason)

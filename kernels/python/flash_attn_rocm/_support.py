"""Which calls a kernel serves.  The library's registry decides; here its answer is asked for."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flash_attn_rocm import _library  # noqa: F401 - registers the operators
from flash_attn_rocm._options import DTYPES, Options, require, resolve
from flash_attn_rocm._tracing import constant_when_traced

ArchOf = Callable[[torch.device], str]


@dataclass(frozen=True)
class Support:
    """Whether a kernel serves; ``reason`` says in words why not."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


def is_supported(arch: str, dtype: torch.dtype | str, head_dim: int) -> Support:
    """Whether this wheel has a forward kernel for a gfx arch, dtype and head dim.

    ``arch`` is a name such as ``gfx942`` or ``gfx942:sramecc+:xnack-``; ``dtype`` is torch.float16,
    torch.bfloat16 or ``"fp16"``, ``"bf16"``.  Needs no GPU.
    """
    name = dtype if isinstance(dtype, str) else DTYPES.get(dtype, str(dtype))
    return _support(_registry_says(arch, name, head_dim))


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
) -> Support:
    """Whether a kernel serves ``flash_attn_func`` with these arguments on this machine.

    Raises FlashAttnArgumentError as ``flash_attn_func`` does.
    """
    require(
        q,
        k,
        v,
        window_size=window_size,
        softcap=softcap,
        dropout_p=dropout_p,
        alibi_slopes=alibi_slopes,
    )
    options = resolve(
        q,
        k,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        dropout_p=dropout_p,
    )
    return support_of(q, options, alibi=alibi_slopes is not None)


def device_arch(device: torch.device) -> str:
    """The device's gfx arch as the HIP runtime reports it; a device without one raises RuntimeError."""
    return str(torch.ops.flash_attn_rocm.device_arch(device.index))


def support_of(q: Tensor, options: Options, *, alibi: bool, arch_of: ArchOf | None = None) -> Support:
    """Whether a kernel serves checked arguments; ``arch_of`` stands in for the machine's devices."""
    features = _features_without_kernel(options, alibi=alibi)
    if features:
        return Support(ok=False, reason=f"no kernel has {', '.join(features)}")
    if arch_of is None and q.device.type != "cuda":
        return Support(ok=False, reason=f"the tensors are on {q.device.type}, and kernels run on AMD GPUs")
    if arch_of is None and torch.version.hip is None:
        return Support(ok=False, reason="this PyTorch is a CUDA build, and kernels need a ROCm build")
    return _support(_device_says(arch_of or device_arch, q.device, DTYPES[q.dtype], q.shape[3]))


def _features_without_kernel(options: Options, *, alibi: bool) -> list[str]:
    asked = {
        "dropout_p > 0": options.dropout_p > 0.0,
        "window_size": options.windowed,
        "softcap": options.softcap > 0.0,
        "alibi_slopes": alibi,
    }
    return [name for name, is_asked in asked.items() if is_asked]


@constant_when_traced
def _device_says(arch_of: ArchOf, device: torch.device, dtype: str, head_dim: int) -> str:
    return _registry_says(arch_of(device), dtype, int(head_dim))


def _registry_says(arch: str, dtype: str, head_dim: int) -> str:
    return str(torch.ops.flash_attn_rocm.explain(arch, dtype, head_dim))


def _support(reason: str) -> Support:
    return Support(ok=not reason, reason=reason)

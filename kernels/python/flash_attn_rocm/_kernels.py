"""The operator ``fwd``, which launches kernels: what it can read, and the call itself."""

from operator import itemgetter

import torch
from torch import Tensor
from torch.nn.functional import pad

from flash_attn_rocm import _library
from flash_attn_rocm._options import Inputs, Options

# In elements (kernels/include/fa/kernel/params.hpp; the library checks it again).
ALIGNMENT = 8
ROW_STRIDE_END = 1 << 24

FWD = torch.ops.flash_attn_rocm.fwd.default
# What the operator takes, in its order; a feature that it has no argument for is one that no kernel has.
ARGUMENTS = tuple(argument.name for argument in FWD._schema.arguments)  # noqa: SLF001 - the only way to ask
# The same from the values that ``forward`` has; those without an argument of the same name are left out.
VALUES = (*Inputs._fields, *Options._fields, "out", "lse", "rng_state", "partial_out", "partial_lse")
# Arguments of the operator that the library refuses: no kernel has these yet.
REFUSED = frozenset({"dropout_p"})
IN_ORDER = itemgetter(*(VALUES.index(name) for name in ARGUMENTS))
HEAD_DIMS = tuple(sorted({each.head_dim for each in _library.instances() if each.op == "fwd"}))


def padded_head_dim(head_dim: int) -> int:
    """The head dim of the smallest kernel that holds ``head_dim``; itself when none does."""
    if head_dim <= 0:
        return head_dim
    return next((each for each in HEAD_DIMS if each >= head_dim), head_dim)


def forward(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """out like q, contiguous, and the log-sum-exp."""
    head_dim = inputs.q.shape[-1]
    missing = padded_head_dim(head_dim) - head_dim
    q, k, v = inputs[:3]
    if missing:
        q, k, v = pad(q, (0, missing)), pad(k, (0, missing)), pad(v, (0, missing))
    q, k, v = readable(q), readable(k), readable(v)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(inputs.lse_shape, dtype=torch.float32, device=q.device)
    FWD(*IN_ORDER((q, k, v, *inputs[3:], *options, out, lse, None, None, None)))
    return (out[..., :head_dim].contiguous() if missing else out), lse


def readable(tensor: Tensor) -> Tensor:
    """The tensor, or a contiguous copy of it when a kernel could not read its rows."""
    *steps, last = tensor.stride()
    aligned = last == 1 and tensor.storage_offset() % ALIGNMENT == 0
    for step in steps:
        aligned = aligned and step % ALIGNMENT == 0
    if aligned and steps[-2] < ROW_STRIDE_END:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)

"""The tensors read by kernels in place, and copies of the others."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from flash_attn_rocm.arguments.normal_form import CODES, DTYPES, Inputs, Options, is_featured
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.library.plans import FORWARD, MASKED, Plan, padded_head_dim, plan, uneven_head_dims
from flash_attn_rocm.values.paths import REFERENCE, UNEVEN

ADDRESS_ALIGNMENT = LIMITS.alignment * 2  # bytes: kernels' dtypes have 2
ADDRESS_BITS = ADDRESS_ALIGNMENT - 1  # of an address, 0 if it is aligned
SMALL = Inputs._fields[3:10]  # alibi_slopes to cache_batch_idx


class Device(NamedTuple):
    """The device facts for a plan: its gfx arch and number of compute units (0: unknown)."""

    arch: str
    compute_units: int


NOWHERE = Device("", 0)  # PyTorch's arithmetic


class Layout(NamedTuple):
    """The plan, and the head dims to pad q and k, and v, to (0: use the tensors in place)."""

    plan: Plan
    head_dim: int
    v_head_dim: int

    @property
    def as_it_is(self) -> bool:
        """Whether a kernel reads the tensors in place."""
        return bool(self.plan.path) and self.head_dim == 0


def choose(inputs: Inputs, options: Options, device: Device) -> Layout:
    """How to run the call.

    A cache is copied only if no kernel can read it in place. Other tensors are copied if this allows a faster
    kernel. The plan has no path for a cache of 8 bits that no kernel reads (``rewrite.dense_caches``).
    """
    head_dim = inputs.q.shape[-1]
    if inputs.coded:
        aligned = all(map(is_aligned, inputs[:3]))
        return Layout(_plan(inputs, options, device, head_dim, aligned=aligned), 0, 0)
    if inputs.v.shape[-1] != head_dim:
        return _choose_for_two(inputs, options, device)
    op = FORWARD if inputs.attn_mask is None else MASKED
    served = padded_head_dim(device.arch, DTYPES[inputs.q.dtype], head_dim, op)
    as_it_is = served == head_dim and all(map(is_aligned, inputs[:3]))
    if not as_it_is and (inputs.seqused_k is not None or inputs.block_table is not None):
        found = _plan(inputs, options, device, head_dim, aligned=False)
        if found.path == REFERENCE and all(map(has_rows, inputs[1:3])):
            return Layout(found, 0, 0)
    padded_to = 0 if as_it_is else served
    return Layout(_plan(inputs, options, device, served, aligned=True), padded_to, padded_to)


def _choose_for_two(inputs: Inputs, options: Options, device: Device) -> Layout:
    """How to run a call whose v has another head dim than q and k.

    A kernel for both head dims, or a kernel for one after padding.
    """
    dtype, given = DTYPES[inputs.q.dtype], (inputs.q.shape[-1], inputs.v.shape[-1])
    if dims := _uneven_head_dims(inputs, options, device):
        found = _plan(inputs, options, device, dims[0], aligned=True, v_head_dim=dims[1])
        if found.path == UNEVEN:
            as_it_is = dims == given and all(map(is_aligned, inputs[:3]))
            return Layout(found, 0, 0) if as_it_is else Layout(found, *dims)
    op = FORWARD if inputs.attn_mask is None else MASKED
    served = padded_head_dim(device.arch, dtype, inputs.head_dim, op)
    found = _plan(inputs, options, device, served, aligned=True)
    words = f"head dim {given[1]} of v with {given[0]} of q and k: padded to {served}; {found.reason}"
    return Layout(found._replace(reason=words if found.path else found.reason), served, served)


def _uneven_head_dims(inputs: Inputs, options: Options, device: Device) -> tuple[int, int] | None:
    """The head dims of a kernel with two, or None. These kernels have no softcap, ALiBi and dropout."""
    others = inputs.block_table is not None or inputs.attn_mask is not None
    if others or is_featured(inputs, options):
        return None
    dtype = DTYPES[inputs.q.dtype]
    return uneven_head_dims(device.arch, dtype, inputs.q.shape[-1], inputs.v.shape[-1])


def readable(inputs: Inputs, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, or copies for the layout's kernel."""
    q, k, v = inputs[:3]
    dims = (layout.head_dim, layout.head_dim, layout.v_head_dim)
    if layout.plan.path == REFERENCE and layout.head_dim == 0:
        return in_rows(q), in_rows(k), in_rows(v)
    q, k, v = (padded(x, wanted or x.shape[-1]) for x, wanted in zip((q, k, v), dims, strict=True))
    return q, k, v


def padded(tensor: Tensor, head_dim: int) -> Tensor:
    """The tensor, or an aligned copy padded with zeros to ``head_dim``."""
    if missing := head_dim - tensor.shape[-1]:
        tensor = pad(tensor, (0, missing))
    return tensor if is_aligned(tensor) else tensor.clone(memory_format=torch.contiguous_format)


def is_aligned(tensor: Tensor) -> bool:
    """Whether the kernels for one head dim can read the rows."""
    unit = ADDRESS_ALIGNMENT if tensor.dtype in CODES else LIMITS.alignment
    return _are_aligned(tensor.stride(), unit) and tensor.data_ptr() % ADDRESS_ALIGNMENT == 0


def one_head(cache: Tensor) -> Tensor:
    """A view with a readable stride of the single head, for any given stride."""
    return cache.squeeze(-2).unsqueeze(-2)


def is_aligned_rows(tensor: Tensor) -> bool:
    """``is_aligned``, of a tensor with the sizes of one that is contiguous and aligned: in few steps."""
    in_rows = tensor.is_contiguous() or _are_aligned(tensor.stride(), LIMITS.alignment)
    return tensor.data_ptr() & ADDRESS_BITS == 0 and in_rows


@lru_cache(maxsize=4096)
def _are_aligned(strides: tuple[int, ...], unit: int) -> bool:
    *steps, last = strides
    return last == 1 and all(step % unit == 0 for step in steps) and steps[-2] < LIMITS.row_stride


def has_rows(tensor: Tensor) -> bool:
    """Whether the kernels for any head dim can read the rows. The stride of one element is never used."""
    return tensor.stride(-1) == 1 or tensor.shape[-1] == 1


def in_rows(tensor: Tensor) -> Tensor:
    """The tensor, or a copy whose rows such kernels can read."""
    return tensor if has_rows(tensor) else tensor.contiguous()


def small_in_rows(inputs: Inputs) -> Inputs:
    """The same call, whose slopes, lengths and indices kernels can read."""
    small = (inputs.alibi_slopes, *inputs.integers)
    if all(x is None or has_rows(x) for x in small):
        return inputs
    readable = (None if x is None else in_rows(x) for x in small)
    return inputs._replace(**dict(zip(SMALL, readable, strict=True)))


def _plan(
    inputs: Inputs, options: Options, device: Device, head_dim: int, *, aligned: bool, v_head_dim: int = 0
) -> Plan:
    # Conditions for tall workgroups: every sequence is as long as the longest, and rows see all keys before
    # the diagonal. A window would leave most waves of a tall workgroup without keys.
    ragged = inputs.cu_seqlens_q is not None or inputs.block_table is not None
    plain = not (ragged or options.window_left >= 0 or is_featured(inputs, options))
    return plan(
        device.arch, DTYPES[inputs.q.dtype], head_dim, inputs.batch,
        options.max_seqlen_q, options.max_seqlen_k, inputs.q.shape[-2], inputs.k.shape[-2],
        device.compute_units, options.num_splits, options.dropout_p > 0.0, aligned,
        plain, inputs.attn_mask is not None, v_head_dim, inputs.coded, options.window_right >= 0,
    )  # fmt: skip

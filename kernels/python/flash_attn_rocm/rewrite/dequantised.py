"""q, k and v of 8 bits as numbers of 16 bits: kernels multiply no codes of q.

k and v of a cache stay codes, which kernels read, or widen like those beside other queries.
"""

from torch import Tensor

from flash_attn_rocm.arguments.normal_form import DEQUANTISED, Inputs


def fields(inputs: Inputs, *, cached: bool) -> tuple[str, ...]:
    """The tensors that are copied. ``cached``: k and v are a cache, as they are with a block_table."""
    return ("q",) if cached or inputs.block_table is not None else ("q", "k", "v")


def over(inputs: Inputs, copies: dict[str, Tensor]) -> Inputs:
    """The call over copies."""
    inputs = inputs._replace(**copies)
    return inputs._replace(k_descale=None, v_descale=None) if "k" in copies else inputs


def form(inputs: Inputs, *, cached: bool) -> Inputs:
    """The form of that call, for a plan, which asks for addresses, strides and devices."""
    of = {name: getattr(inputs, name) for name in fields(inputs, cached=cached)}
    return over(inputs, {name: x.new_empty(x.shape, dtype=DEQUANTISED) for name, x in of.items()})


def words(inputs: Inputs, *, cached: bool) -> str:
    """What is done first, for people, and the memory that it takes."""
    names = fields(inputs, cached=cached)
    size = sum(getattr(inputs, name).numel() for name in names) * DEQUANTISED.itemsize
    what = "q" if names == ("q",) else "q, k and v"
    return f"{what} dequantised to {str(DEQUANTISED).removeprefix('torch.')} first, {size} bytes; "

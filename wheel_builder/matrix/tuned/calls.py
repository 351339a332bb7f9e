"""The calls that users time for a kernel, its bins: as ``tune`` of the package makes them. Pure."""

from functools import cache
from typing import TYPE_CHECKING

from wheel_builder.matrix.tuned.candidates import KERNEL
from wheel_builder.tables.package import package_module
from wheel_builder.tables.tuning import known_tuning, timed_calls

if TYPE_CHECKING:
    from flash_attn_rocm.values import bins as own
    from flash_attn_rocm.values.bins import Bin as Call
else:
    own = package_module("values.bins")
    Call = own.Bin

__all__ = ["Call", "calls_of", "words_of"]


def words_of(call: Call) -> str:
    what = f"{call.kind}{' causal' * call.causal} {call.length}, {call.batch} x {call.heads} heads"
    return f"{what}, width {call.width}" + (f", {call.mask} mask" if call.mask else "")


@cache
def calls_of(kernel: str) -> tuple[Call, ...]:
    """All calls of a kernel by its name, none of one that is not timed."""
    parsed, timed = KERNEL.fullmatch(kernel), own.Timed(**vars(known_tuning().timed))
    if parsed is None or parsed["op"] not in timed_calls():
        return ()
    return tuple(own.bins(timed_calls()[parsed["op"]], parsed["dtype"], int(parsed["head_dim"]), timed))

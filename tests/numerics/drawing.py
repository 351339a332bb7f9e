"""Draws calls of every kernel: of attention (drawn.py), of gradients (drawn_backward.py, drawn_alike.py,
drawn_nan.py) and of ``append`` (drawn_append.py)."""

import drawn
import drawn_alike
import drawn_append
import drawn_backward
import drawn_nan
from drawn import Kernel
from rule import DTYPES
from target import APPEND, BACKWARD, BACKWARD_OP, DECODE, FORWARD, FUSED, FUSED_OP

MODULES = {"append": drawn_append, BACKWARD_OP: drawn_backward, FUSED_OP: drawn_backward}


def kernels():
    """All for which calls can be drawn; fa_combine_* comes with decode, other backward kernels with these."""
    return [
        *(Kernel("fwd", *each) for each in FORWARD),
        *(Kernel("decode", *each) for each in DECODE),
        *(Kernel("reference", dtype) for dtype in DTYPES),
        *(Kernel(BACKWARD_OP, *each) for each in BACKWARD),
        *(Kernel(FUSED_OP, *each) for each in FUSED),
        *(Kernel("append", dtype) for dtype in APPEND),
    ]


def draw(kernel, number):
    """Case ``number`` of a kernel, always the same."""
    return _of(kernel).draw(kernel, number)


def made(case, device):
    """The call of a case; ``run`` launches it, ``check`` also judges what comes out."""
    special = {drawn_backward.NAN: drawn_nan, **dict.fromkeys(drawn_backward.ALIKE_CALLS, drawn_alike)}
    return special.get(case.values, _of(case.kernel)).Call(case, device)


def served(kernel):
    """The features with which a kernel has to be tested."""
    return _of(kernel).served(kernel)


def _of(kernel):
    return MODULES.get(kernel.op, drawn)

"""Draws calls of every kernel: of attention (drawn.py) and of ``append`` (drawn_append.py)."""

import drawn
import drawn_append
from drawn import Kernel
from rule import DTYPES
from target import APPEND, DECODE, FORWARD


def kernels():
    """All for which calls can be drawn; fa_combine_* comes with decode."""
    return [
        *(Kernel("fwd", *each) for each in FORWARD),
        *(Kernel("decode", *each) for each in DECODE),
        *(Kernel("reference", dtype) for dtype in DTYPES),
        *(Kernel("append", dtype) for dtype in APPEND),
    ]


def draw(kernel, number):
    """Case ``number`` of a kernel, always the same."""
    return (drawn_append if kernel.op == "append" else drawn).draw(kernel, number)


def made(case, device):
    """The call of a case; ``run`` launches it, ``check`` also judges what comes out."""
    return (drawn_append.Append if case.kernel.op == "append" else drawn.Call)(case, device)


def served(kernel):
    """The features with which a kernel has to be tested."""
    return drawn_append.served() if kernel.op == "append" else drawn.served(kernel)

"""Memory that is given twice."""

import torch
from torch import Tensor

PLAIN = {Tensor, torch.nn.Parameter}  # other classes of tensors may have no address


def begin_together(x: Tensor, other: Tensor) -> bool:
    """Whether both have the same first element. Without memory, as in a graph or on meta, nobody knows."""
    if torch.compiler.is_compiling() or not {type(x), type(other)} <= PLAIN:
        return False
    try:
        return x.data_ptr() == other.data_ptr() != 0
    except RuntimeError:  # of a transform of torch.func
        return False

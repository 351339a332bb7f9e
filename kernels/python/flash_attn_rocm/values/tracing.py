"""How the package appears to torch.compile."""

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def constant_when_traced(function: Function) -> Function:
    """torch.compile calls the function once, while it traces, and takes its result for a constant.

    Like torch.compiler.assume_constant_result, which would import the whole compiler together with this
    package: that doubles the time of ``import torch``.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def never_traced(function: Function) -> Function:
    """torch.compile ends its graph before the function and begins another behind it.

    Like torch.compiler.disable, which would import the compiler, too.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function

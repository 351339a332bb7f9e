"""How the package appears to torch.compile."""

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def constant_when_traced(function: Function) -> Function:
    """torch.compile calls the function once, during tracing, and uses its result as a constant.

    torch.compiler.assume_constant_result does so too, but imports the whole compiler together with this
    package: that doubles the time of ``import torch``.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def never_traced(function: Function) -> Function:
    """torch.compile breaks its graph before the function and starts another after it.

    torch.compiler.disable does so too, but imports the compiler.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function

"""Operators that make the memory of their results (``makers`` of calls.toml), and the same in Python.

Python's way is for memory that others have to know before the launch: where calls are cut (``watched``), and
outside of GPUs.
"""

from collections.abc import Callable
from typing import Any, TypeVar

NO_MEMORY = "PyTorch has no memory for the results"  # the words of bindings/memory.hpp
ORDER = "calls.toml has the operators' arguments in another order than Inputs and Options"

Results = TypeVar("Results")


def made(maker: Callable[..., Results], in_python: Callable[..., Results], *arguments: Any) -> Results:  # noqa: ANN401
    """The operator's results. Without memory Python asks for it, too: its errors are PyTorch's own."""
    try:
        return maker(*arguments)
    except RuntimeError as error:
        if NO_MEMORY not in str(error):
            raise
    return in_python(*arguments)

"""Attention of other packages, which ``bench`` measures too where they are installed."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from torch import Tensor

from flash_attn_rocm.machine import drop_in

Foreign: TypeAlias = Any  # objects of an optional package
Function = Callable[..., Tensor]
# By module: Composable Kernel's or Triton's flash-attn, and AMD's aiter.
FLASH_ATTN, AITER = "flash_attn", "aiter"
NAME = "flash_attn_func"


def installed() -> tuple[dict[str, Function], tuple[str, ...]]:
    """The functions by module, and why others that are installed cannot be imported.

    They take q, k, v and ``causal``. This project's own ``flash_attn`` is left out.
    """
    functions: dict[str, Function] = {}
    problems = []
    for module in _there():
        try:
            functions[module] = _first_result(getattr(importlib.import_module(module), NAME))
        except Exception as error:  # noqa: BLE001 - whatever another package raises while it is imported
            problems.append(f"{module} is left out: {problem_of(error)}")
    return functions, tuple(problems)


def _there() -> Iterator[str]:
    if drop_in.find().kind == "another":
        yield FLASH_ATTN
    try:
        if importlib.util.find_spec(AITER) is not None:
            yield AITER
    except ValueError:  # a module inserted into sys.modules by hand
        yield AITER


def _first_result(function: Foreign) -> Function:
    """Some releases return the log-sum-exp too."""

    def call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        found: Tensor | tuple[Tensor, ...] = function(q, k, v, causal=causal)
        return found if isinstance(found, Tensor) else found[0]

    return call


def problem_of(error: Exception) -> str:
    """What another package raised, in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

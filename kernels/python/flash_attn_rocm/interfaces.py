"""The parts that distributions with other interfaces build on, with the functions, ``raw`` and ``pieces``.

Names stay within a minor version: an installed flash-attn-3 or sageattention imports them.
"""

from collections.abc import Callable
from typing import Any

from flash_attn_rocm.arguments.normal_form import integer, pair, real
from flash_attn_rocm.reference.rotary import rotate

__all__ = ["EXPLAINED", "integer", "pair", "real", "rotate"]

# What ``explain`` calls for a function of such a distribution, with the function's arguments: it returns a
# Support.
EXPLAINED: dict[Callable[..., Any], Callable[..., Any]] = {}

"""The public functions under the names of upstream's autograd.Functions, for callers of ``apply``.

PyTorch differentiates the functions, so these classes are no autograd.Functions. ``apply`` takes the
function's arguments by position, then ``is_grad_enabled``. False means as under torch.no_grad().
"""

from collections.abc import Callable
from typing import Any, ClassVar

import flash_attn_rocm
import torch

Outputs = Any  # a tensor, or three where the probabilities are asked for


class _Applied:
    """``arguments`` is how many upstream's function has."""

    function: ClassVar[Callable[..., Outputs]]
    arguments: ClassVar[int]

    @classmethod
    def apply(cls, *given: Any) -> Outputs:  # noqa: ANN401
        own, (wanted,) = given[: cls.arguments], given[cls.arguments :] or (True,)
        with torch.set_grad_enabled(wanted and torch.is_grad_enabled()):
            return cls.function(*own)


class FlashAttnFunc(_Applied):
    """``flash_attn_func``."""

    function = staticmethod(flash_attn_rocm.flash_attn_func)
    arguments = 11


class FlashAttnQKVPackedFunc(_Applied):
    """``flash_attn_qkvpacked_func``."""

    function = staticmethod(flash_attn_rocm.flash_attn_qkvpacked_func)
    arguments = 9


class FlashAttnKVPackedFunc(_Applied):
    """``flash_attn_kvpacked_func``."""

    function = staticmethod(flash_attn_rocm.flash_attn_kvpacked_func)
    arguments = 10


class FlashAttnVarlenFunc(_Applied):
    """``flash_attn_varlen_func``."""

    function = staticmethod(flash_attn_rocm.flash_attn_varlen_func)
    arguments = 16


class FlashAttnVarlenQKVPackedFunc(_Applied):
    """``flash_attn_varlen_qkvpacked_func``."""

    function = staticmethod(flash_attn_rocm.flash_attn_varlen_qkvpacked_func)
    arguments = 11


class FlashAttnVarlenKVPackedFunc(_Applied):
    """``flash_attn_varlen_kvpacked_func``."""

    function = staticmethod(flash_attn_rocm.flash_attn_varlen_kvpacked_func)
    arguments = 14

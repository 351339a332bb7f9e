"""The parts that distributions with other interfaces build on, with the functions, ``raw`` and ``pieces``.

Names stay within a minor version: an installed flash-attn-3 imports them.
"""

from flash_attn_rocm.arguments.normal_form import integer, pair
from flash_attn_rocm.reference.rotary import rotate

__all__ = ["integer", "pair", "rotate"]

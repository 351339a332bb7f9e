"""FlashAttention for AMD GPUs, with the interface of flash_attn 2.8.

``flash_attn_func`` runs a prebuilt kernel where one serves the call (``explain`` says whether, and why
not) and otherwise a memory-lean PyTorch implementation with the same semantics, after one warning; in
strict mode it raises instead.  ``python -m flash_attn_rocm doctor`` reports on the machine.
"""

from flash_attn_rocm import _requirements

try:
    _requirements.check()
    from flash_attn_rocm._interface import flash_attn_func
    from flash_attn_rocm._notice import (
        FlashAttnFallbackWarning,
        FlashAttnUnsupportedError,
        is_strict,
        set_strict,
    )
    from flash_attn_rocm._options import FlashAttnArgumentError
    from flash_attn_rocm._support import Support, explain, is_supported
except ImportError:
    # The doctor is for machines where the package cannot work.
    if not _requirements.running_as_module():
        raise

__version__ = _requirements.package_version()

__all__ = [
    "FlashAttnArgumentError",
    "FlashAttnFallbackWarning",
    "FlashAttnUnsupportedError",
    "Support",
    "__version__",
    "explain",
    "flash_attn_func",
    "is_strict",
    "is_supported",
    "set_strict",
]

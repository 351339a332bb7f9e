"""FlashAttention for AMD GPUs, with the interface of flash_attn 2.8.

The seven functions run a prebuilt kernel where one serves the call (``explain`` says whether, and why
not) and otherwise a memory-lean PyTorch implementation with the same semantics, after one warning; in
strict mode it raises instead.  ``python -m flash_attn_rocm doctor`` reports on the machine.
"""

from flash_attn_rocm import _requirements

try:
    _requirements.check()
    from flash_attn_rocm import sdpa, transformers
    from flash_attn_rocm._attention import attention
    from flash_attn_rocm._explain import explain
    from flash_attn_rocm._kvcache import flash_attn_with_kvcache
    from flash_attn_rocm._mla import mla_decode
    from flash_attn_rocm._notice import (
        FlashAttnFallbackWarning,
        FlashAttnResetWarning,
        FlashAttnUnsupportedError,
        is_strict,
        set_strict,
    )
    from flash_attn_rocm._options import FlashAttnArgumentError
    from flash_attn_rocm._support import Support, is_supported
    from flash_attn_rocm.flash_attn_interface import (
        flash_attn_func,
        flash_attn_kvpacked_func,
        flash_attn_qkvpacked_func,
        flash_attn_varlen_func,
        flash_attn_varlen_kvpacked_func,
        flash_attn_varlen_qkvpacked_func,
    )
except ImportError:
    # The doctor is for machines where the package cannot work.
    if not _requirements.running_as_module():
        raise

__version__ = _requirements.package_version()

__all__ = [
    "FlashAttnArgumentError",
    "FlashAttnFallbackWarning",
    "FlashAttnResetWarning",
    "FlashAttnUnsupportedError",
    "Support",
    "__version__",
    "attention",
    "explain",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "is_strict",
    "is_supported",
    "mla_decode",
    "sdpa",
    "set_strict",
    "transformers",
]

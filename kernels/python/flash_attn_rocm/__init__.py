"""FlashAttention for AMD GPUs, with the interface of flash_attn 2.8.

The seven functions run a prebuilt kernel where one supports the call. Otherwise a memory-lean PyTorch
implementation with equal semantics answers, after one warning. Strict mode raises an error instead.
``explain`` names the path of a call and the reason. ``python -m flash_attn_rocm doctor`` reports on the
machine.

Public modules: this one, ``flash_attn_interface``, ``interfaces``, ``pieces``, ``quantised``, ``raw``,
``sdpa`` and ``transformers``. The other folders may change with any release.
"""

from flash_attn_rocm.machine import requirements

try:
    requirements.check()
    from flash_attn_rocm import quantised, sdpa, transformers
    from flash_attn_rocm.arguments.normal_form import FlashAttnArgumentError
    from flash_attn_rocm.diagnosis.notice import (
        FlashAttnFallbackWarning,
        FlashAttnResetWarning,
        FlashAttnUnsupportedError,
        is_strict,
        set_strict,
    )
    from flash_attn_rocm.flash_attn_interface import (
        flash_attn_func,
        flash_attn_kvpacked_func,
        flash_attn_qkvpacked_func,
        flash_attn_varlen_func,
        flash_attn_varlen_kvpacked_func,
        flash_attn_varlen_qkvpacked_func,
    )
    from flash_attn_rocm.functions.attention import attention
    from flash_attn_rocm.functions.explain import explain
    from flash_attn_rocm.functions.kvcache import flash_attn_with_kvcache
    from flash_attn_rocm.functions.mla import mla_decode
    from flash_attn_rocm.serving.support import Support, is_supported
except ImportError:
    # The doctor also runs on machines where the package cannot work.
    if not requirements.running_as_module():
        raise

__version__ = requirements.package_version()

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
    "quantised",
    "sdpa",
    "set_strict",
    "transformers",
]

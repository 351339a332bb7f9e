"""The fuzz cases of every kernel.

Attention: forward_cases.py. Gradients: backward_cases.py, alike_cases.py, nan_cases.py. Masks:
masked_cases.py, masked_backward_cases.py. Latent attention: latent_cases.py. Products of fp8: fp8_cases.py,
of int8: int8_cases.py, shared by both: eight_bits.py. Caches of 8 bits, and writing and copying caches:
caches/.
"""

from flash_attn_rocm.suite import (
    alike_cases,
    backward_cases,
    forward_cases,
    fp8_cases,
    int8_cases,
    latent_cases,
    masked_backward_cases,
    masked_cases,
    nan_cases,
)
from flash_attn_rocm.suite.caches import (
    append_cases,
    coded_append_cases,
    coded_cases,
    coded_latent_cases,
    packed_latent_cases,
    widen_cases,
)
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.rule import DTYPES
from flash_attn_rocm.suite.target import (
    BACKWARD_OP,
    FUSED_OP,
    MASKED_BACKWARD_OP,
    UNEVEN_OP,
    compiled,
    dtypes_of,
)
from flash_attn_rocm.values import kinds, paths

APPEND = "append"
CACHE_OPS = (APPEND, coded_append_cases.CODED_APPEND, widen_cases.WIDENING)
MODULES = {
    APPEND: append_cases, coded_append_cases.CODED_APPEND: coded_append_cases,
    widen_cases.WIDENING: widen_cases, **dict.fromkeys((BACKWARD_OP, FUSED_OP, UNEVEN_OP), backward_cases),
    masked_cases.MASKED: masked_cases, MASKED_BACKWARD_OP: masked_backward_cases,
    latent_cases.LATENT: latent_cases, fp8_cases.FP8: fp8_cases, int8_cases.INT8: int8_cases,
    coded_cases.CODED: coded_cases, coded_latent_cases.CODED_LATENT: coded_latent_cases,
    packed_latent_cases.PACKED_LATENT: packed_latent_cases,
}  # fmt: skip


# In the order of the corpus.
REFERENCE = kinds.ATTENDING[paths.REFERENCE]
ATTENDING = [op for op in dict.fromkeys(kinds.ATTENDING.values()) if op != REFERENCE]


def kernels():
    """All kernels with fuzz cases. These also launch fa_combine_* and the other kernels of a backward."""
    return [
        *(Kernel(op, *each) for op in ATTENDING for each in compiled(op)),
        *(Kernel(REFERENCE, dtype) for dtype in DTYPES),
        *(Kernel(op, *each) for op in kinds.GRADIENTS.values() for each in compiled(op)),
        *(Kernel(op, dtype) for op in CACHE_OPS for dtype in dtypes_of(op)),
    ]


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    return _of(kernel).draw(kernel, number)


def made(case, device):
    """The call of a case: ``run`` launches it, ``check`` launches it and judges the results."""
    special = {backward_cases.NAN: nan_cases, **dict.fromkeys(backward_cases.ALIKE_CALLS, alike_cases)}
    return special.get(case.values, _of(case.kernel)).Call(case, device)


def served(kernel):
    """The features to test with a kernel."""
    return _of(kernel).served(kernel)


def _of(kernel):
    return MODULES.get(kernel.op, forward_cases)

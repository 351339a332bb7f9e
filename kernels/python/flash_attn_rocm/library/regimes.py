"""The regime of a forward call, as the library's plan finds it (``kernels/host/plan/regimes.hpp``)."""

from flash_attn_rocm.library import host
from flash_attn_rocm.values.tuning import EVIDENCE, REGIMES


def regime_of(queries: int, keys: int, width: int, *, causal: bool) -> str:
    """The regime of a call by the longest sequence, the heads of q for a head of k, and hidden later keys."""
    sizes = (queries, keys, width)
    return next(
        name
        for name, (*bounds, only) in REGIMES.items()
        if only in (None, causal) and all(map(_hold, bounds, sizes))
    )


def evidence_of(regime: str, arch: str, dtype: str, head_dim: int) -> str:
    """How the kernels of a regime were chosen."""
    call = (regime, host.code_of(arch), dtype, head_dim)
    return next(
        evidence
        for evidence, *fits in EVIDENCE
        if all(not some or value in some for some, value in zip(fits, call, strict=True))
    )


def _hold(bounds: tuple[int, int], size: int) -> bool:
    least, most = bounds
    return least <= size and (most == 0 or size <= most)

"""Problems of a cache's lengths: of one number in every call, of a tensor's where PyTorch answers."""

from collections.abc import Sequence

from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Inputs, Options, key_capacity


def problems(inputs: Inputs, begins: Sequence[int], new: int | None) -> list[str]:
    """Problems of cache_seqlens, beside ``new`` rows of k. None: without k."""
    # Dynamo of PyTorch 2.10 traces no property of a named tuple.
    paged, most = inputs.block_table is not None, key_capacity(inputs) - (new or 0)
    if new is None:
        expected = f"at most {most} keys{', as block_table has pages for' if paged else ''}"
    else:
        fit = f"{new} new keys fit{' into the pages of block_table' if paged else ''}"
        expected = f"0 to {most}, so that {fit}"
    return [f"cache_seqlens: expected {expected}, got {begin}" for begin in begins if not 0 <= begin <= most]


def of_angles(
    inputs: Inputs, begins: Sequence[int], new: int, cos: Tensor | None, *, advances: bool
) -> list[str]:
    """Problems of rotary_cos: fewer rows than these queries and ``new`` keys have positions."""
    if cos is None or not begins:
        return []
    rows = inputs.q.shape[1] if advances else min(inputs.q.shape[1], 1)
    needed = max(begins) + max(new, rows)
    if needed <= cos.shape[0]:
        return []
    return [f"rotary_cos: expected {needed} rows for these cache_seqlens, got {cos.shape[0]}"]


def advances(options: Options) -> bool:
    """Whether rotated queries count from cache_seqlens on. Otherwise all are at cache_seqlens."""
    return options.window_left >= 0 or options.window_right >= 0

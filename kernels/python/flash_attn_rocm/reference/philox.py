"""Philox4x32-10 selects dropout's kept probabilities, equally on every device and in every pass.

A counter-based generator: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC 2011. Constants and known answers are from their library Random123.

The probability of (batch, head, row, column) is dropped if its word is below dropout_p * 2**32. Its word is
number column % 4 of the four words that Philox gives for the counter (column // 4, row, head, batch) and the
key rng_state. Rows count from the sequence's first query. Columns count from its first key, or from its first
visible key where a mask chooses keys (``key_masks``). Words are independent of the division into blocks.
"""

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF
WORDS = 4


def new_state(device: torch.device) -> Tensor:
    """The key of one call: (2,) int64, each below 2**32, drawn from the device's default generator."""
    return torch.randint(1 << 32, (2,), device=device, dtype=torch.int64)


def keep(
    state: Tensor, dropout_p: float, *, batches: Tensor, heads: Tensor, rows: Tensor, columns: range | Tensor
) -> Tensor:
    """Whether probabilities are kept: bool.

    The shape is the broadcast shape of batches, heads and rows, which end in a dimension of 1, with the
    columns as the last dimension. ``columns`` may be a tensor that broadcasts to that shape. Along its last
    dimension it rises by 0 or 1.
    """
    first = columns[..., :1] // WORDS if isinstance(columns, Tensor) else columns.start // WORDS
    several = columns.shape[-1] if isinstance(columns, Tensor) else len(columns)
    # One more group than there need be if the first column is the first of its group.
    groups = first + torch.arange((several + 2 * (WORDS - 1)) // WORDS, device=state.device)
    words = torch.stack(philox((groups, rows, heads, batches), state), dim=-1).flatten(-2)
    if isinstance(columns, Tensor):
        words = words.gather(-1, (columns - first * WORDS).expand(*words.shape[:-1], -1))
    else:
        skipped = columns.start - first * WORDS
        words = words[..., skipped : skipped + several]
    return words >= int(dropout_p * (1 << 32))


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: Tensor) -> tuple[Tensor, ...]:
    """Four words per counter, each below 2**32, in int64. Counters broadcast."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    k0, k1 = key[0], key[1]
    for _ in range(ROUNDS):
        (high0, low0), (high1, low1) = _product(MULTIPLIERS[0], c0), _product(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def _product(multiplier: int, word: Tensor) -> tuple[Tensor, Tensor]:
    # The product may overflow int64. It wraps, and its 64 bits stay exact.
    product = word * multiplier
    return (product >> 32) & WORD, product & WORD

"""The check at first use of the kernels that write into caches, which have the bits of PyTorch's operators.

In each call a third and a fourth sequence have lengths, and in caches with places those too, that are outside
of the cache: nothing may be written for them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from flash_attn_rocm._canary_calls import ended, endless, moved
from flash_attn_rocm._canary_rows import APPENDS, CACHE, PAGED, AppendRow
from flash_attn_rocm._options import TORCH_DTYPES, Inputs, New
from flash_attn_rocm._remembered import Family

Append = Callable[[Inputs, New, bool], Inputs]
INSIDE, ROWS, NEW = 2, 3, 5
LENGTHS = (0, 17, 2**31 - 3, -9)  # of the sequences, before
CAPACITY, PAGE = 48, 16
TIES = (1.5, -1.25, 0.75)
ANGLES = 20  # fewer than there are positions: those beyond have the last one's


def append_problem(family: Family, append: Append, where: torch.device) -> str:
    """What is wrong with in-place appends with rotation, or ""."""
    for row in APPENDS:
        inputs, new = _made(row, family.dtype, where)
        found = ended(where, lambda: append(inputs, new, row.advances)[:1])  # noqa: B023
        if found is None:
            return endless(row.why)
        wanted = _expected(row, *_made(row, family.dtype, torch.device("cpu")))
        results = (found[0][:INSIDE], inputs.k, inputs.v)
        pairs = zip(("q", "k_cache", "v_cache"), results, wanted, strict=True)
        if wrong := [name for name, one, other in pairs if not torch.equal(one.cpu(), other)]:
            return f"{row.why}: {', '.join(wrong)} differ from the PyTorch implementation"
    return ""


def _made(row: AppendRow, dtype: str, where: torch.device) -> tuple[Inputs, New]:
    draw, batch = torch.Generator().manual_seed(0), len(LENGTHS)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=draw, dtype=torch.float32).to(TORCH_DTYPES[dtype])

    nheads, nheads_k = row.heads
    q = normal(batch, ROWS, nheads, row.head_dim)
    k, v = (normal(batch, NEW, nheads_k, row.head_dim) for _ in range(2))
    cos, sin = (_angles(normal(ANGLES, row.rotary // 2)) if row.rotary else None for _ in range(2))
    pages = CAPACITY // PAGE if row.store == PAGED else 1
    places = torch.arange(INSIDE * pages, 0, -1, dtype=torch.int32)
    places = torch.cat([places, places.new_full((INSIDE * pages,), -1)]).to(where)
    k_cache, v_cache = (normal(batch * pages, CAPACITY // pages, nheads_k, row.head_dim) for _ in range(2))
    table = places.view(batch, pages) if row.store == PAGED else None
    indices = places if row.store == CACHE else None
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    q, k_cache, v_cache, lengths = (x.to(where) for x in (q, k_cache, v_cache, lengths))
    inputs = Inputs(q, k_cache, v_cache, None, None, None, lengths, None, table, indices)
    k, v, cos, sin = (moved(x, where) for x in (k, v, cos, sin))
    return inputs, New(k, v, cos, sin, row.interleaved)


def _angles(random: Tensor) -> Tensor:
    """Every other of so few bits that products often lie in the middle between two numbers of the type."""
    ties = random.new_tensor(TIES)[torch.arange(len(random)) % len(TIES), None]
    return random.where(torch.arange(random.shape[1]) % 2 == 0, ties)


def _places(inputs: Inputs) -> tuple[Tensor | None, ...]:
    return inputs.seqused_k, inputs.block_table, inputs.cache_batch_idx


def _expected(row: AppendRow, inputs: Inputs, new: New) -> tuple[Tensor, Tensor, Tensor]:
    """q of the sequences that are inside of the cache, and both caches, into which their keys are written."""
    q, k, v = (x[:INSIDE] for x in (inputs.q, new.k, new.v))
    lengths, table, indices = (None if x is None else x[:INSIDE] for x in _places(inputs))
    near = torch.arange(CAPACITY).clamp(max=ANGLES - 1)
    cos, sin = (None if x is None else x[near] for x in (new.cos, new.sin))
    rotated: Tensor = torch.ops.flash_attn_rocm.pytorch_append(
        q, inputs.k, inputs.v, k, v, cos, sin, lengths, None, table, indices, row.interleaved, row.advances
    )[0]
    return (rotated if row.rotary else q), inputs.k, inputs.v

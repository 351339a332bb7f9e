"""Upstream flash_attn's tests at sizes for an emulator: parameters, runs and verdicts.

The parameter lists are those of upstream's tests of each function, with lengths above 288 reduced, and fewer
batches and heads.  Their product is too large. So every function meets every head dim and pair of lengths,
and the other options cycle with steps without a common period.  Results are held to the common rule
(flash_attn_rocm.suite.reference_attention).

tests/installed/wheel uses it for the PyTorch implementation, tests/installed/numerics for kernels.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import flash_attn_rocm as fa
import torch
from flash_attn_rocm.reference import philox
from flash_attn_rocm.suite.reference_attention import DTYPES, Rules, Verdict, judge, judge_gradients
from flash_attn_rocm.suite.reference_attention import Sequence as Part
from torch import Tensor

QUICK_STEP = 31  # of all cases. Shares no factor with the length of any list
DROPOUT = 0.17
SEED = 7
HEAD_DIMS = (32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256)
CACHE_HEAD_DIMS = (32, 59, 64, 80, 128, 256)
LENGTHS = (97, 128, 200, 192, 256, 257)
PAIRS = (
    (113, 203),
    (128, 217),
    (113, 211),
    (108, 256),
    (128, 256),
    (256, 128),
    (256, 256),
    (255, 256),
    (256, 255),
)
RAGGED_PAIRS = ((1, 147), *PAIRS)
CACHE_PAIRS = (
    (1, 128),
    (1, 211),
    (3, 256),
    (64, 160),
    (64, 256),
    (3, 159),
    (16, 288),
    (1, 272),
    (16, 272),
    (128, 128),
)
HEADS = ((3, 3), (3, 1), (4, 2))  # heads of k and v: as many, one, some
PAGES = (None, 256, 16)


@dataclass(frozen=True)
class Case:
    """One call of a public function. If sequences differ, lengths are the largest."""

    function: str
    dtype: str
    head_dim: int
    lengths: tuple[int, int]
    heads: tuple[int, int] = (3, 3)
    causal: bool = False
    local: bool = False
    alibi: bool = False
    softcap: float = 0.0
    dropout_p: float = 0.0
    splits: int = 0
    new: bool = False
    rotary: float = 0.0
    interleaved: bool = False
    page: int | None = None
    batch_idx: bool = False
    leftpad: bool = False

    def __str__(self) -> str:
        options = [
            name
            for name in ("causal", "local", "alibi", "new", "batch_idx", "leftpad")
            if getattr(self, name)
        ]
        options += [f"{name}{value}" for name in ("softcap", "dropout_p", "splits", "rotary", "page")
                    if (value := getattr(self, name))]  # fmt: skip
        sizes = f"{self.lengths[0]}x{self.lengths[1]}-d{self.head_dim}-h{self.heads[0]}_{self.heads[1]}"
        return "-".join([self.function, self.dtype, sizes, *options])


def cases(*, full: bool, step: int = QUICK_STEP) -> tuple[Case, ...]:
    """All cases, or the few that represent them."""
    every = tuple(dict.fromkeys([*_attention_cases(), *_cache_cases()]))
    return every if full else every[::step]


def gradient_cases(*, full: bool, step: int = QUICK_STEP) -> tuple[Case, ...]:
    """Cases with gradients: all functions except the cache's, without pages."""
    every = tuple(case for case in dict.fromkeys(_attention_cases()) if not case.page)
    return every if full else every[::step]


def _attention_cases() -> Iterator[Case]:
    squares = tuple((n, n) for n in LENGTHS)
    functions = {
        "qkvpacked": squares, "dense": PAIRS, "kvpacked": PAIRS, "varlen": RAGGED_PAIRS,
        "varlen_qkvpacked": squares, "varlen_kvpacked": RAGGED_PAIRS,
    }  # fmt: skip
    number = 0
    for function, pairs in functions.items():
        for lengths, head_dim in itertools.product(pairs, HEAD_DIMS):
            number += 1
            softcap = 50.0 if number % 11 in {2, 7} else 0.0
            yield Case(
                function, tuple(DTYPES)[number % 23 % 2], head_dim, lengths,
                heads=HEADS[0] if "qkv" in function else HEADS[number % 3],
                causal=number % 2 == 1, local=number % 5 in {1, 2}, alibi=number % 7 in {1, 4},
                softcap=softcap, dropout_p=DROPOUT if number % 13 in {0, 5, 9} and not softcap else 0.0,
                page=PAGES[number % 3] if function == "varlen" else None,
            )  # fmt: skip


def _cache_cases() -> Iterator[Case]:
    every = itertools.product(DTYPES, CACHE_PAIRS, CACHE_HEAD_DIMS)
    for number, (dtype, lengths, head_dim) in enumerate(every, start=1):
        new, page = number % 2 == 1, PAGES[number % 3]
        yield Case(
            "kvcache", dtype, head_dim, lengths, heads=HEADS[number % 3], causal=number % 5 in {1, 2, 4},
            local=number % 7 in {0, 3}, alibi=number % 11 in {1, 5}, splits=(0, 1, 3)[number % 13 % 3],
            new=new, rotary=(0.0, 0.5, 1.0)[number % 17 % 3] if new else 0.0,
            interleaved=number % 19 % 2 == 1, page=page,
            batch_idx=page is None and number % 23 % 2 == 1, leftpad=page is None and number % 29 % 2 == 1,
        )  # fmt: skip


Attend = Callable[..., Any]


class Setup:
    """The case's tensors, on the device under test, and its call."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        self.generator = torch.Generator().manual_seed(SEED)
        self.batch = 2
        most_q, most_k = case.lengths
        left, right = self.draw(0, most_k), self.draw(0, most_k)
        self.window = (left, right) if case.local else (-1, -1)
        self.slopes = (
            torch.rand(self.batch, case.heads[0], generator=self.generator) * 0.3 if case.alibi else None
        )
        self.rows = [most_q] * self.batch
        self.keys = [most_k] * self.batch
        if case.function.startswith("varlen"):
            self.rows = [most_q, self.draw(1, most_q + 1)]
            self.keys = self.rows if "qkv" in case.function else [most_k, self.draw(1, most_k + 1)]

    def draw(self, low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=self.generator))

    def values(self, *sizes: int) -> Tensor:
        made = torch.randn(*sizes, self.case.head_dim, generator=self.generator)
        return made.to(DTYPES[self.case.dtype]).to(self.device)

    def ints(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def options(self) -> dict[str, Any]:
        slopes = None if self.slopes is None else self.slopes.to(self.device)
        return {
            "causal": self.case.causal, "window_size": self.window, "softcap": self.case.softcap,
            "alibi_slopes": slopes,
        }  # fmt: skip

    def slopes_of(self, b: int) -> Tensor | None:
        return None if self.slopes is None else self.slopes[b]


def run(case: Case, device: torch.device, attend: Attend) -> Verdict:
    """``attend(function, *arguments, **options)`` calls a public function."""
    setup = Setup(case, device)
    parts = (_run_cache if case.function == "kvcache" else _run_attention)(setup, attend)
    return judge(parts, _rules(setup))


def run_gradients(case: Case, device: torch.device, attend: Attend) -> dict[str, Verdict]:
    """dq, dk and dv. ``attend(function)`` calls a function that goes forward and backward."""
    setup = Setup(case, device)
    return judge_gradients(_run_gradients(setup, attend), _rules(setup))


def _run_attention(setup: Setup, attend: Attend) -> Iterator[Part]:
    case = setup.case
    q, k, v = _drawn(setup)
    # Kernels return no probabilities, and the log-sum-exp is only returned together with them.
    wants_lse = not case.dropout_p
    function, arguments, options = _call(setup, q, k, v)
    torch.manual_seed(SEED)
    answer = attend(function, *arguments, return_attn_probs=wants_lse, **options)
    out, lse = answer[:2] if wants_lse else (answer, None)
    begin = 0
    for b, (rows, kept) in enumerate(zip(setup.rows, _all_kept(setup), strict=True)):
        ragged = case.function.startswith("varlen")
        some = out[begin : begin + rows] if ragged else out[b]
        some_lse = None if lse is None else lse[:, begin : begin + rows] if ragged else lse[b]
        yield Part(q[b], k[b], v[b], some, some_lse, setup.slopes_of(b), kept)
        begin += rows


def _run_gradients(setup: Setup, attend: Attend) -> Iterator[tuple[Part, Tensor, tuple[Tensor, ...]]]:
    tensors = _drawn(setup)
    douts = [setup.values(n, setup.case.heads[0]) for n in setup.rows]
    leaves = [x.requires_grad_() for some in tensors for x in some]
    join = torch.cat if setup.case.function.startswith("varlen") else torch.stack

    def both() -> tuple[Tensor, ...]:
        function, arguments, options = _call(setup, *tensors)
        torch.manual_seed(SEED)
        return torch.autograd.grad(function(*arguments, **options), leaves, join(douts))

    found = attend(both)
    each = zip(*(found[i : i + setup.batch] for i in range(0, len(found), setup.batch)), strict=True)
    for b, (gradients, kept) in enumerate(zip(each, _all_kept(setup), strict=True)):
        q, k, v = (some[b].detach() for some in tensors)
        yield Part(q, k, v, q, None, setup.slopes_of(b), kept), douts[b], gradients


def _drawn(setup: Setup) -> tuple[list[Tensor], ...]:
    """q, k and v of each sequence."""
    nheads, nheads_k = setup.case.heads
    q = [setup.values(n, nheads) for n in setup.rows]
    return q, *([setup.values(n, nheads_k) for n in setup.keys] for _ in range(2))


def _call(
    setup: Setup, q: Sequence[Tensor], k: Sequence[Tensor], v: Sequence[Tensor]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The public function, and its arguments, of tensors of sequences."""
    case, ragged = setup.case, setup.case.function.startswith("varlen")
    join = torch.cat if ragged else torch.stack
    cu_q, cu_k = (setup.ints([0, n[0], sum(n)]) for n in (setup.rows, setup.keys))
    arguments: tuple[Any, ...]
    options = {"dropout_p": case.dropout_p, **setup.options()}
    if case.function.endswith("qkvpacked"):
        arguments = (torch.stack([join(q), join(k), join(v)], -3),)
        arguments += (cu_q, max(setup.rows)) if ragged else ()
    elif case.function.endswith("kvpacked"):
        arguments = (join(q), torch.stack([join(k), join(v)], -3))
        arguments += (cu_q, cu_k, max(setup.rows), max(setup.keys)) if ragged else ()
    else:
        keys = (join(k), join(v))
        if case.page:
            options["block_table"], keys = _paged(setup, k, v)
        arguments = (join(q), *keys)
        arguments += (cu_q, cu_k, max(setup.rows), max(setup.keys)) if ragged else ()
    name = "flash_attn_func" if case.function == "dense" else f"flash_attn_{case.function}_func"
    return getattr(fa, name), arguments, options


def _all_kept(setup: Setup) -> Iterator[Tensor | None]:
    """For each sequence, dropout's factors of the probabilities."""
    torch.manual_seed(SEED)
    state = philox.new_state(setup.device).cpu()
    for b, (rows, keys) in enumerate(zip(setup.rows, setup.keys, strict=True)):
        yield _kept(setup.case, state, b, rows, keys) if setup.case.dropout_p else None


def _paged(setup: Setup, *tensors: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    page = setup.case.page or 0
    most = max(-(-n // page) for n in setup.keys)
    order = torch.randperm(setup.batch * most + 1, generator=setup.generator)[: setup.batch * most]
    table = order.view(setup.batch, most).tolist()
    caches = []
    for sequences in tensors:
        cache = torch.full(
            (setup.batch * most + 1, page, *sequences[0].shape[1:]), torch.nan, dtype=sequences[0].dtype,
            device=setup.device,
        )  # fmt: skip
        for b, rows in enumerate(sequences):
            for number, some in enumerate(rows.split(page)):
                cache[table[b][number], : len(some)] = some
        caches.append(cache)
    return setup.ints(table), tuple(caches)


def _run_cache(setup: Setup, attend: Attend) -> Iterator[Part]:
    """The suites have tests of their own for appending and rotation. Here only out shows them."""
    case = setup.case
    rows, most = case.lengths
    nheads, nheads_k = case.heads
    added = rows if case.new else 0
    lengths = [max(0, n - added) for n in (most, setup.draw(max(1, most // 2), most))]
    pads = [setup.draw(0, max(1, n // 3)) if case.leftpad else 0 for n in lengths]
    q, k, v = (setup.values(setup.batch, rows, n) for n in (nheads, nheads_k, nheads_k))
    k_keys, v_keys = (setup.values(setup.batch, most + added, nheads_k) for _ in range(2))
    setup.keys = [most + added] * setup.batch
    order = [2, 0] if case.batch_idx else [0, 1]
    options: dict[str, Any] = {"cache_seqlens": setup.ints(lengths), "num_splits": case.splits}
    if case.page:
        table, caches = _paged(setup, k_keys, v_keys)
        options["block_table"] = table
    else:
        caches = tuple(_rows_at(order, x) for x in (k_keys, v_keys))
        options |= {"cache_batch_idx": setup.ints(order)} if case.batch_idx else {}
        options |= {"cache_leftpad": setup.ints(pads)} if case.leftpad else {}
        caches = tuple(x[: setup.batch] if not case.batch_idx else x for x in caches)
    angles = _angles(setup, most + added)
    if case.new:
        options |= {"k": k, "v": v}
    if angles:
        options |= {"rotary_cos": angles[0], "rotary_sin": angles[1], "rotary_interleaved": case.interleaved}
    common = setup.options()
    out, lse = attend(fa.flash_attn_with_kvcache, q, *caches, return_softmax_lse=True, **options, **common)
    for b, length in enumerate(lengths):
        turned, new_k = q[b], k[b]
        if angles:
            steps = torch.arange(rows, device=setup.device) * int(case.causal or setup.window != (-1, -1))
            turned = _turned(q[b], angles, length + steps, case.interleaved)
            new_k = _turned(k[b], angles, length + torch.arange(rows, device=setup.device), case.interleaved)
        keys, values = k_keys[b, pads[b] : length], v_keys[b, pads[b] : length]
        if case.new:
            keys, values = torch.cat([keys, new_k]), torch.cat([values, v[b]])
        yield Part(turned, keys, values, out[b], lse[b], setup.slopes_of(b))


def _rows_at(order: Sequence[int], rows: Tensor) -> Tensor:
    cache = torch.full((3, *rows.shape[1:]), torch.nan, dtype=rows.dtype, device=rows.device)
    cache[order] = rows
    return cache


def _angles(setup: Setup, most: int) -> tuple[Tensor, Tensor] | None:
    rotary_dim = int(setup.case.rotary * setup.case.head_dim) // 16 * 16
    if not rotary_dim:
        return None
    angle = torch.rand(most, rotary_dim // 2, generator=setup.generator) * 2 * math.pi
    dtype = DTYPES[setup.case.dtype]
    return torch.cos(angle).to(dtype).to(setup.device), torch.sin(angle).to(dtype).to(setup.device)


def _turned(x: Tensor, angles: tuple[Tensor, Tensor], positions: Tensor, interleaved: bool) -> Tensor:
    c, s = (table[positions].float()[:, None] for table in angles)
    half = c.shape[-1]
    some = x[..., : 2 * half].float()
    first, second = (
        (some[..., 0::2], some[..., 1::2]) if interleaved else (some[..., :half], some[..., half:])
    )
    a, b = first * c - second * s, first * s + second * c
    mixed = torch.stack([a, b], -1).flatten(-2) if interleaved else torch.cat([a, b], -1)
    return torch.cat([mixed.to(x.dtype), x[..., 2 * half :]], -1)


def _kept(case: Case, state: Tensor, b: int, rows: int, keys: int) -> Tensor:
    kept = philox.keep(
        state, case.dropout_p, batches=torch.tensor(b), heads=torch.arange(case.heads[0])[:, None, None],
        rows=torch.arange(rows)[:, None], columns=range(keys),
    )  # fmt: skip
    return kept / (1.0 - case.dropout_p)


def _rules(setup: Setup) -> Rules:
    """A window as wide as the longest keys is unbounded."""
    left, right = (n if n < max(setup.keys) else -1 for n in setup.window)
    return Rules(left, 0 if setup.case.causal else right, setup.case.softcap)

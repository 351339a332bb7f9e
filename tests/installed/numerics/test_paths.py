"""Each call takes the path named by the plan, and its answers are right (see rule.py).

The fake HIP runtime lists the launched kernels. On a GPU only the answers are judged.
"""

import pytest
import torch
from flash_attn_rocm import flash_attn_func, flash_attn_with_kvcache
from flash_attn_rocm.autograd import recall
from flash_attn_rocm.canary import calls, rows
from flash_attn_rocm.launch import forward_pass
from flash_attn_rocm.library import plans
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.reference import philox
from flash_attn_rocm.serving import layouts, machine
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from flash_attn_rocm.values import paths
from here import ARCH, DECODE, FORWARD, TALL

FWD = torch.ops.flash_attn_rocm.fwd.default
ARGUMENTS = tuple(argument.name for argument in FWD._schema.arguments)
ROWS = (1, 3, 15)
HEADS = ((4, 1), (3, 3), (6, 2))
CAUSAL = Rules(right=0)
# The last ones are as wide as the keys: unbounded in Python's functions, but kernels take them unchanged.
WINDOWS = [(9, 4, -1, 0), (3, 40, 2, 1), (70, 3, 0, 0), (9, 4, 4, 4), (4, 9, 9, 9)]
UNITS = 96


def tensors(target, dtype, head_dim, rows, keys, heads, *, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((rows, heads[0]), (keys, heads[1]), (keys, heads[1]))
    values = (torch.randn(batch, n, h, head_dim, generator=generator) for n, h in sizes)
    return [x.to(DTYPES[dtype]).to(target.device) for x in values]


def check(shown, target, case, expected, q, k, v, out, lse, rules, kept=None):
    """Check the last call's kernels and each of its sequences."""
    assert target.runtime is None or target.kernels == expected
    each = kept or [None] * len(q)
    sequences = [Sequence(*one[:5], kept=one[5]) for one in zip(q, k, v, out, lse, each, strict=True)]
    judge(shown, target.answering(expected[0]), case, sequences, rules)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("dtype", "head_dim"), DECODE)
def test_few_queries(target, shown, dtype, head_dim, rows):
    heads = HEADS[(ROWS.index(rows) + DECODE.index((dtype, head_dim))) % len(HEADS)]
    q, k, v = tensors(target, dtype, head_dim, rows, 77, heads)
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, causal=True, return_attn_probs=True)
    expected = (f"fa_decode_{dtype}_d{head_dim}",)
    check(shown, target, f"{rows} rows {heads}", expected, q, k, v, out, lse, CAUSAL)


@pytest.mark.parametrize("dtype", DTYPES)
def test_prompts_of_three_tokens_differ_in_their_answers(target, shown, dtype):
    """As many queries as keys, on each path for so few of them."""
    q, k, v = tensors(target, dtype, 64, 3, 3, (4, 2), batch=2)
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, causal=True, return_attn_probs=True)
    check(shown, target, "prompt", (f"fa_decode_{dtype}_d64",), q, k, v, out, lse, CAUSAL)
    assert torch.equal(out[:, 0], v.repeat_interleave(2, dim=2)[:, 0]), "a first token attends to itself only"
    assert not torch.equal(out[0, 1:], out[1, 1:])
    again, more = new_results(q)
    target.attend(launch, *odd(q, k, v), again, more, window_right=0)
    check(shown, target, "prompt", (f"fa_reference_{dtype}",), q, k, v, again, more, CAUSAL)


@pytest.mark.parametrize("splits", [2, 5])
@pytest.mark.parametrize(("dtype", "head_dim"), DECODE)
def test_keys_in_parts(target, shown, dtype, head_dim, splits):
    """The second sequence has fewer tiles of keys than there are parts."""
    lengths = (290, 40)
    heads = HEADS[DECODE.index((dtype, head_dim)) % len(HEADS)]
    q, k, v = tensors(target, dtype, head_dim, 2, 300, heads, batch=2)
    used = torch.tensor(lengths, dtype=torch.int32, device=target.device)
    (out, lse), _ = target.attend(
        flash_attn_with_kvcache, q, k, v, cache_seqlens=used, causal=True, num_splits=splits,
        return_softmax_lse=True,
    )  # fmt: skip
    in_use = [[x[b, :length] for b, length in enumerate(lengths)] for x in (k, v)]
    expected = (f"fa_decode_{dtype}_d{head_dim}", f"fa_combine_{dtype}")
    check(shown, target, f"{splits} parts {heads}", expected, q, *in_use, out, lse, CAUSAL)


@pytest.fixture
def compute_units(target, monkeypatch):
    """Enough to need many parts. A real GPU keeps its number."""
    monkeypatch.setattr(machine.current(), "units", UNITS, raising=False)
    recall.forget()
    yield
    recall.forget()


@pytest.mark.usefixtures("compute_units")
@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_in_as_many_parts_as_fill_the_device(target, shown, dtype):
    q, k, v = tensors(target, dtype, 64, 2, 300, (4, 2))
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, causal=True, return_attn_probs=True)
    expected = (f"fa_decode_{dtype}_d64", f"fa_combine_{dtype}")
    check(shown, target, "parts of its own choice", expected, q, k, v, out, lse, CAUSAL)


def test_long_queries_in_parts(target, shown):
    dtype, head_dim = DECODE[0]
    q, k, v = tensors(target, dtype, head_dim, 33, 130, (2, 1))
    (out, lse), _ = target.attend(
        flash_attn_with_kvcache, q, k, v, causal=True, num_splits=2, return_softmax_lse=True
    )
    expected = (f"fa_decode_{dtype}_d{head_dim}", f"fa_combine_{dtype}")
    check(shown, target, "33 rows in 2 parts", expected, q, k, v, out, lse, CAUSAL)


def launch(q, k, v, out, lse, **more):
    """Call the operator itself on unchanged tensors."""
    given = {
        "q": q, "k": k, "v": v, "out": out, "lse": lse,
        "max_seqlen_q": q.shape[1], "max_seqlen_k": k.shape[1], "softmax_scale": q.shape[-1] ** -0.5,
        "window_left": -1, "window_right": -1, "softcap": 0.0, "dropout_p": 0.0, "path": "", **more,
    }  # fmt: skip
    FWD(*(given.get(name) for name in ARGUMENTS))


def new_results(q):
    batch, rows, heads, _ = q.shape
    return torch.empty_like(q), torch.empty(batch, heads, rows, device=q.device)


def odd(*given):
    """Row stride one element larger than the row, from an address aligned to 2 bytes only."""
    return [torch.nn.functional.pad(x, (1, 0))[..., 1:] for x in given]


def far(q, *given):
    """Keys further apart than the kernels with a fixed head dim can reach."""
    made = [q]
    for x in given:
        room = x.new_empty(((x.shape[1] - 1) << 24) + x[0, 0].numel())
        made.append(room.as_strided(x.shape, (0, 1 << 24, x.shape[3], 1)).copy_(x))
    return made


AS_THEY_ARE = {
    "head dim 40": (40, lambda *x: x),
    "head dim 72": (72, lambda *x: x),
    "head dim 1": (1, lambda *x: x),
    "head dim 255, odd": (255, odd),
    "head dim 64, odd": (64, odd),
    "head dim 64, far": (64, far),
}


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("name", AS_THEY_ARE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_whatever_is_left(target, shown, dtype, name, rows):
    head_dim, lay_out = AS_THEY_ARE[name]
    q, k, v = lay_out(*tensors(target, dtype, head_dim, rows, 3 if lay_out is far else 70, (4, 2)))
    out, lse = new_results(q)
    target.attend(launch, q, k, v, out, lse, window_right=0)
    check(shown, target, f"{name} {rows} rows", (f"fa_reference_{dtype}",), q, k, v, out, lse, CAUSAL)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cache_of_another_head_dim_is_read_as_it_is(target, shown, dtype):
    q, k, v = tensors(target, dtype, 72, 3, 70, (4, 2))
    (out, lse), _ = target.attend(flash_attn_with_kvcache, q, k, v, cache_seqlens=50, return_softmax_lse=True)
    expected = (f"fa_reference_{dtype}",)
    check(shown, target, "cache", expected, q, k[:, :50], v[:, :50], out, lse, Rules())


# Head dims around multiples of a wave's lanes.
@pytest.mark.parametrize("head_dim", [1, 2, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_head_dim(target, shown, dtype, head_dim):
    with_dropout(target, shown, dtype, head_dim, (2, 21), (2, 1), 0.3, Rules(), odd)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_of_keys_around_a_wave(target, shown, dtype):
    for keys in range(71):
        q, k, v = odd(*tensors(target, dtype, 8 + keys % 5, 2, keys, (1, 1), seed=keys))
        out, lse = new_results(q)
        rules = CAUSAL if keys % 2 else Rules()
        target.attend(launch, q, k, v, out, lse, window_right=rules.right)
        check(shown, target, f"{keys} keys", (f"fa_reference_{dtype}",), q, k, v, out, lse, rules)


@pytest.mark.parametrize(("rows", "keys", "left", "right"), WINDOWS)
def test_rows_that_see_little_or_nothing(target, shown, rows, keys, left, right):
    q, k, v = odd(*tensors(target, "bf16", 24, rows, keys, (1, 1)))
    out, lse = new_results(q)
    target.attend(launch, q, k, v, out, lse, window_left=left, window_right=right)
    expected = ("fa_reference_bf16",)
    check(shown, target, f"{rows} x {keys}", expected, q, k, v, out, lse, Rules(left, right))


FAR = (1 << 31) + 3  # elements: more than 2^32 bytes, and unaligned


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("dimension", range(3))
def test_strides_beyond_32_bits(target, shown, number, dimension):
    """Strides of q, k and v. Untouched memory is free on a host and takes 4 GiB on a GPU."""
    given = tensors(target, "fp16", 20, 2, 2, (2, 2), batch=2)
    near = given[number]
    steps = [FAR if each == dimension else step for each, step in enumerate(near.stride())]
    room = near.new_empty(FAR + near.numel())
    given[number] = room.as_strided(near.shape, steps).copy_(near)
    out, lse = new_results(near)
    target.attend(launch, *given, out, lse)
    check(shown, target, f"far {number} {dimension}", ("fa_reference_fp16",), *given, out, lse, Rules())


def test_expanded_keys(target, shown):
    """One key head for all heads, one sequence for the whole batch: strides of 0."""
    q, k, v = tensors(target, "bf16", 40, 2, 9, (4, 2), batch=2)
    k, v = k[:, :, :1].expand(-1, -1, 2, -1), v[:1].expand(2, -1, -1, -1)
    out, lse = new_results(q)
    target.attend(launch, q, k, v, out, lse)
    check(shown, target, "expanded", ("fa_reference_bf16",), q, k, v, out, lse, Rules())


def with_dropout(target, shown, dtype, head_dim, lengths, heads, share, rules, lay_out=lambda *x: x):
    """A call of the operator with two sequences and dropout as ``philox`` defines it."""
    rows, keys = lengths
    q, k, v = lay_out(*tensors(target, dtype, head_dim, rows, keys, heads, batch=2))
    state = torch.tensor([0x01234567, 0x89ABCDEF], device=target.device)
    b, h, r = (torch.arange(n) for n in (2, heads[0], rows))
    places = {"batches": b[:, None, None, None], "heads": h[:, None, None], "rows": r[:, None]}
    kept = philox.keep(state.cpu(), share, **places, columns=range(keys))
    out, lse = new_results(q)
    target.attend(
        launch, q, k, v, out, lse, rng_state=state, dropout_p=share, window_left=rules.left,
        window_right=rules.right,
    )  # fmt: skip
    native = (dtype, head_dim) in FORWARD and lay_out is not odd
    expected = (f"fa_fwd_{dtype}_d{head_dim}" if native else f"fa_reference_{dtype}",)
    weights = list(kept / (1 - share))
    check(shown, target, f"dropout {share} {rows} rows", expected, q, k, v, out, lse, rules, weights)


DROPOUT = (
    ((3, 69), (2, 1), 0.3, CAUSAL),  # with dropout, few queries stay unpacked
    ((18, 35), (1, 1), 0.97, Rules(9, 2)),  # a factor of 33
)


@pytest.mark.parametrize("number", range(len(DROPOUT)))
@pytest.mark.parametrize(("dtype", "head_dim"), FORWARD)
def test_dropout(target, shown, dtype, head_dim, number):
    with_dropout(target, shown, dtype, head_dim, *DROPOUT[number])


def test_dropout_of_many_rows(target, shown):
    with_dropout(target, shown, "bf16", 128, (70, 45), (4, 2), 0.5, Rules())


@pytest.mark.parametrize("share", [1e-9, 0.17, 0.999])
def test_dropout_in_the_reference_kernel(target, shown, share):
    with_dropout(target, shown, "fp16", 24, (9, 75), (4, 2), share, CAUSAL)


def test_parts_that_the_plan_does_not_have_are_refused(target):
    q, k, v = tensors(target, "fp16", 64, 33, 70, (4, 2))
    out, lse = new_results(q)
    parts = {"partial_out": lse.new_empty(2, *lse.shape, 64), "partial_lse": lse.new_empty(2, *lse.shape)}
    state = torch.tensor([1, 2], device=target.device)
    words = r"expected none, as plan says of this call \(dropout: keys are not split\)"
    with pytest.raises(RuntimeError, match=words):
        launch(q, k, v, out, lse, **parts, rng_state=state, dropout_p=0.5)


def test_tall_workgroups_where_the_plan_says_so(target, shown, monkeypatch):
    """The first call decides, the second one is remembered. Rows of a second workgroup, and of none."""
    monkeypatch.setattr(layouts, "plan", lambda *_: plans.Plan(paths.TALL, 1, "many rows"))
    recall.forget()
    try:
        for dtype, head_dim in TALL:
            q, k, v = tensors(target, dtype, head_dim, 257, 97, (2, 1))
            for turn in ("decided", "remembered"):
                (out, lse, _), _ = target.attend(
                    flash_attn_func, q, k, v, causal=True, return_attn_probs=True
                )
                expected = (f"fa_fwd_tall_{dtype}_d{head_dim}",)
                check(shown, target, f"tall, {turn}", expected, q, k, v, out, lse, CAUSAL)
    finally:
        recall.forget()


def test_tall_workgroups_take_what_they_compute(target):
    head_dim = next((head_dim for _, head_dim in TALL), 64)
    whole = tensors(target, "fp16", head_dim, 33, 70, (4, 2))
    words = "path: tall does not take this call: its kernels"
    mask = torch.ones(1, 1, 33, 72, dtype=torch.bool, device=target.device)
    for more, why in (({"softcap": 2.0}, "have neither softcap"), ({"attn_mask": mask}, "read no mask")):
        with pytest.raises(RuntimeError, match=f"{words} {why}"):
            launch(*whole, *new_results(whole[0]), path=paths.TALL, **more)
    if not TALL:
        with pytest.raises(RuntimeError, match="no fwd_tall kernel for fp16 with head_dim 64"):
            launch(*whole, *new_results(whole[0]), path=paths.TALL)


def test_the_check_at_first_use_has_calls_of_tall_workgroups(target, monkeypatch):
    """A small call never takes them by itself, so the check asks for them, and finds a fault."""
    monkeypatch.setattr(rows, "ATTENTION", ())
    for dtype, head_dim in TALL:
        family = remembered.Family(ARCH, dtype, head_dim)
        given = (family, forward_pass.answer, Device(ARCH, 0), target.device)
        problem, kernels = target.attend(calls.attention_problem, *given)
        assert problem == ""
        assert kernels is None or {*kernels} == {f"fa_fwd_tall_{dtype}_d{head_dim}"}

        def zeros(*arguments, path):
            assert path == paths.TALL
            return tuple(torch.zeros_like(x) for x in forward_pass.answer(*arguments, path=path))

        wrong, _ = target.attend(calls.attention_problem, family, zeros, *given[2:])
        assert wrong.startswith("tall workgroups: causal: out differs by")


def test_the_plan_is_what_ran(target):
    """The plan operator, called by Python and users, agrees for the calls above."""
    whole = "tiled" if ARCH in ("gfx906", "gfx1010", "gfx1012", "gfx1030") else "matrix"

    def plan(head_dim, rows, keys, splits=0, *, dropout=False, aligned=True):
        found = torch.ops.flash_attn_rocm.plan(
            ARCH, "fp16", head_dim, 1, rows, keys, 4, 2, UNITS, splits, dropout, aligned,
            False, False, 0, False, False,
        )  # fmt: skip
        return found[:2]

    assert plan(64, 33, 70) == plan(64, 33, 70, 1) == plan(64, 3, 70, dropout=True) == (whole, 1)
    assert plan(64, 3, 64) == ("split", 1)
    assert plan(64, 3, 300, 2) == plan(64, 33, 300, 2) == ("split", 2)
    more = ARCH == "gfx906"  # four places of a compute unit, not two
    assert plan(64, 3, 1 << 15) == ("split", 173 if more else 87)
    assert plan(40, 3, 70) == plan(64, 3, 70, aligned=False) == ("reference", 1)

"""q, k and v of 8 bits on CPU tensors: the call over their numbers in bf16, and against float64.

PyTorch's own conversions say what a code is.
"""

import re
import warnings

import pytest
import torch
from archs import ARCH, UNKNOWN, archs_with
from exact import largest, plain
from flash_attn_rocm import (
    FlashAttnArgumentError,
    FlashAttnFallbackWarning,
    FlashAttnUnsupportedError,
    attention,
    explain,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    mla_decode,
    raw,
    set_strict,
)
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.launch import fp8, widening
from flash_attn_rocm.values import tolerances

FORMATS = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]
E4M3FN = FORMATS[0]
BF16 = torch.bfloat16
QUIET = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
KERNELS = pytest.mark.needs_kernels("widen")
INT = {"dtype": torch.int32}
NAMES = ("q_descale", "k_descale", "v_descale")
UNPADDED = 32  # a head dim that kernels have, and none with products of fp8
ENDS = (0, 9, 9, 20), (0, 3, 17, 17)
SHORT = {"cu_seqlens_q": torch.tensor(ENDS[0], **INT), "cu_seqlens_k": torch.tensor(ENDS[1], **INT)}
LENGTHS = {**SHORT, "max_seqlen_q": 11, "max_seqlen_k": 14}


def codes(*sizes, dtype=E4M3FN):
    """Random ones. The largest numbers of q and k are 3 and 2."""
    return torch.randn(sizes).clamp(-3, 3).to(dtype)


def descale(batch=2, nheads_k=2):
    return torch.rand(batch, nheads_k) + 0.25


def exact(x, of, *, of_rows=None):
    """The numbers of codes in float64. ``of_rows``: the sequence of each packed row."""
    if of is None:
        return x.double()
    heads = of.repeat_interleave(x.shape[-2] // of.shape[1], 1).double()
    return x.double() * (heads[:, None] if of_rows is None else heads[of_rows])[..., None]


class Call:
    """q, k and v of two sequences, or packed ones, their descales, and what they are."""

    def __init__(self, dtype=E4M3FN, *, packed=False, head_dim=64, of_v=None, given=NAMES):
        heads, batch = (4, 2, 2), 3 if packed else 2
        dims = (head_dim, head_dim, of_v or head_dim)
        rows = [(22,), (19,), (19,)] if packed else [(2, 20), (2, 33), (2, 33)]  # some belong to no sequence
        shapes = [(*n, *x) for n, x in zip(rows, zip(heads, dims, strict=True), strict=True)]
        self.tensors = [codes(*shape, dtype=dtype) for shape in shapes]
        self.descales = {name: descale(batch) if name in given else None for name in NAMES}
        sequences = [None] * 3
        if packed:
            q, k = (torch.bucketize(torch.arange(n), torch.tensor(e[1:-1]), right=True)
                    for n, e in zip((22, 19), ENDS, strict=True))  # fmt: skip
            sequences = [q, k, k]
        parts = zip(self.tensors, self.descales.values(), sequences, strict=True)
        self.numbers = [exact(x, of, of_rows=rows) for x, of, rows in parts]

    @property
    def rounded(self):
        return [x.to(BF16) for x in self.numbers]


def alike(found, wanted):
    """The same bits, also of NaN."""
    assert found.dtype == wanted.dtype
    assert torch.equal(found.nan_to_num(9e9), wanted.nan_to_num(9e9))


def holds(out, call, **rules):
    """Within the rule for calls of 16 bits, whose inputs are rounded like these."""
    wanted, _ = plain(*call.numbers, **rules)
    low, _ = plain(*call.rounded, **rules)
    keys, size = call.numbers[1].shape[1], call.numbers[2].abs().max().item()
    assert largest(out, wanted) <= tolerances.allowed(largest(low, wanted), terms=keys, largest=size)


@QUIET
@pytest.mark.parametrize("given", [(), NAMES[:1], NAMES[1:2], NAMES[2:], NAMES])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("function", [flash_attn_func, attention])
def test_dense(function, dtype, given):
    call = Call(dtype, given=given)
    found = function(*call.tensors, causal=True, return_attn_probs=True, **call.descales)
    for one, other in zip(found, function(*call.rounded, causal=True, return_attn_probs=True), strict=True):
        alike(one, other)
    assert found[0].dtype == BF16
    holds(found[0], call, causal=True)


@QUIET
@pytest.mark.parametrize("given", [(), NAMES[:1], NAMES])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_packed(dtype, given):
    """With an empty sequence of queries, and one of keys, and rows behind all."""
    call = Call(dtype, packed=True, given=given)
    found = flash_attn_varlen_func(*call.tensors, **LENGTHS, return_attn_probs=True, **call.descales)
    wanted = flash_attn_varlen_func(*call.rounded, **LENGTHS, return_attn_probs=True)
    for one, other in zip(found, wanted, strict=True):
        alike(one, other)
    assert not found[0][20:].any()


@QUIET
def test_a_batch_of_nothing():
    q, k, v = (x[:0] for x in Call().tensors)
    assert flash_attn_func(q, k, v, q_descale=torch.ones(0, 2)).shape == (0, 20, 4, 64)
    rows, nowhere = Call(packed=True).tensors, torch.zeros(1, **INT)
    out = flash_attn_varlen_func(*rows, nowhere, nowhere, 0, 0, q_descale=torch.ones(0, 2))
    assert out.dtype == BF16
    assert not out.any()


@QUIET
@pytest.mark.parametrize("head_dim", [1, 5, 16, 40, 80, 256, 300, 520])
def test_every_head_dim(head_dim):
    call = Call(head_dim=head_dim)
    alike(flash_attn_func(*call.tensors, **call.descales), flash_attn_func(*call.rounded))


@QUIET
def test_every_code():
    """NaN stays NaN."""
    for dtype in FORMATS:
        v = torch.arange(256, dtype=torch.uint8).view(dtype)[None, None, None]
        q = torch.zeros(1, 1, 1, 256).to(dtype)
        found = flash_attn_func(q, q, v, v_descale=torch.full((1, 1), 0.3))
        alike(found.flatten(), (v.float() * torch.tensor(0.3)).to(BF16).flatten())


@QUIET
def test_any_strides():
    """v in columns, and one scale of a whole tensor, as FlashAttention 3 and vLLM give them."""
    call, scale = Call(given=()), torch.tensor(0.5).expand(2, 2)
    v = call.tensors[2].transpose(1, 3).contiguous().transpose(1, 3)
    assert v.stride(-1) != 1
    found = flash_attn_func(*call.tensors[:2], v, q_descale=scale, k_descale=scale.t(), v_descale=scale)
    alike(found, flash_attn_func(*(x * 0.5 for x in call.rounded)))


@QUIET
@pytest.mark.parametrize("of_v", [32, 96])
def test_another_head_dim_of_v(of_v):
    call = Call(of_v=of_v)
    found = flash_attn_func(*call.tensors, **call.descales)
    alike(found, flash_attn_func(*call.rounded))
    assert found.shape == (2, 20, 4, of_v)


BESIDE = {
    "window": {"window_size": (9, 5)},
    "softcap": {"softcap": 3.0},
    "slopes": {"alibi_slopes": torch.rand(4)},
    "sink": {"sink": torch.randn(4)},
    "chunk": {"chunk": 7},
    "mask": {"attn_mask": torch.rand(20, 33) > 0.5},
    "bias": {"attn_mask": torch.randn(2, 1, 1, 33)},
    "keys": {"attn_mask": (torch.rand(2, 33) > 0.5)[:, None]},
}


@QUIET
@pytest.mark.parametrize("name", BESIDE)
def test_beside_other_arguments(name):
    call = Call()
    alike(attention(*call.tensors, **BESIDE[name], **call.descales), attention(*call.rounded, **BESIDE[name]))


class Cache:
    """Codes of two sequences, dense or in pages, with descales of heads or keys, beside q of 8 bits."""

    def __init__(self, dtype=E4M3FN, *, paged=False, per_key=False):
        sizes = (8, 16, 2, 64) if paged else (2, 64, 2, 64)
        self.k, self.v = (codes(*sizes, dtype=dtype) for _ in "kv")
        own = sizes[:3] if per_key else (2, 2)
        self.descales = {name: torch.rand(own) + 0.25 for name in NAMES[1:]}
        self.places = {"block_table": torch.tensor([[5, 0, 3, 7], [6, 2, 1, 4]], **INT)} if paged else {}
        self.q, self.q_descale = codes(2, 3, 4, 64, dtype=dtype), descale()

    @property
    def rounded(self):
        return exact(self.q, self.q_descale).to(BF16)


@QUIET
@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_a_cache(dtype, paged, per_key):
    cache = Cache(dtype, paged=paged, per_key=per_key)
    given = {**cache.places, **cache.descales, "cache_seqlens": torch.tensor([40, 7], **INT), "causal": True}
    found = flash_attn_with_kvcache(
        cache.q, cache.k, cache.v, q_descale=cache.q_descale, return_softmax_lse=True, **given
    )
    wanted = flash_attn_with_kvcache(cache.rounded, cache.k, cache.v, return_softmax_lse=True, **given)
    for one, other in zip(found, wanted, strict=True):
        alike(one, other)
    assert found[0].dtype == BF16


@QUIET
def test_new_keys_are_numbers_and_rotated():
    cache, again = Cache(), Cache()
    new = [torch.randn(2, 3, 2, 64).to(BF16) for _ in "kv"]
    again.k, again.v = cache.k.clone(), cache.v.clone()
    angles = [torch.rand(80, 16).to(BF16) for _ in "cs"]
    given = {"cache_seqlens": torch.tensor([40, 7], **INT), "causal": True, **cache.descales}
    found = flash_attn_with_kvcache(
        cache.q, cache.k, cache.v, *new, *angles, q_descale=cache.q_descale, **given
    )
    wanted = flash_attn_with_kvcache(cache.rounded, again.k, again.v, *new, *angles, **given)
    alike(found, wanted)
    assert torch.equal(cache.k.view(torch.uint8), again.k.view(torch.uint8))


@QUIET
@pytest.mark.parametrize("per_key", [False, True])
def test_packed_queries_over_pages(per_key):
    cache, ends = Cache(paged=True, per_key=per_key), torch.tensor([0, 1, 6], **INT)
    keys = torch.tensor([0, 40, 47], **INT)
    given = {**cache.places, **cache.descales, "causal": True}
    q, sequence = cache.q.flatten(0, 1), torch.tensor([0, 1, 1, 1, 1, 1])
    rounded = exact(q, cache.q_descale, of_rows=sequence).to(BF16)
    with torch.no_grad():
        found, wanted = (
            flash_attn_varlen_func(x, cache.k, cache.v, ends, keys, 5, 40, **more, **given)
            for x, more in ((q, {"q_descale": cache.q_descale}), (rounded, {}))
        )
    alike(found, wanted)


Q = "torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fnuz"
NO_Q = f"q: expected dtype {Q}, or without kernels torch.float32 or torch.float64, got {{}}; pass {{}}"
WAY_OUT = "(x.float() * descale).to(torch.bfloat16)"
SHAPE = "{}_descale: expected shape (2, 2), one for each head of a sequence, got {}"
OTHER = "{}: expected dtype torch.float8_e4m3fn like q, got {}"
ALONE = "{}_descale: expected only beside q of 8 bits, got one beside torch.float16"
WITHOUT = "call under torch.no_grad(), or pass detached tensors"
NO_GRADIENTS = f"q: expected no gradients of 8 bits, which have none: {WITHOUT}"
ONE = torch.ones(2, 2)
HALF = [torch.zeros(2, 5, heads, 64).half() for heads in (4, 2, 2)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"q_descale": torch.ones(1), "k_descale": torch.ones(2, 4), "v_descale": torch.ones(2, 33, 2)},
            [SHAPE.format("q", "(1,)"), SHAPE.format("k", "(2, 4)"), SHAPE.format("v", "(2, 33, 2)")],
        ),
        (
            {"q_descale": 0.5, "k_descale": ONE.half(), "v_descale": ONE.double()},
            [
                "q_descale: expected a torch.float32 tensor (2, 2), got float",
                "k_descale: expected dtype torch.float32, got torch.float16",
                "v_descale: expected dtype torch.float32, got torch.float64",
            ],
        ),
        (
            {"k": torch.zeros(2, 33, 2, 64).half(), "v": codes(2, 33, 2, 64, dtype=torch.float8_e4m3fnuz)},
            [OTHER.format("k", "torch.float16"), OTHER.format("v", "torch.float8_e4m3fnuz")],
        ),
        (
            {name: torch.zeros(2, 5, 2, 64).to(torch.float8_e5m2) for name in "qkv"},
            [NO_Q.format("torch.float8_e5m2", WAY_OUT)],
        ),
        (
            {name: torch.zeros(2, 5, 2, 64, dtype=torch.int8) for name in "qkv"},
            [NO_Q.format("torch.int8", WAY_OUT)],
        ),
        (
            {"q": HALF[0]},
            [
                *(f"{name}: expected dtype torch.float16 like q, got torch.float8_e4m3fn; pass {WAY_OUT}"
                  for name in "kv"),
                *(ALONE.format(name) for name in "qkv"),
            ],
        ),
        (
            dict(zip("qkv", HALF, strict=True)) | dict.fromkeys(NAMES, ONE),
            [ALONE.format(name) for name in "qkv"],
        ),
        (
            {"dropout_p": 0.25, "sink": torch.zeros(4, requires_grad=True), "q_descale": torch.ones(1)},
            [
                NO_GRADIENTS,
                SHAPE.format("q", "(1,)"),
                "dropout_p: expected 0.0 beside q of 8 bits, got 0.25",
            ],
        ),
    ],
)  # fmt: skip
def test_wrong_arguments(change, words):
    call = Call()
    for function in (flash_attn_func, attention):
        with pytest.raises(FlashAttnArgumentError) as caught:
            function(**{**dict(zip("qkv", call.tensors, strict=True)), **call.descales, **change})
        assert [*caught.value.problems] == words


def test_wrong_arguments_of_packed_sequences():
    call = Call(packed=True)
    call.tensors[0].requires_grad_()
    with pytest.raises(FlashAttnArgumentError) as caught:
        flash_attn_varlen_func(*call.tensors, **LENGTHS, dropout_p=0.5, q_descale=ONE, v_descale=ONE.half())
    assert [*caught.value.problems] == [
        NO_GRADIENTS,
        "q_descale: expected shape (3, 2), one for each head of a sequence, got (2, 2)",
        "v_descale: expected shape (3, 2), one for each head of a sequence, got (2, 2)",
        "v_descale: expected dtype torch.float32, got torch.float16",
        "dropout_p: expected 0.0 beside q of 8 bits, got 0.5",
    ]


@QUIET
@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_a_descale_is_refused(name):
    """Products of fp8 gave none, without a word. The same call without gradients comes first: it is known."""
    call = Call()
    given = {**call.descales, name: torch.ones(2, 2, requires_grad=True)}
    for function in (flash_attn_func, attention):
        with torch.no_grad():
            assert not function(*call.tensors, **given).requires_grad
        with pytest.raises(FlashAttnArgumentError) as caught:
            function(*call.tensors, **given)
        assert [*caught.value.problems] == [NO_GRADIENTS.replace("q:", f"{name}:")]


def test_the_gradient_of_a_bias_is_refused():
    bias = torch.zeros(20, 33, requires_grad=True)
    with pytest.raises(FlashAttnArgumentError, match="q: expected no gradients of 8 bits"):
        attention(*Call().tensors, bias)
    with pytest.raises(FlashAttnArgumentError, match=r"attn_mask: expected dtype torch.bool, torch.float16"):
        attention(*Call().tensors, bias.detach().to(E4M3FN))


def test_wrong_arguments_of_a_cache():
    cache = Cache()
    half = torch.zeros(2, 64, 2, 64).half()
    with pytest.raises(FlashAttnArgumentError) as caught:
        flash_attn_with_kvcache(
            cache.q, cache.k, half, half[:, :1], half[:, :1].to(E4M3FN), cache_seqlens=3,
            q_descale=torch.ones(4), k_descale=ONE,
        )  # fmt: skip
    beside = "expected dtype torch.bfloat16 beside q of 8 bits, got"
    assert [*caught.value.problems] == [
        OTHER.format("v_cache", "torch.float16"),
        SHAPE.format("q", "(4,)"),
        "v_descale: expected beside k_descale, got None",
        f"k: {beside} torch.float16",
        f"v: {beside} torch.float8_e4m3fn; pass {WAY_OUT}",
    ]
    with pytest.raises(FlashAttnArgumentError) as caught:
        flash_attn_with_kvcache(half[:, :3], cache.k, cache.v, q_descale=ONE)
    assert [*caught.value.problems] == [ALONE.format("q")]


def test_latent_attention_takes_no_queries_of_8_bits():
    q, cache = (torch.zeros(1, rows, 1, 576).to(E4M3FN) for rows in (1, 9))
    with pytest.raises(FlashAttnArgumentError, match=r"q: expected dtype torch.float16, torch.bfloat16, or"):
        mla_decode(q, cache)


def test_transforms_are_refused():
    call = Call()
    with pytest.raises(RuntimeError, match="attention with 8 bits has no derivative and no vmap\n  next:"):
        torch.func.vmap(lambda x: flash_attn_func(x, *call.tensors[1:]))(torch.stack([call.tensors[0]] * 2))


@QUIET
def test_the_entry_points_below():
    call, packed = Call(given=()), Call(packed=True)
    rules = (None, None, 0.0, 0.125, True, -1, -1, 0.0, False)
    alike(raw.fwd(*call.tensors, *rules)[0], raw.fwd(*call.rounded, *rules)[0])
    tensors = (None, *SHORT.values(), torch.tensor([3, 5, 0], **INT), None, None, None, 11, 14)
    found, wanted = (
        raw.varlen_fwd(*x, *tensors, 0.0, 0.125, False, True, -1, -1, 0.0, False, **more)[0]
        for x, more in ((packed.tensors, packed.descales), (packed.rounded, {}))
    )
    alike(found, wanted)
    q, k, v = call.tensors
    with pytest.raises(FlashAttnArgumentError, match="q, k, v: expected no 8 bits, which have no gradients"):
        raw.bwd(q, q, k, v, q, torch.zeros(2, 4, 20), *[None] * 4, 0.0, 0.125, True, -1, -1, 0.0, False)


@QUIET
@pytest.mark.parametrize("packed", [False, True])
def test_torch_compile(packed):
    call = Call(packed=packed)
    function, lengths = (flash_attn_varlen_func, LENGTHS) if packed else (flash_attn_func, {})
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    alike(compiled(*call.tensors, **lengths, **call.descales), function(*call.rounded, **lengths))


@QUIET
def test_torch_compile_of_a_cache():
    cache = Cache(paged=True, per_key=True)
    given = {**cache.places, **cache.descales}
    torch.compiler.reset()
    compiled = torch.compile(flash_attn_with_kvcache, fullgraph=True, backend="aot_eager")
    found = compiled(cache.q, cache.k, cache.v, q_descale=cache.q_descale, **given)
    alike(found, flash_attn_with_kvcache(cache.rounded, cache.k, cache.v, **given))


@pytest.mark.needs_kernels("fwd_fp8")
def test_torch_compile_of_products_of_fp8(kernels_on, monkeypatch):
    """One graph. Its kernel is checked when it runs, as in other calls."""
    call, seen = Call(head_dim=128), []
    kernels_on(archs_with("fwd_fp8")[0])
    monkeypatch.setattr(fp8, "FWD_FP8", lambda *_given: seen.append("launched"))
    monkeypatch.setattr(first_use, "fp8_failure", lambda *_given: seen.append("checked"))
    torch.compiler.reset()
    compiled = torch.compile(flash_attn_func, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        assert compiled(*call.tensors, **call.descales).dtype == BF16
    assert seen == ["checked", "launched"] * 2


@KERNELS
@pytest.mark.usefixtures("host_fwd")
def test_torch_compile_without_products_of_fp8(kernels_on):
    call = Call(head_dim=UNPADDED)
    kernels_on(archs_with("widen")[0])
    torch.compiler.reset()
    compiled = torch.compile(flash_attn_func, fullgraph=True, backend="aot_eager")
    alike(compiled(*call.tensors, **call.descales), flash_attn_func(*call.rounded))


@pytest.mark.needs_kernels("fwd_fp8")
def test_the_other_kernels_answer_if_products_of_fp8_fail_the_check(host_fwd, kernels_on, monkeypatch):
    call = Call(head_dim=128)
    kernels_on(archs_with("fwd_fp8")[0])
    monkeypatch.setattr(first_use, "fp8_failure", lambda *_given: "wrong")
    with pytest.warns(FlashAttnFallbackWarning, match="wrong"):
        alike(flash_attn_func(*call.tensors, **call.descales), flash_attn_func(*call.rounded))
    assert len(host_fwd) == 2


def quietly(function, *given, **more):
    with warnings.catch_warnings(action="ignore"):
        return function(*given, **more)


@KERNELS
@pytest.mark.parametrize("head_dim", [UNPADDED, 80, 5])
@pytest.mark.parametrize("packed", [False, True])
def test_kernels_are_given_numbers(host_fwd, kernels_on, monkeypatch, packed, head_dim):
    call, copied = Call(packed=packed, head_dim=head_dim), []
    function, lengths = (flash_attn_varlen_func, LENGTHS) if packed else (flash_attn_func, {})
    wanted = quietly(function, *call.rounded, **lengths)
    kernels_on(archs_with("widen")[0])
    operator = widening.WIDEN
    monkeypatch.setattr(widening, "WIDEN", lambda *given: (copied.append(given), operator(*given)))
    for _ in range(2):
        alike(function(*call.tensors, **lengths, **call.descales), wanted)
    assert len(copied) == 6  # each of three once, in halves
    assert all(one.data_ptr() == x.data_ptr() for (one, *_), x in zip(copied, call.tensors * 2, strict=True))
    assert all(given["q"].dtype == given["k"].dtype == given["v"].dtype == BF16 for given in host_fwd)
    for given in host_fwd if head_dim == UNPADDED else ():
        assert all(torch.equal(given[name], x) for name, x in zip("qkv", call.rounded, strict=True))


@KERNELS
@pytest.mark.parametrize(("head_dim", "width"), [(1, 1), (5, 3), (16, 16), (48, 32), (64, 32), (80, 48)])
def test_halves_of_rows_are_aligned(host_fwd, kernels_on, monkeypatch, head_dim, width):
    x, seen, operator = codes(2, 3, 2, head_dim), [], widening.WIDEN
    kernels_on(archs_with("widen")[0])
    monkeypatch.setattr(widening, "WIDEN", lambda *given: (seen.append(given), operator(*given)))
    alike(widening.widened_rows(x, None, BF16), x.to(BF16))
    assert [each.shape[-1] for each in (*seen[0][:2], *seen[0][-2:])] == [width] * 4


@KERNELS
@pytest.mark.needs_kernels("decode_8bit", "bf16")
def test_a_cache_keeps_its_codes(host_fwd, kernels_on):
    cache = Cache(paged=True)
    given = {**cache.places, **cache.descales, "num_splits": 1}
    wanted = quietly(flash_attn_with_kvcache, cache.rounded, cache.k, cache.v, **given)
    kernels_on(archs_with("decode_8bit", "bf16")[0])
    for _ in range(2):
        found = flash_attn_with_kvcache(cache.q, cache.k, cache.v, q_descale=cache.q_descale, **given)
        alike(found, wanted)
    assert all(call["k"] is cache.k and call["k_descale"] is cache.descales["k_descale"] for call in host_fwd)
    assert all(torch.equal(call["q"], cache.rounded) for call in host_fwd)


@KERNELS
def test_no_value_is_read_on_the_host(kernels_on, monkeypatch):
    """So that calls can be captured in a graph."""
    dense, packed, cache = Call(head_dim=UNPADDED), Call(packed=True), Cache(paged=True)
    kernels_on(archs_with("widen")[0])
    launches = []
    monkeypatch.setattr("flash_attn_rocm.launch.widening.WIDEN", lambda *given: launches.append("widen"))
    monkeypatch.setattr("flash_attn_rocm.launch.forward_pass.FWD", lambda *given: launches.append("fwd"))

    def read(_tensor):
        raise AssertionError

    for name in ("tolist", "item", "__int__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, read)
    flash_attn_func(*dense.tensors, **dense.descales)
    flash_attn_varlen_func(*packed.tensors, **LENGTHS, **packed.descales)
    flash_attn_with_kvcache(
        cache.q, cache.k, cache.v, q_descale=cache.q_descale, **cache.places, **cache.descales
    )
    assert [each for each in launches if each == "fwd"] == ["fwd"] * 3


@KERNELS
@pytest.mark.parametrize("head_dim", [520, 64])
def test_without_a_kernel_pytorch_copies(host_fwd, kernels_on, monkeypatch, head_dim):
    monkeypatch.setattr(widening, "WIDEN", None)
    kernels_on(archs_with("widen")[0] if head_dim > 512 else UNKNOWN)
    call = Call(head_dim=head_dim)
    found = quietly(flash_attn_func, *call.tensors, **call.descales)
    alike(found, quietly(flash_attn_func, *call.rounded))


@KERNELS
def test_a_kernel_that_failed_its_check(host_fwd, kernels_on, monkeypatch):
    call = Call(head_dim=UNPADDED)
    kernels_on(archs_with("widen")[0])
    monkeypatch.setattr(widening, "WIDEN", None)
    monkeypatch.setattr(first_use, "codes_failure", lambda *_: "widening differs")
    with pytest.warns(FlashAttnFallbackWarning, match="widening differs"):
        found = flash_attn_func(*call.tensors, **call.descales)
    alike(found, flash_attn_func(*call.rounded))
    set_strict(True)
    words = "^flash_attn_func: no kernel serves this call: widening differs"
    with pytest.raises(FlashAttnUnsupportedError, match=words):
        flash_attn_func(*call.tensors, **call.descales)


def test_strict_mode_without_kernels():
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError, match=r"^flash_attn_func: no kernel serves this call: the"):
        flash_attn_func(*Call().tensors)


def copied(what, elements):
    return f"{what} dequantised to bfloat16 first, {2 * elements} bytes; "


@KERNELS
@pytest.mark.needs_kernels("decode_8bit", "bf16")
def test_explain_says_what_is_copied(kernels_on):
    dense, packed, cache = Call(head_dim=UNPADDED), Call(packed=True), Cache(paged=True)
    kernels_on(archs_with("decode_8bit", "bf16")[0])
    for function, call, more in (
        (flash_attn_func, dense, {}),
        (attention, dense, {"chunk": 7}),
        (flash_attn_varlen_func, packed, LENGTHS),
    ):
        found = explain(function, *call.tensors, **call.descales, **more)
        assert found
        assert found.reason.startswith(copied("q, k and v", sum(x.numel() for x in call.tensors)))
        assert (found.backward, found.backward_reason) == ("pytorch", "8 bits have no gradients")
    found = explain(
        flash_attn_with_kvcache, cache.q, cache.k, cache.v, q_descale=cache.q_descale, **cache.places,
        **cache.descales,
    )  # fmt: skip
    assert found.reason.startswith(copied("q", cache.q.numel()) + "decode over a cache of 8 bits")
    many = codes(2, 20, 4, 64)
    found = explain(flash_attn_with_kvcache, many, cache.k, cache.v, **cache.places, **cache.descales)
    words = copied("q", many.numel()) + r"8 bits widened to bfloat16 first, \d+ bytes; "
    assert re.match(words, found.reason)
    assert explain(*dense.tensors).reason.startswith(copied("q, k and v", 2 * (80 + 66 + 66) * UNPADDED))


def test_explain_without_kernels(kernels_on):
    found = explain(*Call().tensors)
    assert not found
    assert found.reason == "the tensors are on cpu, and kernels run on AMD GPUs"
    with pytest.raises(FlashAttnArgumentError, match="q_descale: expected shape"):
        explain(*Call().tensors, q_descale=torch.ones(1))
    kernels_on(ARCH)
    assert explain(*Call().rounded).backward != "pytorch"

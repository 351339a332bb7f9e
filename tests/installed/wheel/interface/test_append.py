"""The operator for appending to a cache by kernel: its errors arrive in words, and it is well-formed."""

import pytest
import torch
from archs import ARCH
from flash_attn_rocm import flash_attn_with_kvcache
from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.launch import append
from torch._C import DispatchKey, DispatchKeySet

APPEND = torch.ops.flash_attn_rocm.append.default
ARGUMENTS = tuple(argument.name for argument in APPEND._schema.arguments)
INT32 = {"dtype": torch.int32}


def call(**given):
    """The GPU implementation on host memory. Without a HIP runtime it ends in an error."""
    given = {"interleaved": False, "advances": True} | given
    APPEND.redispatch(DispatchKeySet(DispatchKey.CUDA), *(given.get(name) for name in ARGUMENTS))


@pytest.fixture
def tensors():
    q = torch.randn(2, 3, 4, 64).half()
    k, v = (torch.randn(2, 3, 2, 64).half() for _ in range(2))
    caches = {name: torch.zeros(2, 32, 2, 64).half() for name in ("k_cache", "v_cache")}
    return {"q": q, "k": k, "v": v, **caches, "cache_seqlens": torch.tensor([4, 0], **INT32)}


@pytest.fixture
def rotary(tensors):
    angles = {name: torch.randn(40, 16).half() for name in ("cos", "sin")}
    return {**tensors, **angles, "q_out": torch.empty_like(tensors["q"])}


@pytest.fixture
def paged(tensors):
    return {**tensors, "block_table": torch.tensor([[0, 1], [1, 0]], **INT32)}


@pytest.fixture
def coded(tensors):
    """Over a cache of 8 bits, with descales of heads."""
    caches = {name: tensors[name].to(torch.int8) for name in ("k_cache", "v_cache")}
    return {**tensors, **caches, **{name: torch.rand(2, 2) for name in ("k_descale", "v_descale")}}


@pytest.fixture
def coded_by_key(coded):
    return {**coded, **{name: torch.rand(2, 32, 2) for name in ("k_descale", "v_descale")}}


EVERY = ["tensors", "rotary", "paged", "coded", "coded_by_key"]


@pytest.mark.parametrize("arguments", EVERY)
def test_right_arguments_get_as_far_as_the_missing_runtime(request, arguments):
    with pytest.raises(RuntimeError, match="no HIP runtime in this process"):
        call(**request.getfixturevalue(arguments))


@pytest.mark.parametrize("name", ["k", "q"])
def test_nothing_to_do_needs_no_runtime(tensors, name):
    none = {each: tensors[each][:, :0] for each in ("k", "v")}
    call(**{**tensors, **none, name: tensors[name][:, :0]})


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("q", lambda t: t.float(), "q: expected dtype fp16 or bf16, got fp32"),
        ("q", lambda t: t[:1], "q: expected shape (2, 3, 4, 64), got shape (1, 3, 4, 64)"),
        ("k", lambda t: t[0], "k: expected 4 dimensions, got shape (3, 2, 64)"),
        ("v", lambda t: t.bfloat16(), "v: expected dtype fp16, got bf16"),
        ("v", lambda t: t[:, :1], "v: expected shape (2, 3, 2, 64), got shape (2, 1, 2, 64)"),
        ("k_cache", lambda t: t[:1], "k_cache: expected shape (2, 32, 2, 64), got shape (1, 32, 2, 64)"),
        ("v_cache", lambda t: t[:, 1:], "v_cache: expected shape (2, 32, 2, 64), got shape (2, 31, 2, 64)"),
        ("k_cache", lambda t: t.mT.contiguous().mT, "k_cache: expected a contiguous last dimension"),
        (
            "k_cache",
            lambda t: t[:, :1].expand(2, 32, 2, 64),
            "k_cache: expected memory for each element, got a stride of 0",
        ),
        ("cache_seqlens", lambda t: t.long(), "cache_seqlens: expected dtype int32, got int64"),
        ("cache_seqlens", lambda t: t[:1], "cache_seqlens: expected shape (2), got shape (1)"),
        ("cos", lambda t: t[:, :8], "sin: expected shape (40, 8), got shape (40, 16)"),
        ("cos", lambda _: None, "cos, sin, q_out: expected all or none"),
        ("q_out", lambda t: t[:, :1], "q_out: expected shape (2, 3, 4, 64), got shape (2, 1, 4, 64)"),
    ],
)
def test_wrong_arguments(rotary, name, change, words):
    with pytest.raises(RuntimeError, match="flash_attn_rocm::append cannot use its arguments:") as caught:
        call(**{**rotary, name: change(rotary[name])})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"cos": torch.ones(9, 33).half(), "sin": torch.ones(9, 33).half()},
            "cos: expected a rotary_dim / 2",
        ),
        ({"cos": torch.ones(0, 16).half(), "sin": torch.ones(0, 16).half()}, "cos: expected at least 1 row"),
        ({"cache_batch_idx": torch.zeros(3, **INT32)}, "cache_batch_idx: expected shape (2), got shape (3)"),
        (
            {"cache_batch_idx": torch.zeros(2, **INT32), "block_table": torch.zeros(2, 1, **INT32)},
            "cache_batch_idx: expected none together with block_table",
        ),
        ({"block_table": torch.zeros(3, 1, **INT32)}, "block_table: expected shape (2, 1), got shape (3, 1)"),
        (
            {
                "block_table": torch.zeros(2, 1, **INT32),
                "k_cache": torch.zeros(4, 24, 2, 64).half(),
                "v_cache": torch.zeros(4, 24, 2, 64).half(),
            },
            "k_cache: expected pages of a multiple of 16 rows, got 24",
        ),
    ],
)
def test_arguments_that_do_not_fit_together(rotary, change, words):
    with pytest.raises(RuntimeError, match="flash_attn_rocm::append cannot use its arguments:") as caught:
        call(**{**rotary, **change})
    assert words in str(caught.value)


def test_a_head_dim_that_no_kernel_has():
    wide = {name: torch.zeros(1, 1, 1, 520).half() for name in ("q", "k", "v", "k_cache", "v_cache")}
    with pytest.raises(RuntimeError, match="k: expected a headdim from 1 to 512, got 520"):
        call(**wide, cache_seqlens=torch.zeros(1, **INT32))


@pytest.fixture
def host_append():
    """``append`` for host memory, for tests only. Returns the names of its arguments."""
    calls = []

    def append(*arguments):
        given = dict(zip(ARGUMENTS, arguments, strict=True))
        calls.append({name for name, value in given.items() if value is not None})
        rotated, _ = torch.ops.flash_attn_rocm.pytorch_append(
            *arguments[:8], None, *arguments[8:12], *arguments[13:]
        )
        if given["q_out"] is not None:
            given["q_out"].copy_(rotated)

    library = torch.library.Library("flash_attn_rocm", "IMPL")
    library.impl("append", append, "CPU")
    yield calls
    library._destroy()


@pytest.mark.parametrize("arguments", EVERY)
def test_opcheck(request, host_append, arguments):
    """Schema, fake kernel and tracing."""
    given = {"interleaved": False, "advances": True} | request.getfixturevalue(arguments)
    found = torch.library.opcheck(APPEND, tuple(given.get(name) for name in ARGUMENTS))
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4
    assert host_append


def appended(given, *, by_kernel, options):
    caches = given["k_cache"].clone(), given["v_cache"].clone()
    inputs = Inputs(
        given["q"], *caches, seqused_k=given["cache_seqlens"], block_table=given.get("block_table"),
        k_descale=given.get("k_descale"), v_descale=given.get("v_descale"),
    )  # fmt: skip
    new = append.New(given["k"], given["v"], given.get("cos"), given.get("sin"), interleaved=True)
    after = append.append(inputs, options, new, by_kernel=by_kernel)
    return after.q, *caches, after.seqused_k


@pytest.mark.parametrize("arguments", EVERY)
@pytest.mark.parametrize("options", [Options(1.0), Options(1.0, window_right=0), Options(1.0, window_left=3)])
def test_the_kernels_way_gives_what_the_other_gives(request, host_append, arguments, options):
    given = request.getfixturevalue(arguments)
    # Rows unreadable for the kernel, and non-contiguous integers.
    given["k"] = given["k"].mT.contiguous().mT
    given["cache_seqlens"] = given["cache_seqlens"].repeat_interleave(2)[::2]
    one, other = (appended(given, by_kernel=each, options=options) for each in (True, False))
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))
    assert len(host_append) == 1


def test_descales_that_share_memory_can_be_compiled(coded, host_append, kernels_on):
    """vLLM expands one number. torch.compile refuses expanded arguments that an operator writes to."""
    kernels_on(ARCH)

    def after(given, descale):
        caches = [given[name].clone() for name in ("k_cache", "v_cache")]
        inputs = Inputs(
            given["q"], *caches, seqused_k=given["cache_seqlens"], k_descale=descale, v_descale=descale
        )
        new = append.New(given["k"], given["v"], None, None, interleaved=True)
        return append.append(inputs, Options(1.0), new, by_kernel=True).seqused_k, *caches

    descale = torch.full((1, 1), 0.02).expand(2, 2)
    found = torch.compile(after, backend="aot_eager", fullgraph=True)(coded, descale)
    assert all(torch.equal(one, other) for one, other in zip(found, after(coded, descale), strict=True))
    assert host_append


def test_a_cache_without_rows_is_appended_to_by_pytorch(tensors, host_append):
    tensors["v_cache"] = tensors["v_cache"].mT.contiguous().mT
    inputs = Inputs(tensors["q"], tensors["k_cache"], tensors["v_cache"], seqused_k=tensors["cache_seqlens"])
    new = append.New(tensors["k"], tensors["v"], None, None, interleaved=True)
    append.append(inputs, Options(1.0), new, by_kernel=True)
    assert not host_append
    assert torch.equal(tensors["v_cache"][1, :3], tensors["v"][1])


def test_on_host_memory_no_kernel_appends(tensors, host_append):
    names = ("q", "k_cache", "v_cache", "k", "v")
    with pytest.warns(match="PyTorch implementation"):
        flash_attn_with_kvcache(*(tensors[name] for name in names), cache_seqlens=tensors["cache_seqlens"])
    assert not host_append

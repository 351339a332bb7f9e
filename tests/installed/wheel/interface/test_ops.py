"""The operators below the Python functions: their errors arrive in words, and they are well-formed."""

import threading
from functools import partial

import pytest
import torch
from archs import ARCH
from conftest import FWD_ARGUMENTS
from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.launch import backward_pass, forward_pass, makers
from flash_attn_rocm.library.plans import Plan
from flash_attn_rocm.reference.operators import arguments_of
from torch._C import DispatchKey, DispatchKeySet

NO_RUNTIME = "no HIP runtime in this process"
NUMBERS = {
    "max_seqlen_q": 5, "max_seqlen_k": 7, "softmax_scale": 0.125, "window_left": -1, "window_right": -1,
    "softcap": 0.0, "dropout_p": 0.0, "path": "",
}  # fmt: skip


def in_order(given):
    """The operator's arguments in order. Missing tensors are None."""
    return [given.get(name, NUMBERS.get(name)) for name in FWD_ARGUMENTS]


def call(**given):
    """The GPU implementation of the operator on host memory. Without a HIP runtime it ends in an error."""
    fwd = torch.ops.flash_attn_rocm.fwd.default
    fwd.redispatch(DispatchKeySet(DispatchKey.CUDA), *in_order(given))


@pytest.fixture
def tensors(qkv):
    q, k, v = qkv
    return {"q": q, "k": k, "v": v, "out": torch.empty_like(q), "lse": torch.empty(2, 4, 5)}


def test_right_arguments_get_as_far_as_the_missing_runtime(tensors):
    with pytest.raises(RuntimeError, match=NO_RUNTIME) as caught:
        call(**tensors)
    assert "next: install a ROCm build of PyTorch" in str(caught.value)


def test_nothing_to_do_needs_no_runtime(tensors):
    empty = {name: tensors[name][:, :0] for name in ("q", "out")}
    call(**{**tensors, **empty, "lse": tensors["lse"][:, :, :0]})


def test_device_arch_without_a_runtime():
    with pytest.raises(RuntimeError, match=NO_RUNTIME):
        torch.ops.flash_attn_rocm.device_arch(0)


CODE = torch.zeros(64, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (CODE, NO_RUNTIME),
        (CODE.int(), "replace: code: expected a contiguous tensor of uint8 on the CPU"),
        (CODE[::2], "replace: code: expected a contiguous tensor of uint8 on the CPU"),
    ],
)
def test_another_row_of_a_kernel_needs_code_and_a_runtime(code, words):
    with pytest.raises(RuntimeError, match=words):
        torch.ops.flash_attn_rocm.replace(0, "fa_fwd_fp16_d64", "aaaaaaaa", code, 0, 128, 256, "")


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("k", lambda t: t[0], "k: expected 4 dimensions, got shape (7, 2, 64)"),
        (
            "v",
            lambda t: t.bfloat16(),
            "v: expected dtype fp16 like q, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 or int8, got bf16",
        ),
        ("q", lambda t: t.double(), "q: expected dtype fp16 or bf16, got another dtype"),
        ("lse", lambda t: t.half(), "lse: expected dtype fp32, got fp16"),
        ("out", lambda t: t[:, :4], "out: expected shape (2, 5, 4, 64), got shape (2, 4, 4, 64)"),
        ("k", lambda t: t[:1], "k: expected shape (2, 7, 2, 64), got shape (1, 7, 2, 64)"),
        ("lse", lambda t: t.new_empty(2, 5, 4), "lse: expected shape (2, 4, 5), got shape (2, 5, 4)"),
        ("lse", lambda t: t.new_empty(2, 5, 4).mT, "lse: expected a contiguous tensor"),
        ("v", lambda t: t.mT.contiguous().mT, "v: expected a contiguous last dimension"),
    ],
)
def test_wrong_arguments(tensors, name, change, words):
    with pytest.raises(RuntimeError, match="flash_attn_rocm::fwd cannot use its arguments:") as caught:
        call(**{**tensors, name: change(tensors[name])})
    assert words in str(caught.value)


def test_too_many_dimensions(tensors):
    with pytest.raises(RuntimeError, match="q: expected at most 5 dimensions, got 6"):
        call(**{**tensors, "q": tensors["q"][None, None]})


@pytest.mark.parametrize("name", ["q", "out", "alibi_slopes", "partial_lse"])
def test_too_few_dimensions(tensors, name):
    words = f"{name}: expected " + ("4 dimensions" if name == "q" else "at least 1 dimension")
    with pytest.raises(RuntimeError, match=words):
        call(**{**tensors, name: torch.tensor(1.0)})


ANY_ROWS = {
    "not aligned": lambda t: t.new_empty(*t.shape[:3], 65)[..., :64],
    "odd address": lambda t: t.new_empty(t.numel() + 1)[1:].view(t.shape),
    "far apart": lambda t: t.new_empty((t.shape[1] << 24) + 64).as_strided(t.shape, (0, 1 << 24, 0, 1)),
}


@pytest.mark.parametrize("rows", ANY_ROWS)
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_any_rows_get_as_far_as_the_missing_runtime(tensors, name, rows):
    with pytest.raises(RuntimeError, match=NO_RUNTIME):
        call(**{**tensors, name: ANY_ROWS[rows](tensors[name])})


def test_heads_that_do_not_divide(tensors):
    odd = torch.empty(2, 7, 3, 64).half()
    with pytest.raises(RuntimeError, match=r"q: expected a positive number of heads .* k's 3, got 4"):
        call(**{**tensors, "k": odd, "v": odd})


def test_errors_in_many_threads_keep_their_own_words(tensors):
    seen = {}

    def provoke(index):
        for _ in range(50):
            try:
                call(**{**tensors, "out": tensors["out"][:, :index]})
            except RuntimeError as error:
                seen.setdefault(index, set()).add(str(error))

    threads = [threading.Thread(target=provoke, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {index: len(texts) for index, texts in seen.items()} == {0: 1, 1: 1, 2: 1, 3: 1}
    assert all(f"got shape (2, {index}, 4, 64)" in next(iter(texts)) for index, texts in seen.items())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("dropout_p", 1.0, "dropout_p: expected 0 <= dropout_p < 1, got 1.0"),
        ("dropout_p", 0.5, "rng_state: expected together with dropout_p > 0"),
        ("rng_state", torch.zeros(2).long(), "rng_state: expected none without dropout_p > 0"),
        ("seqused_k", torch.zeros(3).int(), "seqused_k: expected shape (2), got shape (3)"),
        ("cache_batch_idx", torch.zeros(2).long(), "cache_batch_idx: expected dtype int32, got int64"),
        ("partial_lse", torch.zeros(2, 2, 4, 5), "partial_out, partial_lse: expected both or none"),
        ("softcap", -1.0, "softcap: expected 0 (none) or a positive number, got -1.0"),
    ],
)
def test_optional_arguments_arrive_under_their_names(tensors, name, value, words):
    with pytest.raises(RuntimeError, match="flash_attn_rocm::fwd cannot use its arguments:") as caught:
        call(**{**tensors, name: value})
    assert words in str(caught.value)


def test_a_cache_may_have_another_batch_than_q(tensors):
    cache = {name: tensors[name][:1] for name in ("k", "v")}
    with pytest.raises(RuntimeError, match=NO_RUNTIME):
        call(**{**tensors, **cache, "cache_batch_idx": torch.zeros(2).int()})


OPTIONS = Options(0.125, 5, 0, 0.0, 0.25, 5, 7, 0)


def integers(*values):
    return torch.tensor(values, dtype=torch.int32)


def dense(qkv):
    return Inputs(*qkv, torch.rand(4))


def with_sink(qkv):
    return Inputs(*qkv, sink=torch.rand(4))


def masked(qkv):
    return Inputs(*qkv, attn_mask=torch.rand(2, 1, 5, 7) < 0.5)


def packed(qkv):
    q, k, v = (x.flatten(0, 1) for x in qkv)
    return Inputs(q, k, v, None, integers(0, 5, 10), integers(0, 7, 14))


def paged(qkv):
    return Inputs(*qkv, seqused_k=integers(7, 3), block_table=integers([1], [0]))


@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("inputs", [dense, with_sink, packed, paged])
@pytest.mark.parametrize("head_dim", [64, 40])
def test_opcheck_of_the_kernels_operator(qkv, host_fwd, inputs, head_dim, chunk):
    """``forward`` plans, copies and allocates. torch.compile sees the kernels through it."""
    q, k, v, *rest = inputs(qkv)
    tensors = (*(x[..., :head_dim] for x in (q, k, v)), *rest)
    options = OPTIONS._replace(dropout_p=0.0, chunk=chunk)
    arguments = (*tensors, *options, None, ARCH, 304)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.forward.default, arguments)
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4
    assert host_fwd


@pytest.mark.parametrize("inputs", [dense, with_sink, masked, packed, paged])
@pytest.mark.parametrize("want_probabilities", [False, True])
def test_opcheck_of_the_implementation_in_pytorch(qkv, inputs, want_probabilities):
    arguments = (*inputs(qkv), *OPTIONS, integers(1, 2).long(), want_probabilities)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.pytorch_forward.default, arguments)
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4


@pytest.mark.parametrize("inputs", [dense, with_sink, masked, packed])
def test_opcheck_of_the_gradients(qkv, inputs):
    given = inputs(qkv)
    forward, backward = (
        getattr(torch.ops.flash_attn_rocm, f"pytorch_{name}").default for name in ("forward", "backward")
    )
    state = integers(1, 2).long()
    out, lse, _ = forward(*given, *OPTIONS, state, False)
    found = torch.library.opcheck(backward, (out, out, lse, *given, *OPTIONS, state, 2, False))
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4


@pytest.mark.parametrize("angles", [(None, None), (torch.ones(9, 8).half(), torch.ones(9, 8).half())])
def test_opcheck_of_appending(qkv, angles):
    q, k, v = qkv
    new = (k[:, :2].clone(), v[:, :2].clone())
    places = (integers(1, 4), integers(0, 1), None, integers(1, 0))
    arguments = (q, k, v, *new, *angles, *places, None, None, True, True)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.pytorch_append.default, arguments)
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4


def maker(name, given):
    """The GPU implementation of an operator that makes the memory of its results."""
    operator = getattr(torch.ops.flash_attn_rocm, name).default
    arguments = (given.get(each, NUMBERS.get(each)) for each in arguments_of(operator))
    return operator.redispatch(DispatchKeySet(DispatchKey.CUDA), *arguments)


def for_gradients(tensors):
    return {**tensors, "dout": tensors["out"].clone()}


@pytest.mark.parametrize("name", ["attend", "gradients"])
@pytest.mark.parametrize("path", ["", "separate", "fused"])
def test_made_results_are_right_as_far_as_the_missing_runtime(tensors, name, path):
    given = for_gradients(tensors)
    with pytest.raises(RuntimeError, match=NO_RUNTIME):
        maker(name, {**given, "splits": 1} | ({"path": path} if name == "gradients" else {}))


@pytest.mark.parametrize("parts", [1, 3])
def test_results_without_elements_are_made_without_a_runtime(tensors, parts):
    q = tensors["q"][:, :0]
    out, lse = maker("attend", {**tensors, "q": q, "splits": parts})
    assert (out.shape, out.dtype, lse.shape, lse.dtype) == (q.shape, q.dtype, (2, 4, 0), torch.float32)


def test_gradients_without_elements_are_made_without_a_runtime(tensors):
    q, k, v = (tensors[name][:0] for name in ("q", "k", "v"))
    given = {"q": q, "k": k, "v": v, "out": q, "dout": q, "lse": tensors["lse"][:0]}
    for path in ("separate", "fused"):
        found = maker("gradients", {**given, "path": path})
        assert [x.shape for x in found] == [x.shape for x in (q, k, v)]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("q", lambda t: t.double(), "q: expected dtype fp16 or bf16, got another dtype"),
        ("q", lambda t: t[0], "q: expected 4 dimensions, got shape (5, 4, 64)"),
        ("q", lambda t: t[0, 0, 0], "q: expected 4 dimensions, got shape (64)"),
        ("q", lambda t: t[None], "q: expected 4 dimensions, got shape (1, 2, 5, 4, 64)"),
        ("v", lambda t: t[0, 0, 0, 0], "v: expected 4 dimensions, got shape ()"),
        ("k", lambda t: t[:1], "k: expected shape (2, 7, 2, 64), got shape (1, 7, 2, 64)"),
        ("cu_seqlens_q", lambda _: torch.zeros(0).int(), "cu_seqlens_q"),
    ],
)
@pytest.mark.parametrize("operator", ["attend", "gradients"])
def test_wrong_arguments_of_makers(tensors, operator, name, change, words):
    given = for_gradients(tensors)
    with pytest.raises(RuntimeError) as caught:
        maker(operator, {**given, name: change(given.get(name)), "splits": 2})
    assert words in str(caught.value)


def endless(tensor):
    """More elements than any memory has."""
    return tensor[:1, :1, :1].expand(1 << 20, 1 << 20, *tensor.shape[2:])


def test_without_memory_the_error_is_pytorchs(tensors, host_fwd, host_bwd):
    inputs = Inputs(endless(tensors["q"]), tensors["k"], tensors["v"])
    results = {"out": inputs.q, "dout": inputs.q, "lse": tensors["lse"]}
    given = {**inputs._asdict(), **results, "splits": 1}
    for name in ("attend", "gradients"):
        with pytest.raises(RuntimeError, match=makers.NO_MEMORY):
            maker(name, given)

    def of_gpu(name):
        return getattr(torch.ops.flash_attn_rocm, name).default.redispatch

    with pytest.MonkeyPatch.context() as patch:
        gpu = DispatchKeySet(DispatchKey.CUDA)
        patch.setattr(forward_pass, "ATTEND", partial(of_gpu("attend"), gpu))
        patch.setattr(backward_pass, "GRADIENTS", partial(of_gpu("gradients"), gpu))
        options = OPTIONS._replace(dropout_p=0.0)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            forward_pass.launch(inputs, options, None, Plan("matrix", 1, ""))
        rest = (inputs.q, inputs.q, tensors["lse"], None, None, None, None)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            backward_pass.made((*inputs[:3], *rest), options, "separate")
    assert not host_fwd
    assert not host_bwd


@pytest.mark.parametrize("inputs", [dense, with_sink, packed, paged])
def test_opcheck_of_attend(qkv, host_fwd, inputs):
    numbers = (*OPTIONS._replace(dropout_p=0.0)[:7], "", 1)
    arguments = (*inputs(qkv), None, *numbers)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.attend.default, arguments)
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4
    assert host_fwd


@pytest.mark.parametrize("inputs", [dense, packed])
def test_opcheck_of_gradients(qkv, host_bwd, inputs):
    given = inputs(qkv)
    out, lse = torch.zeros(given.out_shape).half(), torch.zeros(given.lse_shape)
    numbers = (*OPTIONS._replace(dropout_p=0.0)[:7], "separate")
    arguments = (*given[:3], out, out.clone(), lse, *given[3:6], None, *numbers)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.gradients.default, arguments)
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4
    assert host_bwd


def test_opcheck_of_appending_codes(qkv):
    q, k, v = qkv
    caches, descales = [torch.zeros(2, 16, 2, 64, dtype=torch.int8) for _ in "kv"], torch.rand(2, 2, 16, 2)
    arguments = (q, *caches, k, v, None, None, integers(1, 4), None, None, None, *descales, True, True)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.pytorch_append.default, arguments)
    assert set(found.values()) == {"SUCCESS"}


def test_opcheck(tensors, host_fwd):
    """Schema, fake kernel and tracing."""
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.fwd.default, tuple(in_order(tensors)))
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4
    assert host_fwd

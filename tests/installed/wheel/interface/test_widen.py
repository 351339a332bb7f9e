"""The operators that widen caches of 8 bits, and q, k and v: errors in words, and well-formed."""

import pytest
import torch
from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.launch import widening
from flash_attn_rocm.reference import codes
from torch._C import DispatchKey, DispatchKeySet

WIDEN = torch.ops.flash_attn_rocm.widen.default
ARGUMENTS = tuple(argument.name for argument in WIDEN._schema.arguments)
INT32 = {"dtype": torch.int32}


def call(**given):
    """The GPU implementation on host memory. Without a HIP runtime it ends in an error."""
    WIDEN.redispatch(DispatchKeySet(DispatchKey.CUDA), *(given.get(name) for name in ARGUMENTS))


@pytest.fixture
def tensors():
    caches = {name: torch.ones(2, 32, 2, 64).to(torch.float8_e4m3fn) for name in ("k_cache", "v_cache")}
    return {**caches, **{name: torch.zeros(2, 32, 2, 64).half() for name in ("k_out", "v_out")}}


@pytest.fixture
def paged(tensors):
    caches = {name: tensors[name].view(4, 16, 2, 64) for name in ("k_cache", "v_cache")}
    descales = {name: torch.rand(4, 16, 2) for name in ("k_descale", "v_descale")}
    used = torch.tensor([3, 32], **INT32)
    table = torch.tensor([[0, 1], [3, 2]], **INT32)
    return {**tensors, **caches, **descales, "seqused_k": used, "block_table": table}


@pytest.mark.parametrize("arguments", ["tensors", "paged"])
def test_right_arguments_get_as_far_as_the_missing_runtime(request, arguments):
    with pytest.raises(RuntimeError, match="no HIP runtime in this process"):
        call(**request.getfixturevalue(arguments))


def test_nothing_to_do_needs_no_runtime(tensors):
    call(**{**tensors, **{name: tensors[name][:, :0] for name in ("k_out", "v_out")}})


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("k_cache", lambda t: t.half(), "k_cache: expected dtype float8_e4m3fn, float8_e4m3fnuz,"),
        ("v_cache", lambda t: t.view(torch.int8), "v_cache: expected dtype float8_e4m3fn like k_cache, got"),
        ("k_out", lambda t: t.float(), "k_out: expected dtype fp16 or bf16, got fp32"),
        ("v_out", lambda t: t[:, :1], "v_out: expected shape (2, 32, 2, 64), got shape (2, 1, 2, 64)"),
        ("k_descale", lambda _: None, "k_descale, v_descale: expected both or none"),
        ("seqused_k", lambda t: t.long(), "seqused_k: expected dtype int32, got int64"),
    ],
)
def test_wrong_arguments(paged, name, change, words):
    with pytest.raises(RuntimeError, match="flash_attn_rocm::widen cannot use its arguments:") as caught:
        call(**{**paged, name: change(paged[name])})
    assert words in str(caught.value)


@pytest.fixture
def host_widen():
    """``widen`` for host memory, for tests only."""

    def widen(k_cache, v_cache, k_descale, v_descale, used, table, _places, k_out, v_out):
        for cache, descale, out in ((k_cache, k_descale, k_out), (v_cache, v_descale, v_out)):
            numbers = codes.dequantised(cache, None if descale is None else descale[..., None], out.dtype)
            numbers = numbers if table is None else numbers[table.long()].flatten(1, 2)
            rows = torch.arange(out.shape[1])
            inside = torch.ones(out.shape[:2], dtype=torch.bool) if used is None else rows < used[:, None]
            out.copy_(torch.where(inside[..., None, None], numbers, out))

    library = torch.library.Library("flash_attn_rocm", "IMPL")
    library.impl("widen", widen, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("host_widen")
@pytest.mark.parametrize("arguments", ["tensors", "paged"])
def test_opcheck(request, arguments):
    """Schema, fake kernel and tracing. It multiplies copies of arguments, which PyTorch cannot do in fp8."""
    given = request.getfixturevalue(arguments)
    given |= {name: given[name].view(torch.int8) for name in ("k_cache", "v_cache")}
    found = torch.library.opcheck(WIDEN, tuple(given.get(name) for name in ARGUMENTS))
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4


@pytest.mark.usefixtures("host_widen")
def test_a_call_over_copies(paged):
    q = torch.randn(2, 20, 4, 64).half()
    inputs = Inputs(
        q, paged["k_cache"], paged["v_cache"], seqused_k=paged["seqused_k"], block_table=paged["block_table"],
        k_descale=paged["k_descale"], v_descale=paged["v_descale"],
    )  # fmt: skip
    found = widening.widened(inputs, Options(1.0, max_seqlen_q=20, max_seqlen_k=32))
    wanted = codes.dequantised(paged["k_cache"], paged["k_descale"][..., None], torch.float16)
    assert found.k.shape == (2, 32, 2, 64)
    assert torch.equal(found.k[1, :16], wanted[3])
    assert (found.block_table, found.k_descale) == (None, None)


@pytest.mark.parametrize("packed", [False, True])
def test_opcheck_of_rows(packed):
    """In int8, as above. The copy is contiguous."""
    sizes, batch = ((9, 4, 64), 3) if packed else ((2, 9, 4, 64), 2)
    rows = torch.randint(-128, 128, sizes, dtype=torch.int8).transpose(-1, -2).contiguous().transpose(-1, -2)
    ends = torch.tensor([0, 4, 4, 8], **INT32) if packed else None
    given = (rows, torch.rand(batch, 2), ends, "", 0)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.dequantise.default, given)
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.usefixtures("host_widen")
def test_rows_of_any_strides():
    rows = torch.randint(-128, 128, (2, 64, 4, 9), dtype=torch.int8).transpose(1, 3)
    found = widening.widened_rows(rows, None, torch.bfloat16)
    assert torch.equal(found, rows.to(torch.bfloat16))

"""Below the public functions: the compiled module's name, operators, and classes with ``apply``."""

import inspect

import flash_attn
import flash_attn_2_cuda
import pytest
import torch
from flash_attn import flash_attn_interface as interface
from flash_attn.layers import rotary
from flash_attn_rocm import raw

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
OPERATORS = (
    "_flash_attn_forward", "_flash_attn_varlen_forward", "_flash_attn_backward",
    "_flash_attn_varlen_backward",
)  # fmt: skip
RULES = (0.2, True, 5, 0, 0.0)  # softmax_scale, causal, the window's sides, softcap


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return [torch.randn(2, 6, heads, 16, dtype=torch.float16) for heads in (4, 2, 2)]


def packed(tensors):
    cut = torch.tensor([0, 6, 12], dtype=torch.int32)
    return [x.flatten(0, 1) for x in tensors], (cut, cut, 6, 6)


def test_the_compiled_module_has_the_raw_functions():
    for name in ("fwd", "varlen_fwd", "bwd", "varlen_bwd", "fwd_kvcache"):
        assert getattr(flash_attn_2_cuda, name) is getattr(raw, name)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_have_the_arguments_of_the_functions(name):
    function, operator = getattr(interface, name), getattr(torch.ops.flash_attn, name).default
    wanted = inspect.signature(function).parameters
    schema = operator._schema.arguments
    assert [each.name for each in schema] == list(wanted)
    defaults = [each.default_value if each.has_default_value() else inspect._empty for each in schema]
    assert defaults == [each.default for each in wanted.values()]


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize("scores", [False, True])
def test_dense_operators(qkv, dropout_p, scores):
    arguments = (*qkv, dropout_p, *RULES, None, scores)
    torch.manual_seed(3)
    found = torch.ops.flash_attn._flash_attn_forward(*arguments)
    torch.manual_seed(3)
    wanted = interface._flash_attn_forward(*arguments)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    out, lse, _, state = found
    places, others = ([torch.empty_like(x) for x in qkv] for _ in range(2))
    rest = (dropout_p, *RULES, None, False, state)
    sums = torch.ops.flash_attn._flash_attn_backward(out, *qkv, out, lse, *places, *rest)
    assert torch.equal(sums, interface._flash_attn_backward(out, *qkv, out, lse, *others, *rest))
    assert all(torch.equal(a, b) for a, b in zip(places, others, strict=True))
    assert places[0].any()


def test_operators_of_packed_sequences(qkv):
    tensors, lengths = packed(qkv)
    found = torch.ops.flash_attn._flash_attn_varlen_forward(*tensors, *lengths, 0.0, *RULES[:4])
    dense = torch.ops.flash_attn._flash_attn_forward(*qkv, 0.0, *RULES, None, False)
    torch.testing.assert_close(found[0], dense[0].flatten(0, 1))
    out, lse = found[:2]
    places = [torch.empty_like(x) for x in tensors]
    sums = torch.ops.flash_attn._flash_attn_varlen_backward(
        out, *tensors, out, lse, *places, *lengths, 0.0, *RULES, None, False
    )
    assert sums.shape == lse.shape
    assert all(place.any() for place in places)


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_shapes_without_values_are_those_of_results(qkv, dropout_p, kind):
    """The shapes for torch.compile: opcheck compares shapes, dtypes and writes with a real call."""
    tensors, lengths = (qkv, ()) if kind == "dense" else packed(qkv)
    name = "" if kind == "dense" else "_varlen"
    forward = getattr(torch.ops.flash_attn, f"_flash_attn{name}_forward").default
    backward = getattr(torch.ops.flash_attn, f"_flash_attn{name}_backward").default
    checks = ("test_schema", "test_faketensor")
    arguments = (*tensors, *lengths, dropout_p, *RULES, None, True)
    torch.library.opcheck(forward, arguments, test_utils=checks[1:])
    if dropout_p == 0.0:  # with dropout, a repeated call gives other bits
        torch.library.opcheck(forward, arguments, test_utils=checks[:1])
    out, lse, _, state = forward(*arguments)
    places = [torch.zeros_like(x) for x in tensors]
    rest = (*lengths, dropout_p, *RULES, None, False, state)
    torch.library.opcheck(backward, (out, *tensors, out, lse, *places, *rest), test_utils=checks)


CLASSES = {
    "FlashAttnFunc": "flash_attn_func",
    "FlashAttnQKVPackedFunc": "flash_attn_qkvpacked_func",
    "FlashAttnKVPackedFunc": "flash_attn_kvpacked_func",
    "FlashAttnVarlenFunc": "flash_attn_varlen_func",
    "FlashAttnVarlenQKVPackedFunc": "flash_attn_varlen_qkvpacked_func",
    "FlashAttnVarlenKVPackedFunc": "flash_attn_varlen_kvpacked_func",
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_take_the_arguments_of_the_functions(name):
    function = getattr(flash_attn, CLASSES[name])
    parameters = inspect.signature(function).parameters.values()
    upstreams = [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
    assert getattr(interface, name).arguments == len(upstreams)
    assert getattr(interface, name).function is function


def test_apply_is_differentiable(qkv):
    leaves = [x.requires_grad_() for x in qkv]
    given = (*leaves, 0.0, 0.2, True, (5, 0), 0.0, None, False)
    wanted = flash_attn.flash_attn_func(*given)
    weights = torch.randn_like(wanted)
    gradients = torch.autograd.grad(wanted, leaves, weights)
    for more in ((False,), (False, True)):
        found = interface.FlashAttnFunc.apply(*given, *more)
        assert torch.equal(found, wanted)
        for one, other in zip(torch.autograd.grad(found, leaves, weights), gradients, strict=True):
            assert torch.equal(one, other)
    out, lse, _ = interface.FlashAttnFunc.apply(*given, True, False)
    assert not out.requires_grad
    assert lse.shape == (2, 4, 6)


def test_apply_of_packed_sequences(qkv):
    tensors, lengths = packed(qkv)
    given = (*tensors, *lengths, 0.0, 0.2, True, (-1, -1), 0.0, None, False)
    found = interface.FlashAttnVarlenFunc.apply(*given, False, None, True)
    assert torch.equal(found, flash_attn.flash_attn_varlen_func(*given))


def test_rotary_classes():
    assert rotary.ApplyRotaryEmb.apply is rotary.apply_rotary_emb
    assert rotary.ApplyRotaryEmbQKV_.apply is rotary.apply_rotary_emb_qkv_
    assert rotary.ApplyRotaryEmbKV_.apply is rotary.apply_rotary_emb_kv_


def test_probabilities_are_normalised_over_whole_rows(qkv):
    """Upstream's tests normalise them block by block of this width. Here it changes nothing."""
    width = interface._get_block_size_n(torch.device("cpu"), 64, True, False)
    assert torch.zeros(2, 3000).split(width, dim=-1)[0].shape == (2, 3000)
    assert interface.USE_TRITON_ROCM is False
    _, _, signed, _ = interface._flash_attn_forward(*qkv, 0.5, 0.2, False, -1, -1, 0.0, None, True)
    sums = signed.float().abs().sum(-1)
    assert (sums - 1).abs().max() < 2**-9  # 6 terms of fp16

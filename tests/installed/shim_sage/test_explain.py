"""``flash_attn_rocm.explain`` of its functions: what is computed in how many bits."""

import pytest
import sageattention
import torch
from exact import draw
from flash_attn_rocm import FlashAttnArgumentError, attention, explain
from sageattention import sageattn, sageattn_varlen

DENSE = [name for name in sageattention.__all__ if name != "sageattn_varlen"]
WORDS = "sageattention of flash-attn-rocm: products of {} with sums in fp32, more exact than 8 bits, because "


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_function_is_explained(name, dtype):
    q, k, v = draw("NHD", dtype)
    found = explain(getattr(sageattention, name), q, k, v, tensor_layout="NHD", is_causal=True)
    same = explain(attention, q, k, v, causal=True)
    begins = WORDS.format(str(dtype).removeprefix("torch."))
    # Once said the reason twice: the tensors on a CPU are the one for 16 bits, too.
    assert found.reason == begins + same.reason
    assert (found.ok, found.path) == (same.ok, same.path)


def test_packed_sequences_are_explained():
    cut = torch.tensor([0, 3], dtype=torch.int32)
    q = torch.ones(3, 2, 16).half()
    assert explain(sageattn_varlen, q, q, q, cut, cut, 3, 3).reason == (
        f"{WORDS.format('float16')}kernels with products of int8 take no packed sequences; "
        "the tensors are on cpu, and kernels run on AMD GPUs"
    )


def test_problems_are_those_of_the_call():
    q, k, v = draw()
    with pytest.raises(FlashAttnArgumentError, match="sageattn cannot use its arguments:\n  - dropout_p"):
        explain(sageattn, q, k, v, dropout_p=0.1)
    with pytest.raises(TypeError, match="missing a required argument: 'v'"):
        explain(sageattn, q, k)


def test_other_functions_are_named_with_those_that_are_known():
    with pytest.raises(TypeError, match=r"explain: expected one of .*mla_decode, sageattn, .*, got draw"):
        explain(draw)

"""torch.compile takes the function into one graph, forward and backward."""

import pytest
import torch
from flash_attn_rocm import flash_attn_func

pytestmark = [
    pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning"),
    # PyTorch's own tracer does this to every autograd function.
    pytest.mark.filterwarnings(
        "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning"
    ),
]


@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", False), ("eager", True)])
def test_one_graph(qkv, backend, dynamic):
    q, k, v = (x.requires_grad_() for x in qkv)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda q, k, v: flash_attn_func(q, k, v, causal=True),
        fullgraph=True,
        backend=backend,
        dynamic=dynamic,
    )
    expected = flash_attn_func(q, k, v, causal=True)
    wanted = torch.autograd.grad(expected.sum(), (q, k, v))
    out = compiled(q, k, v)
    found = torch.autograd.grad(out.sum(), (q, k, v))
    assert torch.equal(out, expected)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))

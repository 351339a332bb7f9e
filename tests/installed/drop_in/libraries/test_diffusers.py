"""diffusers on flash-attn, flash-attn-3, sageattention: a small Flux transformer, and functions below it."""

from types import SimpleNamespace

import pytest
import torch
from agreement import agree, gradients
from diffusers import FluxTransformer2DModel
from diffusers.models import attention_dispatch
from flash_attn import flash_attn_func

SIZES = {
    "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 32, "num_attention_heads": 2,
    "joint_attention_dim": 32, "pooled_projection_dim": 32, "in_channels": 4, "axes_dims_rope": (8, 8, 16),
}  # fmt: skip


def models(flash):
    """Flash attention, PyTorch's attention in that dtype, and PyTorch's in float32. The weights are equal."""
    torch.manual_seed(0)
    exact = FluxTransformer2DModel(**SIZES).to(torch.bfloat16).float().eval()
    found = [FluxTransformer2DModel(**SIZES).to(torch.bfloat16).eval() for _ in range(2)]
    for model in found:
        model.load_state_dict(exact.state_dict())
    for model, backend in zip((*found, exact), (flash, "native", "native"), strict=True):
        model.set_attention_backend(backend)
    return (*found, exact)


def image(model):
    generator = torch.Generator().manual_seed(1)

    def draw(*sizes):
        return torch.randn(*sizes, generator=generator).to(model.dtype)

    rows = torch.arange(12)
    places = torch.stack([torch.zeros(12), rows // 4, rows % 4], -1)
    return model(
        hidden_states=draw(2, 12, 4), encoder_hidden_states=draw(2, 5, 32), pooled_projections=draw(2, 32),
        timestep=torch.tensor([0.3, 0.7]).to(model.dtype), img_ids=places, txt_ids=torch.zeros(5, 3),
    ).sample  # fmt: skip


@pytest.fixture(scope="module")
def on_cpu():
    """Backend _flash_3 calls an operator of diffusers, registered for GPUs only."""
    operator = attention_dispatch._wrapped_flash_attn_3
    operator.register_kernel("cpu")(operator._init_fn)


@pytest.mark.parametrize(
    ("backend", "function", "trains"),
    [
        ("flash", "flash_attn_func", True),
        ("_flash_3", "3.flash_attn_func", False),  # diffusers' operator lacks gradients
        ("_flash_varlen_3", "3.flash_attn_varlen_func", True),
        ("sage", "sage.sageattn", False),  # no gradients
        ("sage_varlen", "sage.sageattn_varlen", False),
        ("_sage_qk_int8_pv_fp16_triton", "sage.sageattn_qk_int8_pv_fp16_triton", False),
        ("_sage_qk_int8_pv_fp16_cuda", "sage.sageattn_qk_int8_pv_fp16_cuda", False),
        ("_sage_qk_int8_pv_fp8_cuda", "sage.sageattn_qk_int8_pv_fp8_cuda", False),
        ("_sage_qk_int8_pv_fp8_cuda_sm90", "sage.sageattn_qk_int8_pv_fp8_cuda_sm90", False),
    ],
)
def test_a_transformer_forward_and_backward(backend, function, trains, on_cpu, calls, launched):
    three = models(backend)
    with torch.no_grad():
        found = [image(model) for model in three]
    agree(*([x] for x in found))
    assert calls[function] == calls.total() == 2  # one of each kind of block
    assert launched() in (None, 2)
    if trains:
        agree(*(gradients(model, image(model)) for model in three))


def test_the_functions_of_context_parallel_attention():
    """They call the wrapped functions with positional arguments, and give gradients by themselves."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, dout = (torch.randn(1, 9, 2, 32, generator=generator).half() for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    wanted = flash_attn_func(*leaves, causal=True)
    gradients = torch.autograd.grad(wanted, leaves, dout)
    context = SimpleNamespace(save_for_backward=lambda *tensors: setattr(context, "saved_tensors", tensors))
    out = attention_dispatch._flash_attention_forward_op(context, *leaves, is_causal=True)
    assert torch.equal(out, wanted)
    found = attention_dispatch._flash_attention_backward_op(context, dout)
    assert all(torch.equal(a, b) for a, b in zip(found, gradients, strict=True))


def test_the_log_sum_exp_of_context_parallel_sage_attention():
    """It comes as (batch, length, heads), and is natural, as that of flash attention."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 9, 2, 32, generator=generator).half() for _ in range(3))
    out, lse = attention_dispatch._sage_attention_forward_op(None, q, k, v, return_lse=True)
    wanted, sums, _ = flash_attn_func(q, k, v, return_attn_probs=True)
    assert torch.equal(out, wanted)
    assert torch.equal(lse, sums.permute(0, 2, 1))

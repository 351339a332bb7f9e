"""The PyTorch implementation's blocks: no cut, device or saved pass changes a result, on CPU tensors."""

import pytest
import torch
from flash_attn_rocm import attention
from flash_attn_rocm.arguments.normal_form import Options
from flash_attn_rocm.reference import blocks, dense
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
ROWS, KEYS, NHEADS, NHEADS_K = 45, 70, 6, 2
MANY = {"BLOCK_SCORES": blocks.ON_CPU * 6 * 8 * 16, "BLOCK_KEYS": 16, "BLOCK_ROWS": 8}
SETTINGS = {
    "one block": ({}, False),
    "one block, folded": ({}, True),
    "many blocks": (MANY, False),
    "many blocks, folded": (MANY, True),
}


def calls():
    torch.manual_seed(0)
    slopes, mask = torch.rand(NHEADS), torch.rand(2, NHEADS, ROWS, KEYS) < 0.7
    mask[1, 2, 3] = False  # a row without keys
    return {
        "right bound": {"window_size": (-1, 3)},
        "left bound": {"window_size": (9, -1)},
        "window": {"window_size": (20, 3)},
        "softcap": {"softcap": 3.0},
        "softcap, causal": {"softcap": 3.0, "causal": True},
        "ALiBi": {"alibi_slopes": slopes},
        "ALiBi, causal": {"alibi_slopes": slopes, "causal": True},
        "mask": {"attn_mask": mask},
        "bias": {"attn_mask": torch.randn(1, NHEADS, ROWS, KEYS)},
        "bias of keys": {"attn_mask": torch.randn(2, 1, 1, KEYS)},
        "sink": {"sink": torch.randn(NHEADS), "window_size": (20, 3)},
        "scale": {"softmax_scale": -0.3, "window_size": (20, 3)},
    }


def results(given, rules, dtype):
    """out and all gradients."""
    leaves = [x.to(dtype).requires_grad_() for x in given]
    rules = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in rules.items()}
    bias = rules.get("attn_mask")
    if bias is not None and bias.is_floating_point():
        leaves.append(bias.requires_grad_())
    out = attention(*leaves[:3], **rules)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, weights)]


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", calls())
def test_all_ways_agree(monkeypatch, name, settings, on_cpu):
    given = [torch.randn(2, n, h, 24) for n, h in ((ROWS, NHEADS), (KEYS, NHEADS_K), (KEYS, NHEADS_K))]
    rules = calls()[name]
    wanted = results(given, rules, torch.float64)
    monkeypatch.setattr(blocks.Problem, "on_cpu", on_cpu)
    sizes, folded = SETTINGS[settings]
    for setting, value in sizes.items():
        monkeypatch.setattr(blocks, setting, value)
    if folded:
        monkeypatch.setattr(dense, "MANY_SCORES", 0)
    for found, exact in zip(results(given, rules, torch.float32), wanted, strict=True):
        assert (found - exact).abs().max() <= 2**-18 * exact.abs().max()


@pytest.mark.parametrize(("precision", "folds"), [("highest", True), ("high", False), ("medium", False)])
def test_row_numbers_stay_out_of_rounded_products(precision, folds):
    """TF32 and bf16 would round the log-sum-exp."""
    former = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    q, k = torch.zeros(1, 1, 1 << 12, 8), torch.zeros(1, 1 << 12, 8)
    try:
        assert dense._folds(q, k) == folds
        assert dense._folds(q.double(), k.double())
        assert not dense._folds(q[:, :, 1:], k)
    finally:
        torch.set_float32_matmul_precision(former)


class Operations(TorchDispatchMode):
    """The operations that write memory: on a GPU each is a launch or more."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function._schema.name
        if not function.is_view and "empty" not in name:
            self.names.append(name)
        return function(*arguments, **(options or {}))


FEW = {"mask": (13, 13), "softcap": (11, 14), "window": (16, 16), "ALiBi": (16, 16)}


@pytest.mark.parametrize("name", FEW)
def test_one_block_has_few_operations(name):
    """Launches are most of a short call's time."""
    q, k, v = torch.randn(3, 1, 32, 2, 8)
    dout, mask = torch.ones_like(q), torch.rand(1, 1, 32, 32) < 0.9 if name == "mask" else None
    slopes = torch.rand(2) if name == "ALiBi" else None
    options = Options(0.3, softcap=3.0 if name == "softcap" else 0.0)
    options = options._replace(window_left=9, window_right=0) if name == "window" else options
    with Operations() as forward:
        out, lse, _ = dense.forward(
            q, k, v, slopes, options, dropout=None, want_probabilities=False, mask=mask
        )
    with Operations() as backward:
        dense.backward(dout, q, k, v, out, lse, slopes, options, dropout=None, mask=mask)
    most_forward, most_backward = FEW[name]
    assert len(forward.names) <= most_forward, forward.names
    assert len(backward.names) <= most_backward, backward.names


@pytest.mark.parametrize("rules", [{}, {"alibi_slopes": torch.linspace(0.1, 0.9, 64)}, {"softcap": 5.0}])
def test_the_only_key_of_a_row_has_the_probability_1(rules):
    """With ALiBi it once had 1 less some roundings: upstream's own test demands the exact gradient of v."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, n, 64, 40, requires_grad=True) for n in (2, 1, 1))
    weights = torch.randn(1, 2, 64, 40)
    out = attention(q, k, v, window_size=(3, 3), **rules)
    assert torch.equal(out, v.expand_as(weights))
    assert torch.equal(torch.autograd.grad(out, v, weights)[0], weights.sum(1, keepdim=True))

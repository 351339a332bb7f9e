"""A small transformer learns a sentence: its losses with the kernels equal PyTorch's."""

import warnings
from itertools import pairwise

import flash_attn_rocm
import pytest
import torch
from flash_attn_rocm import flash_attn_func
from flash_attn_rocm.serving import machine
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.suite.reference_attention import Rules, attention
from flash_attn_rocm.values.tolerances import GRADIENT_FACTOR
from here import BACKWARD
from torch import nn
from torch.nn import functional

TEXT = "a GPU with matrix units multiplies small tiles; others take dot products of two terms. " * 2
LETTERS = sorted(set(TEXT))
STEPS, BATCH, ROWS, HEADS, HEAD_DIM = 20, 2, 40, 2, 32
WIDTH = HEADS * HEAD_DIM


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, attend):
        q, k, v = self.qkv(self.before(x)).half().unflatten(-1, (3, HEADS, HEAD_DIM)).unbind(2)
        x = x + self.out(attend(q, k, v).flatten(-2).float())
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(ROWS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, len(LETTERS))

    def forward(self, tokens, attend):
        x = self.letters(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x, attend)
        return self.head(x)


def losses(attend, device):
    """The loss of each step, from equal weights and random numbers."""
    torch.manual_seed(11)
    model = Model().to(device)
    tokens = torch.tensor([LETTERS.index(letter) for letter in TEXT], device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    found = []
    for step in range(STEPS):
        begins = [(7 * step + 31 * i) % (len(TEXT) // 2) for i in range(BATCH)]
        rows = torch.stack([tokens[begin : begin + ROWS + 1] for begin in begins])
        loss = functional.cross_entropy(model(rows[:, :-1], attend).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


class WithoutKernels(machine.Machine):
    """A machine with an arch without kernels. Its decisions are its own."""

    def unserved(self, device):
        return ""

    def device(self, device):
        return Device("none", 0)


def by_pytorch(attend):
    """``attend`` on an arch without kernels, with its warning."""
    without = WithoutKernels()
    without.kind = machine.current().kind

    def attended(*tensors):
        former = machine.use(without)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return attend(*tensors)
        finally:
            machine.use(former)

    return attended


def plainly(q, k, v):
    """Every operation rounds to fp16."""
    return attention(q, k, v, Rules(right=0))[0]


def apart(one, other):
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@pytest.fixture
def lenient():
    flash_attn_rocm.set_strict(False)
    yield
    flash_attn_rocm.set_strict(True)


def with_dropout(dropout_p):
    return lambda q, k, v: flash_attn_func(q, k, v, causal=True, dropout_p=dropout_p)


@pytest.mark.needs(BACKWARD)
@pytest.mark.divided
@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("dropout_p", [0.0, 0.1])
def test_losses_fall_alike(target, dropout_p):
    """Within 3 times the error of plain fp16, the factor for gradients."""
    assert ("fp16", HEAD_DIM) in BACKWARD
    attend = with_dropout(dropout_p)
    found, kernels = target.attend(losses, attend, target.device)
    assert kernels is None or kernels.count(f"fa_bwd_dq_fp16_d{HEAD_DIM}") == 2 * STEPS
    wanted = losses(by_pytorch(attend), target.device)
    exact = losses(by_pytorch(with_dropout(0.0)), target.device)
    bound = GRADIENT_FACTOR * apart(losses(plainly, target.device), exact)
    assert apart(found, wanted) <= bound
    assert found[-1] < 0.75 * found[0]
    assert 10 * bound < min(abs(a - b) for a, b in pairwise(found[:4])), "a step is seen"

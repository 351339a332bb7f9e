"""These tests run against the installed wheel, from a folder outside of the checkout, on CPU tensors.

They need PyTorch, NumPy, pytest and the wheel; no GPU, no ROCm, no network.
"""

import pytest
import torch
from flash_attn_rocm import _notice, _reference
from flash_attn_rocm._options import Options


def pytest_configure(config):
    config.addinivalue_line("markers", "wheel: runs against an installed wheel, outside the checkout")


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.wheel)


@pytest.fixture(autouse=True)
def fresh_state(monkeypatch):
    """Every test starts with the seed, the strictness and the unsaid warnings of a new process."""
    torch.manual_seed(0)
    monkeypatch.delenv(_notice.STRICT_VARIABLE, raising=False)
    _notice.set_strict(None)
    _notice.forget_warnings()
    yield
    _notice.set_strict(None)


@pytest.fixture
def qkv():
    """Small valid arguments: q (2, 5, 4, 64), k and v (2, 7, 2, 64), fp16."""
    q = torch.randn(2, 5, 4, 64, dtype=torch.float16)
    k, v = (torch.randn(2, 7, 2, 64, dtype=torch.float16) for _ in range(2))
    return q, k, v


@pytest.fixture
def host_fwd():
    """An implementation of the operator ``fwd`` for host memory, which only tests have; the calls it got."""
    calls = []

    def fwd(q, k, v, out, lse, softmax_scale, causal):
        calls.append((q, k, v, softmax_scale, causal))
        options = Options(softmax_scale, right=0 if causal else -1)
        found = _reference.forward(q, k, v, None, options, seed=0, want_probabilities=False)
        out.copy_(found[0])
        lse.copy_(found[1])

    library = torch.library.Library("flash_attn_rocm", "IMPL")
    library.impl("fwd", fwd, "CPU")
    yield calls
    library._destroy()

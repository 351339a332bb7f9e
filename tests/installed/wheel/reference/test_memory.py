"""The PyTorch implementation's memory grows with the lengths, but never with their product.

Tensors without memory count the allocations at real lengths. ``FA_FULL`` adds real ones.
"""

import subprocess
import sys
import weakref

import pytest
import torch
from flash_attn_rocm.arguments.normal_form import Options
from flash_attn_rocm.reference import blocks, dense
from torch.utils._python_dispatch import TorchDispatchMode

LONG, REAL_LENGTH = 1 << 16, 1 << 15
MIB = 1 << 20
BLOCK = blocks.BLOCK_SCORES * 4  # bytes of a block's scores


class Allocated(TorchDispatchMode):
    """The bytes of all live storages, and their peak."""

    def __init__(self):
        super().__init__()
        self.users, self.now, self.most = {}, 0, 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        found = function(*arguments, **(options or {}))
        for tensor in found if isinstance(found, tuple | list) else (found,):
            if isinstance(tensor, torch.Tensor):
                self.follow(tensor)
        return found

    def follow(self, tensor):
        storage = tensor.untyped_storage()
        place, size = storage._cdata, storage.nbytes()
        if place not in self.users:
            self.now += size
            self.most = max(self.most, self.now)
        self.users[place] = self.users.get(place, 0) + 1
        weakref.finalize(tensor, self.forget, place, size)

    def forget(self, place, size):
        self.users[place] -= 1
        if not self.users[place]:
            del self.users[place]
            self.now -= size


@pytest.fixture(autouse=True)
def no_autocast(monkeypatch):
    """Tensors without memory lack autocast."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device: False)


def peak(rows, keys, *, backward):
    """The peak of allocated bytes of a causal call of one head, including inputs and results."""
    options = Options(0.1, window_right=0)
    with torch.device("meta"), Allocated() as allocated:
        q, out, dout = (torch.empty(1, rows, 1, 64, dtype=torch.float16) for _ in range(3))
        k, v = (torch.empty(1, keys, 1, 64, dtype=torch.float16) for _ in range(2))
        lse = torch.empty(1, 1, rows)
        if backward:
            dense.backward(dout, q, k, v, out, lse, None, options, dropout=None)
        else:
            dense.forward(q, k, v, None, options, dropout=None, want_probabilities=False)
    return allocated.most


@pytest.mark.parametrize("backward", [False, True])
def test_memory_at_32k(backward):
    short, long = (peak(n, n, backward=backward) for n in (LONG // 4, LONG))
    # In addition to inputs and results, linear in the length, a few tensors of one block's size.
    tensors = 12 * LONG * 64 * 4
    assert long <= tensors + 3 * BLOCK, long / MIB
    assert long <= 4 * short
    assert long < LONG * LONG * 4 / 16  # a sixteenth of the scores' memory


@pytest.mark.parametrize("lengths", [(16, 1 << 18), (1 << 15, 16)])
def test_memory_grows_in_neither_length_faster(lengths):
    rows, keys = lengths
    few = peak(*(max(16, n // 4) for n in lengths), backward=False)
    assert peak(rows, keys, backward=False) <= 4 * few


def test_the_count_sees_a_quadratic_implementation(monkeypatch):
    """Tests the check itself: with blocks as long as the lengths, all scores are allocated together."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", LONG)
    monkeypatch.setattr(blocks, "BLOCK_SCORES", LONG * LONG)
    assert peak(LONG, LONG, backward=False) > LONG * LONG * 4


REAL = f"""
import resource, torch
from flash_attn_rocm import flash_attn_func
torch.set_num_threads(1)
warm = torch.zeros(1, 64, 1, 64, dtype=torch.float16, requires_grad=True)
flash_attn_func(warm, warm, warm, causal=True, softcap=SOFTCAP).sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
q, k, v = (torch.randn(1, {REAL_LENGTH}, 1, 64).half().requires_grad_() for _ in range(3))
flash_attn_func(q, k, v, causal=True, softcap=SOFTCAP).sum().backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.full
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_real_memory_at_32k(record_property, softcap):
    """Without softcap by PyTorch's attention."""
    argv = [sys.executable, "-W", "ignore", "-c", REAL.replace("SOFTCAP", str(softcap))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=1200)
    mib = int(done.stdout)
    record_property("MiB beyond an idle process", mib)
    # The count above, plus half of it for the allocator's cache.
    assert mib <= 1.5 * peak(REAL_LENGTH, REAL_LENGTH, backward=True) / MIB + 32

"""Calls that reach one kernel, on the emulator: the suite's drawn ones, checked, and random ones, hashed.

Runs in the verify container, in the folder of the numerics suite, whose modules it uses.
"""

import hashlib
import itertools
import random
from contextlib import contextmanager

import torch
from candidates import kernels
from chosen import chosen
from conftest import ARCH, Shown, Target
from drawn import Call, draw
from flash_attn_rocm import flash_attn_with_kvcache
from rule import DTYPES, judge

from wheel_builder.fake_hip.control import FakeHip, kernels_on_host_memory

HEADS = ((1, 1), (2, 1), (2, 2), (3, 1), (4, 2), (6, 2))
APPENDED_HEAD_DIMS = (64, 64, 40, 59, 128)
# Random calls have numbers that tests.choose never looks at.
FIRST, PER_SEED = 10_000, 1_000
PARTS = "parts"  # the feature of a decode call that launches a combine kernel


@contextmanager
def on_emulator():
    """The numerics suite's target."""
    fake_hip = FakeHip()
    with kernels_on_host_memory(fake_hip):
        yield Target(fake_hip, Shown())


def chosen_for(kernel):
    """(name, case) of each drawn call of the suite that launches ``kernel``; those that take least first."""
    own = [(f"{each} {number}", draw(each, number)) for each, number in chosen(ARCH)]
    return sorted((pair for pair in own if launches(pair[1], kernel)), key=lambda pair: cost(pair[1]))


def launches(case, kernel):
    _, op, dtype, *_ = kernel.split("_")
    if op == "combine":
        return case.kernel.dtype == dtype and PARTS in case.features
    return str(case.kernel) == kernel


def cost(case):
    """About how long a call takes, next to others."""
    scores = sum(rows * keys for rows, keys in zip(case.rows, case.keys, strict=True))
    return scores * case.heads[0] * case.head_dim


def check(target, case):
    call = Call(case, target.device)
    judge(target.shown, str(case.kernel), repr(case), call.run(target), call.rules)


def random_for(kernel, seed, count):
    """``count`` functions that make a call of ``kernel`` each and return the tensors that come out."""
    if "_append_" in kernel:
        return [appended(kernel, f"{kernel} {seed} {number}") for number in range(count)]
    asked = [each for each in kernels() if "_combine_" in kernel or str(each) == kernel]
    numbers = itertools.count(FIRST + PER_SEED * seed)
    cases = (draw(each, number) for number in numbers for each in asked)
    return [attended(case) for case in itertools.islice((c for c in cases if launches(c, kernel)), count)]


def digest(target, make):
    """A hash of what a call gives, bit for bit, findings of the sanitizers included."""
    try:
        found = [(x.shape, bytes_of(x)) for x in make(target)]
    except RuntimeError as error:
        found = [str(error)]
    findings, target.shown.findings = target.shown.findings, []
    return hashlib.sha256(repr((found, findings)).encode()).hexdigest()[:16]


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def attended(case):
    def make(target):
        sequences = Call(case, target.device).run(target)
        return [x for each in sequences for x in (each.out, each.lse)]

    return make


def appended(kernel, text):
    """A call of ``flash_attn_with_kvcache`` with new keys, as ``text`` draws it."""
    rng = random.Random(text)
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    dtype, head_dim = DTYPES[kernel.split("_")[2]], rng.choice(APPENDED_HEAD_DIMS)
    (nheads, nheads_k), batch, page = rng.choice(HEADS), rng.choice((1, 2, 3)), rng.choice((0, 0, 16, 48))
    rows, new, capacity = rng.choice((1, 2, 3, 7)), rng.choice((1, 2, 5, 20)), 288
    blocks = capacity // (page or capacity)

    def tensor(*sizes):
        return torch.randn(*sizes, generator=generator).to(dtype)

    q = tensor(batch, rows, nheads, head_dim)
    caches = [tensor(batch * blocks, page or capacity, nheads_k, head_dim) for _ in range(2)]
    lengths = [rng.randrange(1, capacity - 20) for _ in range(batch)]
    more = {"cache_seqlens": torch.tensor(lengths, dtype=torch.int32), "causal": rng.random() < 0.5}
    more["k"], more["v"] = (tensor(batch, new, nheads_k, head_dim) for _ in range(2))
    if page:
        places = torch.randperm(batch * blocks, generator=generator).to(torch.int32)
        more["block_table"] = places.view(batch, blocks)
    elif rng.random() < 0.3:
        padding = [rng.randrange(min(4, length + 1)) for length in lengths]
        more["cache_leftpad"] = torch.tensor(padding, dtype=torch.int32)
    if rng.random() < 0.7:
        rotary = rng.choice([each for each in (16, 32, 64) if each <= head_dim])
        more["rotary_cos"], more["rotary_sin"] = (tensor(capacity, rotary // 2) for _ in range(2))
        more["rotary_interleaved"] = rng.random() < 0.5

    def make(target):
        (out, lse), _ = target.attend(flash_attn_with_kvcache, q, *caches, return_softmax_lse=True, **more)
        return [out, lse, *caches]

    return make

"""Calls that reach one kernel, on the emulator: the corpus, checked, and random ones, hashed.

Runs in the verify container, in the folder of the numerics suite, and uses its modules.
"""

import hashlib
import itertools
from contextlib import contextmanager

import torch
from flash_attn_rocm.suite.backward_cases import kernels_of
from flash_attn_rocm.suite.corpus import corpus_of
from flash_attn_rocm.suite.fuzz import draw, kernels, made
from flash_attn_rocm.suite.target import (
    BACKWARD_OP,
    FUSED_OP,
    MASKED_BACKWARD_OP,
    UNEVEN_OP,
    Shown,
    Target,
    arch,
)

from mutation.launches import answered, flat
from wheel_builder.machine_code.fake_hip.control import FakeHip, kernels_on_host_memory

# Random calls have numbers outside those of tests.tools.corpus.
FIRST, PER_SEED = 10_000, 1_000
# Kernels also launched by calls for other ops: these ops, and the feature of such calls if not all launch it.
RANGES = "fa_mask_ranges_"
ALONG = {
    "fa_combine_": (("decode", "mla", "fwd_wide"), {"parts"}), RANGES: (("fwd_masked",), {"mask of bool"}),
    "fa_quantise_": (("fwd_int8",), set()),
}  # fmt: skip


@contextmanager
def on_emulator():
    """The numerics suite's target."""
    fake_hip = FakeHip()
    with kernels_on_host_memory(fake_hip):
        yield Target(fake_hip, Shown())


def corpus_for(kernel):
    """(name, case) of each case of the corpus that launches ``kernel``, the fastest first."""
    own = [(f"{each} {number}", draw(each, number)) for each, number in corpus_of(arch())]
    return sorted((pair for pair in own if launches(pair[1], kernel)), key=lambda pair: pair[1].work)


def launches(case, kernel):
    needed = [features for begin, (_, features) in ALONG.items() if kernel.startswith(begin)]
    return may_launch(case.kernel, kernel) and case.features >= set().union(*needed)


def may_launch(own, kernel):
    """Whether some call for the kernel ``own`` launches ``kernel``."""
    for begin, (ops, _) in ALONG.items():
        if kernel.startswith(begin):
            dtype = "fp16" if begin == RANGES else own.dtype  # one for both
            return own.op in ops and kernel == f"{begin}{dtype}"
    gradients = own.op in {BACKWARD_OP, UNEVEN_OP, FUSED_OP, MASKED_BACKWARD_OP}
    return kernel in (kernels_of(own) if gradients else (str(own),))


def random_for(kernel, seed, count):
    """``count`` cases of ``kernel``."""
    asked = [each for each in kernels() if may_launch(each, kernel)]
    if not asked:
        message = f"there are no fuzz cases of {kernel}: kernels/python/flash_attn_rocm/suite/fuzz.py"
        raise LookupError(message)
    numbers = itertools.count(FIRST + PER_SEED * seed)
    cases = (draw(each, number) for number in numbers for each in asked)
    return list(itertools.islice((case for case in cases if launches(case, kernel)), count))


def digest(target, case):
    """A hash of a call's bits and sanitizer findings, with all NaN alike."""
    found, findings = answered(target, lambda: [*map(hashed, flat(made(case, target.device).run(target)))])
    return hashlib.sha256(repr((found, findings)).encode()).hexdigest()[:16]


def hashed(x):
    return x.shape, bytes_of(x)


def bytes_of(tensor):
    tensor = tensor.where(~tensor.isnan(), torch.nan)
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()

"""Reads corpus.json: the numbers of the fuzz cases to run, written by ``python -m tests.tools.corpus``."""

import json
import re
from pathlib import Path

from flash_attn_rocm.suite.forward_cases import Kernel

FILE = Path(__file__).with_name("corpus.json")
NAME = re.compile(r"fa_(\w+)_(fp16|bf16)(?:_d(\d+))?")


def kernel_of(name):
    """The kernel of a name such as fa_fwd_fp16_d64."""
    op, dtype, head_dim = NAME.fullmatch(name).groups()
    return Kernel(op, dtype, int(head_dim or 0))


def corpus_of(arch):
    """(kernel, number) of each fuzz case for an arch.

    An arch may use the cases of another one. It then lists its additional kernels, and an empty list for each
    kernel it lacks.
    """
    every = _every()
    own = every[arch]
    numbers = every[_chosen_for(arch, every)] | (own["kernels"] if "like" in own else {})
    return [(kernel_of(name), number) for name, each in numbers.items() for number in each]


def archs_with_cases_of(arch):
    """All archs with the same fuzz cases, this one included, in the file's order."""
    every = _every()
    return [other for other in every if _chosen_for(other, every) == _chosen_for(arch, every)]


def _every():
    return json.loads(FILE.read_text(encoding="utf-8"))


def _chosen_for(arch, every):
    own = every[arch]
    return own if isinstance(own, str) else own.get("like", arch)

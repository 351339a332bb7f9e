"""Reads chosen.json, the drawn calls to run, which ``python -m tests.choose`` writes."""

import json
from pathlib import Path

from drawn import Kernel

FILE = Path(__file__).with_name("chosen.json")


def kernel_of(name):
    """The kernel of a name such as fa_fwd_fp16_d64."""
    _, op, dtype, *head_dim = name.split("_")
    return Kernel(op, dtype, *(int(each.removeprefix("d")) for each in head_dim))


def chosen(arch):
    """(kernel, number) of each call for an arch."""
    numbers = json.loads(FILE.read_text(encoding="utf-8"))[arch]
    return [(kernel_of(name), number) for name, each in numbers.items() for number in each]

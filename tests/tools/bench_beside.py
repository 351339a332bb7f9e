"""In the verify container: rows of ``bench`` beside upstream's Triton kernels for AMD GPUs.

Triton's interpreter executes the kernels on the CPU, so times mean nothing. Upstream declares its operators
for "cuda" alone: here they take CPU tensors too. Prints the module's file, the problems and the rows as JSON.
"""

import json
import sys
from dataclasses import asdict
from functools import partial

import torch

DEVICE_TYPES = "device_types"
declare = torch.library.custom_op


def for_every_device(*given, **named):
    return declare(*given, **{name: value for name, value in named.items() if name != DEVICE_TYPES})


torch.library.custom_op = for_every_device

from flash_attn_rocm.tools import bench, others  # noqa: E402 - others imports upstream's module

functions, problems = others.installed()
# The interpreter multiplies the bit patterns of bf16 as integers, so only fp16 is compared.
wanted = bench.shapes((64, 128), nheads=2, head_dim=32, dtype="fp16", tokens=128)
compare = partial(bench._compare, functions=functions, where=torch.device("cpu"), runs=1)
rows = [asdict(row) for shape in wanted for row in compare(shape)]
file = getattr(sys.modules.get(others.FLASH_ATTN), "__file__", "")
print(json.dumps({"file": file, "problems": problems, "rows": rows}))  # noqa: T201

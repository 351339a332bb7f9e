"""In the verify container: the command line's ``tune --apply`` with the installed candidates, then a call.

The emulator takes the GPU's place: calls are short, and a row's time is from a table.
"""

import json
import sys
from pathlib import Path

import torch
from flash_attn_rocm import explain, flash_attn_func
from flash_attn_rocm.__main__ import main
from flash_attn_rocm.tuning import command
from flash_attn_rocm.tuning.bins import Sizes
from row_clock import clock_of, in_use

from wheel_builder.machine_code.fake_hip.control import HOST_MEMORY, FakeHip, kernels_on_host_memory

FASTER, OUT = sys.argv[1], Path(sys.argv[2])
command.main.__kwdefaults__["clock"] = clock_of({"": 2.0, FASTER: 1.0})
command.Sizes = lambda lengths: Sizes(lengths, tokens=40, heads=4)
fake_hip = FakeHip()
with kernels_on_host_memory(fake_hip):
    report = OUT / "report.json"
    status = main(["tune", "--apply", "--seqlen", "40", "--runs", "1", "--report", str(report)])
    HOST_MEMORY.checks_kernels = True
    in_use[0] = ""
    q = torch.randn(1, 17, 4, 64).half()
    out = flash_attn_func(q, q, q, causal=True)
    shown = {
        "status": status,
        "row": explain(q, q, q, causal=True).row,
        "in_use": in_use[0],
        "launched": fake_hip.report().launches[-1].kernel,
        "error": float((out - torch.nn.functional.scaled_dot_product_attention(
            *(3 * [q.float().transpose(1, 2)]), is_causal=True).transpose(1, 2)).abs().max()),
    }  # fmt: skip
(OUT / "shown.json").write_text(json.dumps(shown))

"""Small calls of any kernel: one head, without features, and masks that hide nothing."""

import math
from dataclasses import fields, replace

from flash_attn_rocm.suite.caches.coded_append_cases import NONE
from flash_attn_rocm.suite.fuzz import CACHE_OPS, draw, kernels, made
from flash_attn_rocm.suite.masked_cases import BOOL, NOTHING
from flash_attn_rocm.values import kinds, paths

CALLED = [kernel for kernel in kernels() if kernel.op not in CACHE_OPS]
GRADIENTS = [kernel for kernel in CALLED if kernel.op in kinds.GRADIENTS.values()]
ATTENDING = [kernel for kernel in CALLED if kernel not in GRADIENTS]
FEW, MORE = 16, 17  # queries: the most of decode, and the least of other forwards
REFERENCE, DECODE = (kinds.ATTENDING[each] for each in (paths.REFERENCE, paths.SPLIT))
OF_CODES = [kinds.ATTENDING[each] for each in (paths.FP8, paths.INT8)]
NEGATIVE = -0.1  # a scale
NO_MULTIPLE = 59  # a head dim that only the reference kernels take
PLAIN = {
    "heads": (1, 1), "store": "dense", "page": 0, "layout": "contiguous", "window": (-1, -1), "softcap": 0.0,
    "alibi": "", "dropout": 0.0, "splits": 1, "values": 1.0, "scale": None, "seed": 7,
    "mask": BOOL, "broadcast": "", "hides": NOTHING, "by": -math.inf, "tiny": False, "dscores": False,
    "descales": NONE, "sinks": False,
}  # fmt: skip


def small(kernel, device, rows, keys, **given):
    """The call of these lengths, each one or several, and these fields of its case."""
    case = draw(kernel, 0)
    if kernel.op == REFERENCE:
        case = replace(case, head_dim=NO_MULTIPLE)
    lengths = {"rows": several(rows), "keys": several(keys)}
    there = {each.name for each in fields(case)}
    own = of_codes(kernel, **given) if kernel.op in OF_CODES else {}
    options = {name: value for name, value in {**PLAIN, **given, **own}.items() if name in there}
    return made(replace(case, **lengths, **options), device)


def of_codes(kernel, store="dense", **_given):
    """The fields whose words differ in cases of fp8 and int8."""
    scale = kernel.head_dim**-0.5
    return {"packed": store == "packed", "values": "normal", "scale": scale, "sink": False, "descales": True}


def several(lengths):
    return lengths if isinstance(lengths, tuple) else (lengths,)


def ran(kernel, target):
    """Whether the last call launched the kernel."""
    return target.runtime is None or str(kernel) in target.kernels

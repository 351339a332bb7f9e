"""The numerics of the installed wheel's kernels, from ``flash_attn_func`` down to the machine code.

The same tests run on an AMD GPU where PyTorch has one (scripts/test-on-gpu), and otherwise on the stand-in
HIP runtime, which executes the wheel's code objects on an ISA emulator: ``python -m wheel_builder verify``.
That sets (see wheel_builder/stages/emulated.py):

    LD_PRELOAD=libamdhip64.so.7 FA_STANDIN_ARCH=gfx942 FA_STANDIN_DISASSEMBLY=folder PYTHONPATH=checkout

Where FA_RECORD names a file, what was shown is written there at the end.
"""

import json
import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import flash_attn_rocm
import pytest
import torch
from flash_attn_rocm._library import instances

ON_GPU = torch.cuda.is_available() and torch.version.hip is not None
EMULATED = "executed on an ISA emulator, not run on hardware"
ON_HARDWARE = "run on hardware"


def arch_of_target():
    """The arch that this run is about; the emulated one is chosen from outside."""
    name = (
        torch.cuda.get_device_properties(0).gcnArchName if ON_GPU else os.environ.get("FA_STANDIN_ARCH", "")
    )
    if not name:
        message = "PyTorch finds no AMD GPU; without one: python -m wheel_builder verify WHEEL"
        raise pytest.UsageError(message)
    return name.partition(":")[0]


ARCH = arch_of_target()
ATTENDING = ("fa_fwd_", "fa_decode_", "fa_reference_")
# What the wheel has for this arch; a test for each.
FORWARD = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "fwd" and ARCH in i.archs})
DECODE = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "decode" and ARCH in i.archs})
APPEND = sorted({i.dtype for i in instances() if i.op == "append" and ARCH in i.archs})


@dataclass
class Worst:
    """The case that used up most of what the rule allows, of one instance."""

    share: float = 0.0
    error: float = 0.0
    allowed: float = 0.0
    case: str = ""


@dataclass
class Shown:
    """What a session showed: numbers by instance, and what the emulator told of its launches."""

    worst: dict = field(default_factory=dict)
    largest: dict = field(default_factory=dict)
    worst_lse: dict = field(default_factory=dict)
    cases: Counter = field(default_factory=Counter)
    kernels: Counter = field(default_factory=Counter)
    executed: int = 0
    findings: list = field(default_factory=list)

    def compared(self, instance, case, error, allowed):
        self.cases[instance] += 1
        self.largest[instance] = max(self.largest.get(instance, 0.0), error)
        # Without keys nothing is allowed.
        share = error / allowed if allowed else 0.0
        if not share < self.worst.setdefault(instance, Worst()).share:
            self.worst[instance] = Worst(share, error, allowed, case)

    def compared_lse(self, instance, error):
        self.worst_lse[instance] = max(self.worst_lse.get(instance, 0.0), error)

    def launched(self, launches):
        for launch in launches:
            self.kernels[launch.kernel] += 1
            self.executed += launch.executed
            self.findings += [*launch.findings, *([launch.stopped] if launch.stopped else [])]

    def as_json(self):
        return {
            "arch": ARCH,
            "how": ON_HARDWARE if ON_GPU else EMULATED,
            "checks": [name for name in os.environ.get("FA_STANDIN_CHECKS", "").split(",") if name],
            "seed": int(os.environ.get("FA_STANDIN_SEED", "0")),
            "instances": {
                name: {
                    "cases": self.cases[name],
                    "worst_error": self.largest[name],
                    "nearest_to_its_bound": {
                        "error": worst.error,
                        "allowed": worst.allowed,
                        "case": worst.case,
                    },
                    "worst_lse_error": self.worst_lse.get(name, 0.0),
                }
                for name, worst in sorted(self.worst.items())
            },
            "launches": dict(sorted(self.kernels.items())),
            "wave_instructions": self.executed,
            "findings": self.findings,
        }


class Target:
    """Where kernels run."""

    def __init__(self, standin, shown):
        self.device, self.standin, self.shown = torch.device("cuda" if ON_GPU else "cpu"), standin, shown
        self.kernels = ()

    def attend(self, function, *args, **kwargs):
        """What a function gives, and the kernels that it launched: None where nobody tells."""
        result = function(*args, **kwargs)
        if self.standin is None:
            torch.cuda.synchronize()
            return result, None
        launches = self.standin.report().launches
        self.shown.launched(launches)
        self.kernels = tuple(launch.kernel for launch in launches)
        return result, self.kernels

    def answering(self, forward):
        """The kernel that the last answer is from, as far as somebody tells; ``forward`` where not."""
        return next((name for name in self.kernels if name.startswith(ATTENDING)), forward)


@pytest.fixture(scope="session")
def shown():
    found = Shown()
    yield found
    if file := os.environ.get("FA_RECORD"):
        Path(file).write_text(json.dumps(found.as_json(), indent=2) + "\n")


@pytest.fixture(scope="session")
def target(shown):
    flash_attn_rocm.set_strict(True)  # an answer that no kernel gave is a failure here
    torch.set_num_threads(1)
    if ON_GPU:
        standin, path = None, nullcontext()
    else:
        from wheel_builder.standin.control import StandIn, kernels_on_host_memory

        standin = StandIn()
        path = kernels_on_host_memory(standin)
    with path:
        yield Target(standin, shown)
    flash_attn_rocm.set_strict(None)

"""The numerics of the installed wheel's kernels, from ``flash_attn_func`` down to the machine code.

The same tests run on an AMD GPU where PyTorch has one (scripts/test-on-gpu), and otherwise on the fake HIP
runtime, which executes the wheel's code objects on an ISA emulator: ``scripts/wheel-builder verify``.
That sets (see wheel_builder/verify/numerics.py):

    LD_PRELOAD=libamdhip64.so.7 FA_FAKE_HIP_ARCH=gfx942 FA_FAKE_HIP_DISASSEMBLY=folder PYTHONPATH=checkout

If FA_RECORD names a file, the results are written there at the end.
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
from flash_attn_rocm._library import gfx_of, instances

ON_GPU = torch.cuda.is_available() and torch.version.hip is not None
EMULATED = "executed on an ISA emulator, not run on hardware"
ON_HARDWARE = "run on hardware"


def arch_of_target():
    """The arch under test; an emulated one is chosen by the environment."""
    name = (
        torch.cuda.get_device_properties(0).gcnArchName if ON_GPU else os.environ.get("FA_FAKE_HIP_ARCH", "")
    )
    if not name:
        message = "PyTorch finds no AMD GPU; without one: scripts/wheel-builder verify WHEEL"
        raise pytest.UsageError(message)
    return gfx_of(name)


ARCH = arch_of_target()
ATTENDING = ("fa_fwd_", "fa_decode_", "fa_reference_")
# The wheel's kernels for this arch; a test for each.
FORWARD = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "fwd" and ARCH in i.archs})
DECODE = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "decode" and ARCH in i.archs})
BACKWARD = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "bwd_dq" and ARCH in i.archs})
APPEND = sorted({i.dtype for i in instances() if i.op == "append" and ARCH in i.archs})


@dataclass
class Worst:
    """The case of one instance that came closest to the rule's limit."""

    share: float = 0.0
    error: float = 0.0
    allowed: float = 0.0
    case: str = ""


@dataclass
class Shown:
    """A session's results: numbers by instance, and the emulator's report of its launches."""

    worst: dict = field(default_factory=dict)
    largest: dict = field(default_factory=dict)
    worst_lse: dict = field(default_factory=dict)
    cases: Counter = field(default_factory=Counter)
    kernels: Counter = field(default_factory=Counter)
    ran: Counter = field(default_factory=Counter)
    executed: int = 0
    coverage: dict = field(default_factory=dict)
    findings: list = field(default_factory=list)

    def compared(self, instance, case, error, allowed):
        self.cases[instance] += 1
        self.largest[instance] = max(self.largest.get(instance, 0.0), error)
        # Without keys no error is allowed.
        share = error / allowed if allowed else 0.0
        if not share < self.worst.setdefault(instance, Worst()).share:
            self.worst[instance] = Worst(share, error, allowed, case)

    def compared_lse(self, instance, error):
        self.worst_lse[instance] = max(self.worst_lse.get(instance, 0.0), error)

    def launched(self, launches):
        for launch in launches:
            self.kernels[launch.kernel] += 1
            self.ran[launch.kernel] |= launch.ran
            self.executed += launch.executed
            self.findings += [*launch.findings, *([launch.stopped] if launch.stopped else [])]

    def cover(self, listing):
        """What was not executed in kernels that ran; ``listing`` returns a kernel's instructions."""
        for kernel, ran in sorted(self.ran.items()):
            instructions = listing(kernel)
            blocks = []
            for number, each in enumerate(instructions):
                if ran >> number & 1:
                    continue
                if number == 0 or ran >> (number - 1) & 1:
                    blocks.append({"offset": each.offset, "code": []})
                blocks[-1]["code"].append(each.text)
            self.coverage[kernel] = {"instructions": len(instructions), "not_executed": blocks}

    def as_json(self):
        return {
            "arch": ARCH,
            "how": ON_HARDWARE if ON_GPU else EMULATED,
            "checks": [name for name in os.environ.get("FA_FAKE_HIP_CHECKS", "").split(",") if name],
            "seed": int(os.environ.get("FA_FAKE_HIP_SEED", "0")),
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
            "coverage": self.coverage,
            "wave_instructions": self.executed,
            "findings": self.findings,
        }


class Target:
    """Where kernels run."""

    def __init__(self, fake_hip, shown):
        self.device, self.fake_hip, self.shown = torch.device("cuda" if ON_GPU else "cpu"), fake_hip, shown
        self.kernels = ()

    def attend(self, function, *args, **kwargs):
        """A function's result, and the kernels that it launched; None on a GPU, where that is unknown."""
        result = function(*args, **kwargs)
        if self.fake_hip is None:
            torch.cuda.synchronize()
            return result, None
        launches = self.fake_hip.report().launches
        self.shown.launched(launches)
        self.kernels = tuple(launch.kernel for launch in launches)
        return result, self.kernels

    def answering(self, forward):
        """The kernel that gave the last answer; ``forward`` where that is unknown."""
        return next((name for name in self.kernels if name.startswith(ATTENDING)), forward)


@pytest.fixture(scope="session")
def shown():
    found = Shown()
    yield found
    if file := os.environ.get("FA_RECORD"):
        Path(file).write_text(json.dumps(found.as_json(), indent=2) + "\n")


@pytest.fixture(scope="session")
def target(shown):
    flash_attn_rocm.set_strict(True)  # an answer that no kernel computed is a failure here
    torch.set_num_threads(1)
    if ON_GPU:
        fake_hip, path = None, nullcontext()
    else:
        from wheel_builder.fake_hip.control import FakeHip, kernels_on_host_memory

        fake_hip = FakeHip()
        path = kernels_on_host_memory(fake_hip)
    with path:
        yield Target(fake_hip, shown)
    if fake_hip is not None:
        shown.cover(fake_hip.listing)
    flash_attn_rocm.set_strict(None)

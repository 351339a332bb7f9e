"""Where the kernels of the installed wheel run, which it has, and what is kept of what they showed.

No test of its own: the wheel carries it too, for ``python -m flash_attn_rocm selftest``, where no pytest is.
"""

import os
from collections import Counter
from dataclasses import dataclass, field

import torch

from flash_attn_rocm.library import plans
from flash_attn_rocm.library.host import code_of, instances
from flash_attn_rocm.values import paths

ON_GPU = torch.cuda.is_available() and torch.version.hip is not None
EMULATED = "executed on an ISA emulator, not run on hardware"
ON_HARDWARE = "run on hardware"


def arch_of_target():
    """The arch whose machine code is under test; an emulated GPU is chosen by the environment."""
    name = (
        torch.cuda.get_device_properties(0).gcnArchName if ON_GPU else os.environ.get("FA_FAKE_HIP_ARCH", "")
    )
    if not name:
        message = "PyTorch finds no AMD GPU; without one: scripts/wheel-builder verify WHEEL"
        raise RuntimeError(message)
    return code_of(name)


ARCH = arch_of_target()
BEHIND = 16  # instructions before a block that was not executed, which reasons may ask for
ATTENDING = ("fa_fwd_", "fa_decode_", "fa_reference_", "fa_mla_")
# The wheel's kernels for this arch; a test for each.
FORWARD = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "fwd" and ARCH in i.archs})
TALL = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "fwd_tall" and ARCH in i.archs})
WIDE = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "fwd_wide" and ARCH in i.archs})
UNEVEN = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "fwd_uneven" and ARCH in i.archs})
MASKED = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "fwd_masked" and ARCH in i.archs})
LATENT = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "mla" and ARCH in i.archs})
DECODE = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == "decode" and ARCH in i.archs})
# The kernel after which a call for gradients is named: the last one, or the one that does nearly all.
BACKWARD_OP, FUSED_OP = "bwd_dq", "bwd_fused"
BACKWARD = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == BACKWARD_OP and ARCH in i.archs})
UNEVEN_OP = "bwd_dq_uneven"
UNEVEN_BACKWARD = sorted(
    {(i.dtype, i.head_dim) for i in instances() if i.op == UNEVEN_OP and ARCH in i.archs}
)
FUSED = sorted({(i.dtype, i.head_dim) for i in instances() if i.op == FUSED_OP and ARCH in i.archs})
MASKED_BACKWARD_OP = "bwd_dq_masked"
MASKED_BACKWARD = sorted(
    {(i.dtype, i.head_dim) for i in instances() if i.op == MASKED_BACKWARD_OP and ARCH in i.archs}
)
# Those that have ALiBi, softcap and dropout.
FUSED_FEATURES = frozenset(
    each
    for each in FUSED
    if str(plans.PLAN_BWD(ARCH, *each, True, False, False, paths.FUSED)).startswith(paths.FUSED)
)
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
                    behind = [other.text for other in instructions[max(0, number - BEHIND) : number]]
                    blocks.append({"offset": each.offset, "behind": behind, "code": []})
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

"""The kernels of the installed wheel, the device they run on, and the record of their results."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import torch

from flash_attn_rocm.library import plans
from flash_attn_rocm.library.host import code_of, instances
from flash_attn_rocm.values import kinds, paths

EMULATED = "executed on an ISA emulator, not run on hardware"
ON_HARDWARE = "run on hardware"
CURRENT_DEVICE = -1
ATTENDING = tuple(f"fa_{op}_" for op in kinds.ATTENDING.values())
# The op that names a gradient call: the last kernel, or the kernel with nearly all of the work.
BACKWARD_OP, FUSED_OP, UNEVEN_OP, MASKED_BACKWARD_OP = (
    kinds.GRADIENTS[each] for each in (paths.SEPARATE, paths.FUSED, kinds.UNEVEN, kinds.MASKED)
)


@cache
def on_gpu():
    return torch.cuda.is_available() and torch.version.hip is not None


@cache
def arch():
    """The arch whose machine code is under test, as the HIP runtime names it."""
    try:
        return code_of(str(torch.ops.flash_attn_rocm.device_arch(CURRENT_DEVICE)))
    except RuntimeError as error:
        message = "the HIP runtime has no AMD GPU; without one: scripts/wheel-builder verify WHEEL"
        raise RuntimeError(message) from error


@cache
def compiled(op):
    """(dtype, head_dim) of the wheel's kernels of an op for this arch."""
    return sorted(
        {(each.dtype, each.head_dim) for each in instances() if each.op == op and arch() in each.archs}
    )


def dtypes_of(op):
    return sorted({dtype for dtype, _ in compiled(op)})


@cache
def fused_with_features():
    """(dtype, head_dim) of the fused kernels with ALiBi, softcap and dropout."""
    return frozenset(
        each
        for each in compiled(FUSED_OP)
        if plans.PLAN_BWD(arch(), *each, True, False, False, paths.FUSED)[0] == paths.FUSED
    )


@dataclass
class Worst:
    """The case of one instance with the largest error in relation to the allowance."""

    share: float = 0.0
    error: float = 0.0
    allowed: float = 0.0
    case: str = ""


@dataclass
class Shown:
    """A session's results: numbers by instance, and the runtime's reports of launches."""

    worst: dict = field(default_factory=dict)
    largest: dict = field(default_factory=dict)
    worst_lse: dict = field(default_factory=dict)
    cases: Counter = field(default_factory=Counter)
    kernels: Counter = field(default_factory=Counter)
    ran: Counter = field(default_factory=Counter)
    executed: int = 0
    findings: list = field(default_factory=list)

    def compared(self, instance, case, error, allowed):
        self.cases[instance] += 1
        self.largest[instance] = max(self.largest.get(instance, 0.0), error)
        # Without keys the allowance is 0.
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


class Target:
    """The device of the kernels. ``runtime`` reports its launches, or is None."""

    def __init__(self, runtime, shown):
        self.device, self.runtime, self.shown = torch.device("cuda" if on_gpu() else "cpu"), runtime, shown
        self.kernels = ()

    def attend(self, function, *args, **kwargs):
        """A function's result and the kernels it launched, or None without a reporting runtime."""
        result = function(*args, **kwargs)
        if self.runtime is None:
            torch.cuda.synchronize()
            return result, None
        launches = self.runtime.report().launches
        self.shown.launched(launches)
        self.kernels = tuple(launch.kernel for launch in launches)
        return result, self.kernels

    def answering(self, forward):
        """The kernel of the last answer, or ``forward`` if unknown."""
        return next((name for name in self.kernels if name.startswith(ATTENDING)), forward)

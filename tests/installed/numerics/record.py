"""The results of a session, as the record read by ``verify``."""

import os
from dataclasses import dataclass, field

from flash_attn_rocm.suite.target import EMULATED, ON_HARDWARE, Shown
from here import ARCH, ON_GPU

BEHIND = 16  # instructions before an unexecuted block, for patterns in reasons


@dataclass
class Record(Shown):
    """``coverage`` has each kernel's instructions, and its unexecuted blocks."""

    coverage: dict = field(default_factory=dict)

    def cover(self, listing):
        """Unexecuted blocks of launched kernels. ``listing`` returns a kernel's instructions."""
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

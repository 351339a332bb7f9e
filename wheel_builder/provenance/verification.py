"""The form of a verification record in JSON, as far as publishing rests on it.

Anybody can write one, so reading is strict where something is concluded from it: a section has its type or is
not there, a count is a whole number from 0 on, and no key is there twice.  Keys that are not named here pass.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wheel_builder.base.strict_json import read_json
from wheel_builder.base.words import visible
from wheel_builder.images.wheel_tests import NIGHTLY_TIER
from wheel_builder.tables.archs import GPUS, code_of

# What records say of numerics: flash_attn_rocm.suite.target's words, which no record may exceed.
EMULATED = "executed on an ISA emulator, not run on hardware"
Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Instance(_Strict):
    """What was compared of one kernel."""

    cases: Count


class Shown(_Strict):
    """What was shown of one arch; ``launches`` by kernel, ``tier`` by which tests.

    ``gpus`` are those that run its code; older records name none, and their wheels serve the arch itself.
    """

    numerics: str
    gpus: list[str] = []
    passed: bool = False
    tier: str = ""
    launches: dict[str, Count] = {}
    findings: list[str] = []
    instances: dict[str, Instance] = {}
    tests: dict[str, Count] = {}
    wave_instructions: Count = 0

    def problems(self) -> list[str]:
        """What keeps it from vouching for its arch."""
        if self.passed and any(self.launches.values()) and not self.findings:
            return []
        return [*self.findings, f"did not pass: {self.numerics}"]

    @property
    def words(self) -> str:
        """What was shown and how much was run, for users."""
        if not self.passed and not self.launches:
            return self.numerics
        findings, launches = len(self.findings), sum(self.launches.values())
        suite = "by the nightly suite " if self.tier == NIGHTLY_TIER else ""
        return (
            f"{self.numerics}; {suite}{launches} launches of {len(self.launches)} kernels compared with "
            f"float64, {findings or 'no'} finding{'s' if findings > 1 else ''}"
        )


class Verification(_Strict):
    """A record about the wheel with ``sha256``; ``serves`` are ROCm versions besides its own.

    ``wheel`` is its file name.
    """

    sha256: str
    wheel: str = ""
    archs: dict[str, Shown]
    serves: list[str] = []

    @property
    def gpus(self) -> dict[str, str]:
        """For each GPU that runs code of the wheel, what was shown of that, for users."""
        borrowed = {
            gpu: f"the code of {arch}: {shown.words}"
            for arch, shown in self.archs.items()
            for gpu in shown.gpus
        }
        return borrowed | {arch: shown.words for arch, shown in self.archs.items()}

    def gpu_problems(self) -> list[str]:
        """GPUs that do not run the code of which it says so."""
        return [
            f"it says that {visible(gpu)} runs the code of {visible(arch)}, and {GPUS} does not"
            for arch, shown in self.archs.items()
            for gpu in shown.gpus
            if code_of(gpu) != arch
        ]


def read_verification(data: bytes) -> Verification:
    """The record in a file; raises ``ValueError`` with all that is wrong with it."""
    read_json(data)
    try:
        return Verification.model_validate_json(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        words = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found)
        raise ValueError("; ".join(words)) from error

"""The form of a verification record in JSON, as far as publishing depends on it.

Anybody can write one, so the parts used as proof are read strictly: a section has its type or is missing, a
count is a whole number from 0 on, and keys are unique. Unknown keys are ignored.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wheel_builder.base.strict_json import read_json
from wheel_builder.base.words import visible
from wheel_builder.images.wheel_tests import NIGHTLY_TIER
from wheel_builder.tables.archs import GPUS, code_of

# The records' words for numerics, from flash_attn_rocm.suite.target. They are the strongest allowed claim.
EMULATED = "executed on an ISA emulator, not run on hardware"
Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Instance(_Strict):
    """Comparisons made for one kernel."""

    cases: Count


class Shown(_Strict):
    """Results for one arch. ``launches`` is by kernel, ``tier`` names the tests.

    ``gpus`` run its code. Older records name none, and their wheels serve the arch itself.
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
        """Reasons why it does not vouch for its arch."""
        if self.passed and any(self.launches.values()) and not self.findings:
            return []
        return [*self.findings, f"did not pass: {self.numerics}"]

    @property
    def words(self) -> str:
        """The result and the amount of tests, for users."""
        if not self.passed and not self.launches:
            return self.numerics
        findings, launches = len(self.findings), sum(self.launches.values())
        suite = "by the nightly suite " if self.tier == NIGHTLY_TIER else ""
        return (
            f"{self.numerics}; {suite}{launches} launches of {len(self.launches)} kernels compared with "
            f"float64, {findings or 'no'} finding{'s' if findings > 1 else ''}"
        )


class Executed(_Strict):
    """Results of one candidate's code object, with ``sha256``. ``calls``: what was executed, in words.

    ``checked``: its machine code passed the static checks.
    """

    sha256: str
    numerics: str
    calls: list[str] = []
    checked: bool = False
    findings: list[str] = []

    def problems(self) -> list[str]:
        """Reasons why it does not vouch for the candidate."""
        if self.findings:
            return self.findings
        said = (
            []
            if self.numerics == EMULATED
            else [f"it says {visible(self.numerics)!r}, expected {EMULATED!r}"]
        )
        said += [] if self.calls else ["no call was executed"]
        return said if self.checked else [*said, "its machine code did not pass the static checks"]


class Verification(_Strict):
    """A record about the wheel with ``sha256``. ``serves`` are further ROCm versions.

    ``wheel`` is its file name. ``candidates``: of a distribution of candidates, by kernel and row.
    """

    sha256: str
    wheel: str = ""
    archs: dict[str, Shown]
    serves: list[str] = []
    candidates: dict[str, dict[str, Executed]] = {}

    @property
    def gpus(self) -> dict[str, str]:
        """For each GPU that runs code of the wheel, the result for users."""
        borrowed = {
            gpu: f"the code of {arch}: {shown.words}"
            for arch, shown in self.archs.items()
            for gpu in shown.gpus
        }
        return borrowed | {arch: shown.words for arch, shown in self.archs.items()}

    def gpu_problems(self) -> list[str]:
        """GPUs said to run code that they cannot run."""
        return [
            f"it says that {visible(gpu)} runs the code of {visible(arch)}, and {GPUS} does not"
            for arch, shown in self.archs.items()
            for gpu in shown.gpus
            if code_of(gpu) != arch
        ]


def read_verification(data: bytes) -> Verification:
    """The record in a file. Raises ``ValueError`` with all problems."""
    read_json(data)
    try:
        return Verification.model_validate_json(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        words = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found)
        raise ValueError("; ".join(words)) from error

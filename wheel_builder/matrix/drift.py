"""Changes upstream since matrix.yaml was written: torch, and the distribution's ROCm.

Each function returns its findings as text. A failed lookup is not a finding.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from wheel_builder.base.errors import DriftError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import MANIFEST
from wheel_builder.matrix.model import Package, Rocm

# Debian's package of the HIP runtime. Its version is the ROCm version.
HIP = "libamdhip64-dev"


def torch_drift(package: Package, *, run: Runner = run) -> list[str]:
    """Whether pip finds a newer torch than the one whose headers are used.

    Raises ``CommandFailedError`` when pip finds none.
    """
    argv = [sys.executable, "-m", "pip", "index", "versions", "torch", "--disable-pip-version-check"]
    newest = newest_release(run(argv, advice="pip has to find torch: pip config").stdout)
    if newest is None or newest <= Version(package.torch_headers):
        return []
    known = f"matrix.yaml has torch_headers {package.torch_headers}"
    return [f"torch {newest} is there, {known}: build and verify with it, then change matrix.yaml"]


def newest_release(listed: str) -> Version | None:
    """The newest final release in the output of ``pip index versions``."""
    [line] = [line for line in listed.splitlines() if line.startswith("Available versions:")] or [":"]
    found = list(_versions(line.partition(":")[2]))
    return max(found, default=None)


def rocm_drift(rocm: Rocm, packages: Mapping[str, str]) -> list[str]:
    """Whether the distribution's packages (name -> exact version) are a different ROCm by now."""
    if HIP not in packages:
        return []
    found = re.sub(r"^\d+:", "", packages[HIP])
    if re.match(rf"{re.escape(rocm.version)}(?!\d)", found):
        return []
    advice = "pin the packages in matrix.yaml, or name the row after what it builds now"
    return [f"the image of ROCm {rocm.version} has {HIP} {found}: {advice}"]


def packages_of(image: Path) -> Mapping[str, str]:
    """The packages in a stored image's manifest."""
    facts = json.loads((image / MANIFEST).read_text(encoding="utf-8"))["facts"]
    packages: Mapping[str, str] = facts["packages"]
    return packages


def refuse_drift(findings: Sequence[str]) -> None:
    """Raise ``DriftError`` with all findings, if there are any."""
    if findings:
        title = "the inputs of wheels have changed upstream"
        raise DriftError(title, findings, advice="decide for each line; published files stay unchanged")


def _versions(text: str) -> Iterator[Version]:
    for word in text.split(","):
        try:
            version = Version(word.strip())
        except InvalidVersion:
            continue
        if not version.is_prerelease:
            yield Version(version.public)

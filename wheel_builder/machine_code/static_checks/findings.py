"""A static check's finding about one kernel."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``fails`` is false for reports that still accept a wheel."""

    check: str
    arch: str
    kernel: str
    text: str
    fails: bool = True

    def __str__(self) -> str:
        return f"{self.arch} {self.kernel}: {self.text}"

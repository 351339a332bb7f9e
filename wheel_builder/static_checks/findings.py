"""What a static check has to say of one kernel."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``fails`` is false for what a reader should know but no wheel is refused for."""

    check: str
    arch: str
    kernel: str
    text: str
    fails: bool = True

    def __str__(self) -> str:
        return f"{self.arch} {self.kernel}: {self.text}"

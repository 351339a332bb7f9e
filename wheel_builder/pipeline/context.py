"""Where a run reads and writes, and how."""

from dataclasses import dataclass, field
from pathlib import Path

from wheel_builder.base.store import Artifact, Store
from wheel_builder.images.hostenv import HostSettings


@dataclass(frozen=True)
class RunContext:
    """The places of a run's input and output: stages' results in ``build``, finished wheels in ``dist``.

    ``cache`` is the compilers' cache, shared between runs and machines; None for no cache. ``used`` collects
    the results that the run made or found.
    """

    checkout: Path
    build: Path
    dist: Path
    index: Path
    jobs: int
    install_engine: bool = False
    torch_index: str = ""
    host: HostSettings | None = None
    cache: Path | None = None
    used: list[Artifact] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return Store(self.build, self.used)

    @property
    def logs(self) -> Path:
        return self.build / "logs"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

"""Every failure reported by the pipeline, each with its own exit code.

A message says the failed step, the expected and found values, and the next step for the user.
"""

import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self


class WheelBuilderError(Exception):
    """Base of all failures with a message for the user. ``cli`` prints it without a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.advice}" if self.advice else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle without the constructor: errors from other processes arrive whole."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[WheelBuilderError], args: tuple[Any, ...]) -> WheelBuilderError:
    error = kind.__new__(kind)
    error.args = args
    return error


class ProblemsError(WheelBuilderError):
    """Several problems of one kind, reported together."""

    def __init__(self, title: str, problems: Iterable[str], *, advice: str = "") -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([title, *(f"  - {p}" for p in self.problems)]), advice=advice)


class ToolsError(WheelBuilderError):
    """Packages of requirements.txt are missing from this Python."""

    exit_code = 13

    @classmethod
    def of(cls, error: ModuleNotFoundError, argv: Sequence[str]) -> Self:
        message = f"the Python tools are not installed for {sys.executable}: it has no {error.name}"
        return cls(message, advice=f"this installs them in .venv: scripts/wheel-builder {shlex.join(argv)}")


class MatrixError(ProblemsError):
    """matrix.yaml is invalid."""

    exit_code = 10


class SelectionError(ProblemsError):
    """The command line names something absent from matrix.yaml."""

    exit_code = 11


class ArchError(ProblemsError):
    """The kernels' table of archs cannot be read, or lacks an arch."""

    exit_code = 12


class TileError(ProblemsError):
    """The table of tiles cannot be read, or lacks a row."""

    exit_code = 14


class KindError(ProblemsError):
    """The table of kinds of kernels cannot be read."""

    exit_code = 16


class TuningError(ProblemsError):
    """The rules of tuning cannot be read."""

    exit_code = 17


class CallError(ProblemsError):
    """The description of calls cannot be read."""

    exit_code = 15


class ToolMissingError(WheelBuilderError):
    """A program needed by a stage is missing or too old."""

    exit_code = 20


class CommandFailedError(WheelBuilderError):
    """A program run by a stage failed."""

    exit_code = 21


class EngineError(WheelBuilderError):
    """The container engine is unreachable."""

    exit_code = 22


class ImageError(WheelBuilderError):
    """An image could not be built, or the check inside it failed."""

    exit_code = 30


class DeviceCodeError(ProblemsError):
    """Device code does not compile, or differs from the support table."""

    exit_code = 31


class WheelError(WheelBuilderError):
    """cibuildwheel left zero or several wheels."""

    exit_code = 32


class RepairError(WheelBuilderError):
    """auditwheel could not give the wheel its declared tag."""

    exit_code = 33


class AuditError(ProblemsError):
    """The finished wheel breaks one or more audit rules."""

    exit_code = 34


class VerifyError(WheelBuilderError):
    """The wheel failed its tests in the verify container."""

    exit_code = 35


class PublishError(ProblemsError):
    """The index refuses a file, cannot be written, or has faults."""

    exit_code = 36


class StaticCheckError(ProblemsError):
    """The disassembly of a wheel's kernels breaks a static check."""

    exit_code = 37


class StoreError(WheelBuilderError):
    """A stage's stored result differs from its manifest."""

    exit_code = 40


class ElfError(WheelBuilderError):
    """The bytes are not a readable ELF file."""

    exit_code = 41


class PeError(WheelBuilderError):
    """The bytes are not a readable DLL for 64-bit Windows."""

    exit_code = 58


class FatbinError(WheelBuilderError):
    """The bytes are not a sequence of offload bundles for AMD GPUs, in the expected form."""

    exit_code = 42


class WheelFileError(ProblemsError):
    """The file cannot be opened safely as a wheel."""

    exit_code = 43


class EmulatorBuildError(WheelBuilderError):
    """The emulator's core does not compile, or does not match this Python code."""

    exit_code = 44


class EmulatorError(WheelBuilderError):
    """A code object could not be loaded, or its execution stopped early."""

    exit_code = 45


class FindingsError(ProblemsError):
    """An emulated kernel stopped, gave wrong numbers, or the sanitizers found errors in it."""

    exit_code = 46


class PerfError(ProblemsError):
    """The performance models lack numbers for an instruction, arch or launch."""

    exit_code = 47


class CaseError(ProblemsError):
    """The shapes given for an emulated kernel contradict each other."""

    exit_code = 48


class ProvenanceError(ProblemsError):
    """A wheel's provenance statement is missing, or disagrees with the wheel."""

    exit_code = 49


class RebuildError(ProblemsError):
    """A wheel cannot be rebuilt from its statement, or the rebuilt one differs."""

    exit_code = 50


class ReleaseError(ProblemsError):
    """Some jobs of a release failed. The others are done."""

    exit_code = 51


class DriftError(ProblemsError):
    """Upstream has moved away from matrix.yaml."""

    exit_code = 52


class FilesError(WheelBuilderError):
    """The operating system refused to read or write a file: a full disk, missing rights, a wrong name."""

    exit_code = 53


class LogError(WheelBuilderError):
    """A build's log cannot be read."""

    exit_code = 54


class GateError(ProblemsError):
    """Kernels of upstream lack required instructions."""

    exit_code = 55


class UpstreamError(ProblemsError):
    """Upstream's flash-attn cannot be fetched or built."""

    exit_code = 56


class DocsError(ProblemsError):
    """The documentation site cannot be built."""

    exit_code = 57


class CostError(ProblemsError):
    """Steps of a release, or tests, cost more than was accepted."""

    exit_code = 60


class TuneError(ProblemsError):
    """A kernel cannot be tuned, or a candidate's rows gave no figures."""

    exit_code = 61

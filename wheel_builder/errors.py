"""Every failure the pipeline reports, each with its own exit code.

A message says what failed, what was expected and found, and what to do next.
"""

from collections.abc import Iterable
from typing import Any

FILES_ADVICE = (
    "make room (df -h) or give this user the rights, then run the same command again; finished steps are kept"
)


class WheelBuilderError(Exception):
    """Base of all failures with a message for the user; ``cli`` prints it without a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.advice}" if self.advice else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors of other processes arrive whole, whatever their constructors take."""
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


class MatrixError(ProblemsError):
    """matrix.yaml does not say what it may say."""

    exit_code = 10


class SelectionError(ProblemsError):
    """The command line asks for something that matrix.yaml does not have."""

    exit_code = 11


class ToolMissingError(WheelBuilderError):
    """A program that a stage needs is not there or too old."""

    exit_code = 20


class CommandFailedError(WheelBuilderError):
    """A program that a stage ran ended with an error."""

    exit_code = 21


class EngineError(WheelBuilderError):
    """No container engine answers."""

    exit_code = 22


class ImageError(WheelBuilderError):
    """An image could not be built, or the check inside it failed."""

    exit_code = 30


class DeviceCodeError(ProblemsError):
    """Device code does not compile, or is not what the support table says."""

    exit_code = 31


class WheelError(WheelBuilderError):
    """cibuildwheel did not leave exactly one wheel."""

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
    """The index refuses what was to be published, could not be written, or has faults."""

    exit_code = 36


class StaticCheckError(ProblemsError):
    """The disassembly of a wheel's kernels shows what must not be shipped."""

    exit_code = 37


class StoreError(WheelBuilderError):
    """A stage's stored result is not what its manifest says."""

    exit_code = 40


class ElfError(WheelBuilderError):
    """The bytes are not an ELF file that can be read."""

    exit_code = 41


class FatbinError(WheelBuilderError):
    """The bytes are not a row of uncompressed offload bundles for AMD GPUs."""

    exit_code = 42


class WheelFileError(ProblemsError):
    """The file is not a wheel that can be opened safely."""

    exit_code = 43


class EmulatorBuildError(WheelBuilderError):
    """The emulator's core does not compile, or is not the one that this Python was written for."""

    exit_code = 44


class EmulatorError(WheelBuilderError):
    """A code object could not be loaded, or its execution had to stop."""

    exit_code = 45


class FindingsError(ProblemsError):
    """An emulated kernel stopped, gave wrong numbers, or the sanitizers found errors in it."""

    exit_code = 46


class PerfError(ProblemsError):
    """An instruction, an arch or a launch that the models have no numbers for."""

    exit_code = 47


class CaseError(ProblemsError):
    """The shapes that a kernel is to be emulated with do not go together."""

    exit_code = 48


class ProvenanceError(ProblemsError):
    """A wheel's provenance statement is missing, or does not agree with the wheel."""

    exit_code = 49


class RebuildError(ProblemsError):
    """A wheel cannot be built again from its statement, or the new one is not the same."""

    exit_code = 50


class ReleaseError(ProblemsError):
    """One or more jobs of a release failed; the others were carried out."""

    exit_code = 51


class DriftError(ProblemsError):
    """Upstream has moved away from matrix.yaml."""

    exit_code = 52


class FilesError(WheelBuilderError):
    """The operating system refused to read or write a file: a full disk, missing rights."""

    exit_code = 53

    @classmethod
    def of(cls, error: OSError) -> "FilesError":
        """The same failure in words, with its notes."""
        where = f"{error.filename}: " if error.filename is not None else ""
        message = f"{where}expected to read or write a file, found: {error.strerror or error}"
        made = cls(message, advice=FILES_ADVICE)
        for note in getattr(error, "__notes__", []):
            made.add_note(note)
        return made

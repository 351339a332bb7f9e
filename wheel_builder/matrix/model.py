"""The values that the pipeline passes around: frozen data without behaviour."""

from dataclasses import dataclass
from typing import Literal

from wheel_builder.base.products import Product

Provider = Literal["debian", "vendor"]
# The name of the distribution on every index.
PROJECT = "flash-attn-rocm"
# One spelling for each version: 7.01 and 07.1 would be further names for 7.1.
VERSION = r"[1-9][0-9]?\.(0|[1-9][0-9]?)"


@dataclass(frozen=True)
class Arch(Product):
    """A GPU that wheels hold code for; ``code_object`` names whose, "" its own.

    ``torch_override`` is the HSA_OVERRIDE_GFX_VERSION that PyTorch's builds need on it, "" for none.
    """

    code_object: str = ""
    torch_override: str = ""

    @property
    def code(self) -> str:
        """Whose machine code it runs."""
        return self.code_object or self.name


@dataclass(frozen=True)
class OtherArch(Product):
    """A GPU that no wheel holds code for, and why."""

    reason: str = ""


@dataclass(frozen=True)
class Rocm:
    """One ROCm version and the image that its wheel is built in.

    ``base`` is pulled when a registry answers; for provider ``debian`` it is made with mmdebstrap
    from ``suite`` when none does.  ``packages`` maps a Debian suite to what is installed from it.
    ``llvm`` is the folder of the LLVM tools inside the finished image.
    """

    version: str
    provider: Provider
    base: str
    llvm: str
    archs: tuple[str, ...]
    suite: str = ""
    packages: tuple[tuple[str, tuple[str, ...]], ...] = ()
    built_in_ci: bool = True
    note: str = ""


@dataclass(frozen=True)
class Package:
    """What every wheel promises, whatever its ROCm version."""

    torch_floor: str
    torch_headers: str
    torch_headers_sha256: str
    platform_tag: str
    max_wheel_mib: float


@dataclass(frozen=True)
class Exclude:
    """A part of the matrix that is not built; ``arch`` empty means the whole ROCm version."""

    rocm: str
    reason: str
    arch: str = ""


@dataclass(frozen=True)
class NotBuilt:
    """GPUs that no wheel holds code for, and why."""

    archs: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Upstream:
    """Upstream's flash-attn with its Composable Kernel (CK) backend: the source distribution and its hash.

    ``archs`` are those that its build accepts and that its kernels have matrix instructions for.
    """

    version: str
    sha256: str
    archs: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """matrix.yaml, checked, with the products of its GPUs from kernels/archs/gpus.toml.

    ``archs`` and ``other_archs`` are GPUs, in that table's order; ``rocm`` has names of code objects.
    """

    default_rocm: str
    package: Package
    archs: tuple[Arch, ...]
    rocm: tuple[Rocm, ...]
    exclude: tuple[Exclude, ...]
    upstream: Upstream
    other_archs: tuple[OtherArch, ...] = ()


@dataclass(frozen=True)
class Selection:
    """What the command line asks for; empty means the default ROCm version and all its archs."""

    rocm: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    all_rocm: bool = False


@dataclass(frozen=True)
class Job:
    """One wheel: a ROCm version and the archs whose code it holds."""

    rocm: Rocm
    archs: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"rocm{self.rocm.version}"


@dataclass(frozen=True)
class Rejection:
    """A combination that is not built, and why."""

    rocm: str
    arch: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """What will be built, and what was rejected."""

    jobs: tuple[Job, ...]
    rejected: tuple[Rejection, ...]
    package: Package

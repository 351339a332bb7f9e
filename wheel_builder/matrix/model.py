"""The values that the pipeline passes around: frozen data without behaviour."""

import re
from dataclasses import dataclass
from typing import Literal

from wheel_builder.tables.products import Product

Provider = Literal["debian", "vendor"]
# The name of the distribution on every index.
PROJECT = "flash-attn-rocm"
# What the wheel for every ROCm version is called where others have theirs: --rocm, folders of an index.
PUBLIC = "public"
# The folders of an index with pages for installers, and with pages for those that know variants of wheels.
SIMPLE, VARIANTS = "simple", "variants"
# What releases on this machine write, and what others are given: never one folder.
LOCAL_INDEX, PUBLIC_INDEX = "dist/index", "dist/public"
# The platforms of wheels, and the tag of those for Windows.
LINUX, WINDOWS = "linux", "windows"
PLATFORMS = (LINUX, WINDOWS)
WINDOWS_TAG = "win_amd64"
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
class Public:
    """The wheel for every ROCm version, whose own version has no local label.

    ``built_with`` names the row of ``rocm`` with its image and device code, ``runtimes`` those under whose
    HIP runtimes it has to load, the oldest first. ``like`` has, for some of these, ROCm versions of PyTorch's
    builds that bring a runtime of the same ABI: the same libamdhip64.so.N. ``windows`` are the archs that
    ROCm serves on Windows, whose code the wheel for Windows has.
    """

    built_with: str
    runtimes: tuple[str, ...]
    like: tuple[tuple[str, tuple[str, ...]], ...] = ()
    windows: tuple[str, ...] = ()

    @property
    def oldest(self) -> str:
        return self.runtimes[0]

    @property
    def fits(self) -> tuple[str, ...]:
        """Every ROCm version that it is for."""
        return (*self.runtimes, *(version for _, versions in self.like for version in versions))


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
class Addresses:
    """Where the project is found; empty is what is not public."""

    repository: str = ""
    issues: str = ""
    index: str = ""
    security: str = ""

    @property
    def of_github(self) -> str:
        """OWNER/REPOSITORY, as gh takes it, of a repository there; these words for any other."""
        found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", self.repository)
        return found[1] if found else "OWNER/REPOSITORY"

    @property
    def reports(self) -> str:
        """The end of a sentence that asks for a report."""
        return f": {self.issues}" if self.issues else " (no address for reports is public yet)"


@dataclass(frozen=True)
class Matrix:
    """matrix.yaml, checked, with the products of its GPUs from kernels/tables/gpus.toml.

    ``archs`` and ``other_archs`` are GPUs, in that table's order; ``rocm`` has names of code objects.
    """

    default_rocm: str
    package: Package
    archs: tuple[Arch, ...]
    rocm: tuple[Rocm, ...]
    exclude: tuple[Exclude, ...]
    upstream: Upstream
    public: Public
    other_archs: tuple[OtherArch, ...] = ()
    addresses: Addresses = Addresses()


@dataclass(frozen=True)
class Selection:
    """What the command line asks for; empty means ``default_rocm`` of matrix.yaml and all its archs.

    ``rocm`` may hold ``PUBLIC``, and ``all_rocm`` includes it; ``platforms`` are some of ``PLATFORMS``.
    """

    rocm: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    all_rocm: bool = False
    platforms: tuple[str, ...] = (LINUX,)


@dataclass(frozen=True)
class Job:
    """One wheel: the archs whose code it holds, and the ROCm version that they are compiled with.

    ``public`` when it is the wheel for every ROCm version, as that for Windows always is.
    """

    rocm: Rocm
    archs: tuple[str, ...]
    public: Public | None = None
    platform: str = LINUX

    @property
    def name(self) -> str:
        """What ``--rocm`` and the index call it."""
        return PUBLIC if self.public else self.rocm.version

    @property
    def id(self) -> str:
        name = PUBLIC if self.public else self.builder
        return name if self.platform == LINUX else f"{name}-{self.platform}"

    @property
    def builder(self) -> str:
        """The job that its image and device code are from, which may be its own."""
        return f"rocm{self.rocm.version}"

    @property
    def label(self) -> str:
        """The local label of the wheel's version; "" for none."""
        return "" if self.public else self.builder

    @property
    def for_windows(self) -> bool:
        return self.platform == WINDOWS

    @property
    def under_every_runtime(self) -> bool:
        """Whether its wheel is loaded under all ``runtimes`` of ``public``, as only the one for Linux is."""
        return self.public is not None and not self.for_windows

    def platform_tag(self, package: Package) -> str:
        """The platform in the wheel's tag."""
        return WINDOWS_TAG if self.for_windows else package.platform_tag


@dataclass(frozen=True)
class Rejection:
    """A combination that is not built, and why; ``rocm`` may be ``PUBLIC``."""

    rocm: str
    arch: str
    reason: str
    platform: str = LINUX


@dataclass(frozen=True)
class Plan:
    """What will be built, and what was rejected.

    ``runtimes`` are jobs that make no wheel here: under the HIP runtimes in their images the public wheel is
    loaded, too.
    """

    jobs: tuple[Job, ...]
    rejected: tuple[Rejection, ...]
    package: Package
    runtimes: tuple[Job, ...] = ()

    @property
    def with_images(self) -> tuple[Job, ...]:
        """All whose builder images are made."""
        return (*self.jobs, *self.runtimes)


def simple_below(home: str) -> str:
    """The folder of an index that ``--index-url`` names for a ROCm version, or for ``PUBLIC``."""
    return f"{_home(home)}/{SIMPLE}"


def variants_below(home: str) -> str:
    """The same for installers that know variants of wheels."""
    return f"{_home(home)}/{VARIANTS}"


def _home(home: str) -> str:
    return PUBLIC if home == PUBLIC else f"rocm{home}"


def platform_of(filename: str) -> str:
    """The platform that a wheel's file name says, one of ``PLATFORMS``."""
    return WINDOWS if filename.endswith(f"{WINDOWS_TAG}.whl") else LINUX


def wheel_words(name: str, platform: str = LINUX) -> str:
    """A job's ``name`` in words: "ROCm 7.2", "the public wheel for Windows"."""
    words = "the public wheel" if name == PUBLIC else f"ROCm {name}"
    return words if platform == LINUX else f"{words} for Windows"

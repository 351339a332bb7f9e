"""The pipeline's values: frozen data without behaviour."""

import re
from dataclasses import dataclass
from typing import Literal

from wheel_builder.tables.products import Product

Provider = Literal["debian", "vendor"]
# The name of the distribution on every index.
PROJECT = "flash-attn-rocm"
# The public wheel supports every ROCm version. Options (--rocm) and folders of an index call it this.
PUBLIC = "public"
# Folders of an index: pages for all installers, pages for installers that support wheel variants.
SIMPLE, VARIANTS = "simple", "variants"
# The local index takes releases of this machine. The public index is for users. They must be two folders.
LOCAL_INDEX, PUBLIC_INDEX = "dist/index", "dist/public"
# The platforms of wheels, and the tag of Windows wheels.
LINUX, WINDOWS = "linux", "windows"
PLATFORMS = (LINUX, WINDOWS)
WINDOWS_TAG = "win_amd64"
# Each version has only one spelling: 7.01 and 07.1 are refused for 7.1.
VERSION = r"[1-9][0-9]?\.(0|[1-9][0-9]?)"


@dataclass(frozen=True)
class Arch(Product):
    """A GPU with code in wheels. ``code_object`` is the arch of that code, "" for its own.

    ``torch_override``: the HSA_OVERRIDE_GFX_VERSION that PyTorch's builds need on it, or "".
    """

    code_object: str = ""
    torch_override: str = ""

    @property
    def code(self) -> str:
        """The arch of its machine code."""
        return self.code_object or self.name


@dataclass(frozen=True)
class OtherArch(Product):
    """A GPU without code in wheels, and why."""

    reason: str = ""


@dataclass(frozen=True)
class Rocm:
    """One ROCm version and its wheel's builder image.

    ``base`` is pulled when a registry answers. Otherwise provider ``debian`` makes it from ``suite`` with
    mmdebstrap. ``packages`` maps a Debian suite to the packages installed from it. ``llvm`` is the folder of
    the LLVM tools inside the finished image.
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
    """The wheel for every ROCm version. Its version has no local label.

    ``built_with``: the row of ``rocm`` with its image and device code. ``runtimes``: the HIP runtimes that
    must load it, the oldest first. ``like``: for some of these runtimes, the ROCm versions of PyTorch builds
    that bring a runtime of the same ABI (the same libamdhip64.so.N). ``windows``: the archs supported by ROCm
    on Windows. The wheel for Windows has their code.
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
        """Every supported ROCm version."""
        return (*self.runtimes, *(version for _, versions in self.like for version in versions))


@dataclass(frozen=True)
class Package:
    """Promises of every wheel, for all ROCm versions."""

    torch_floor: str
    torch_headers: str
    torch_headers_sha256: str
    platform_tag: str
    max_wheel_mib: float

    @property
    def glibc(self) -> str:
        """The oldest supported glibc: "2.28" of manylinux_2_28_x86_64."""
        return ".".join(self.platform_tag.split("_")[1:3])


@dataclass(frozen=True)
class Exclude:
    """An excluded part of the matrix. An empty ``arch`` means the whole ROCm version."""

    rocm: str
    reason: str
    arch: str = ""


@dataclass(frozen=True)
class NotBuilt:
    """GPUs without code in wheels, and why."""

    archs: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Upstream:
    """Upstream's flash-attn with its Composable Kernel (CK) backend: the source distribution and its hash.

    ``archs``: those accepted by its build and covered by its kernels' matrix instructions.
    """

    version: str
    sha256: str
    archs: tuple[str, ...]


@dataclass(frozen=True)
class Addresses:
    """The project's addresses, empty for those not public."""

    repository: str = ""
    issues: str = ""
    index: str = ""
    security: str = ""

    @property
    def of_github(self) -> str:
        """OWNER/REPOSITORY, the form used by gh, for a repository on GitHub, or these words for others."""
        found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", self.repository)
        return found[1] if found else "OWNER/REPOSITORY"

    @property
    def reports(self) -> str:
        """The end of a sentence that asks for a report."""
        return f": {self.issues}" if self.issues else " (no address for reports is public yet)"


@dataclass(frozen=True)
class Matrix:
    """matrix.yaml, checked, with the products of its GPUs from kernels/tables/gpus.toml.

    ``archs`` and ``other_archs`` are GPUs, in that table's order. ``rocm`` has names of code objects, as does
    ``tuning``: releases make the distributions of candidates of these.
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
    tuning: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """The selection of the command line. Empty means ``default_rocm`` of matrix.yaml and all its archs.

    ``rocm`` may hold ``PUBLIC``, and ``all_rocm`` includes it. ``platforms`` is a subset of ``PLATFORMS``.
    """

    rocm: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    all_rocm: bool = False
    platforms: tuple[str, ...] = (LINUX,)


@dataclass(frozen=True)
class Job:
    """One wheel: the archs of its code, and the ROCm version of their compiler.

    ``public``: the wheel for every ROCm version. Wheels for Windows are always public.
    """

    rocm: Rocm
    archs: tuple[str, ...]
    public: Public | None = None
    platform: str = LINUX

    @property
    def name(self) -> str:
        """Its name in ``--rocm`` and in the index."""
        return PUBLIC if self.public else self.rocm.version

    @property
    def id(self) -> str:
        name = PUBLIC if self.public else self.builder
        return name if self.platform == LINUX else f"{name}-{self.platform}"

    @property
    def builder(self) -> str:
        """The job with its image and device code, perhaps its own."""
        return f"rocm{self.rocm.version}"

    @property
    def label(self) -> str:
        """The local label of the wheel's version, or ""."""
        return "" if self.public else self.builder

    @property
    def for_windows(self) -> bool:
        return self.platform == WINDOWS

    @property
    def under_every_runtime(self) -> bool:
        """Whether its wheel must load under all ``runtimes`` of ``public``: true for the public Linux
        wheel."""
        return self.public is not None and not self.for_windows

    def platform_tag(self, package: Package) -> str:
        """The platform in the wheel's tag."""
        return WINDOWS_TAG if self.for_windows else package.platform_tag


@dataclass(frozen=True)
class Rejection:
    """A rejected combination, and why. ``rocm`` may be ``PUBLIC``."""

    rocm: str
    arch: str
    reason: str
    platform: str = LINUX


@dataclass(frozen=True)
class Plan:
    """The wheels to build, and rejections.

    ``runtimes`` are jobs that make no wheel here. The HIP runtimes in their images load the public wheel.
    """

    jobs: tuple[Job, ...]
    rejected: tuple[Rejection, ...]
    package: Package
    runtimes: tuple[Job, ...] = ()

    @property
    def with_images(self) -> tuple[Job, ...]:
        """All jobs with builder images."""
        return (*self.jobs, *self.runtimes)


def simple_below(home: str) -> str:
    """The folder of an index for ``--index-url``, for a ROCm version or ``PUBLIC``."""
    return f"{_home(home)}/{SIMPLE}"


def variants_below(home: str) -> str:
    """The folder of an index for installers that support wheel variants."""
    return f"{_home(home)}/{VARIANTS}"


def _home(home: str) -> str:
    return PUBLIC if home == PUBLIC else f"rocm{home}"


def platform_of(filename: str) -> str:
    """The platform in a wheel's file name, one of ``PLATFORMS``."""
    return WINDOWS if filename.endswith(f"{WINDOWS_TAG}.whl") else LINUX


def wheel_words(name: str, platform: str = LINUX) -> str:
    """A job's ``name`` in words: "ROCm 7.2", "the public wheel for Windows"."""
    words = "the public wheel" if name == PUBLIC else f"ROCm {name}"
    return words if platform == LINUX else f"{words} for Windows"

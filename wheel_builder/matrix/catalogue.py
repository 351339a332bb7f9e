"""The index's data on GPUs and ROCm versions, with reasons for those that have no wheel. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from wheel_builder.matrix.hardware import HardwareRun
from wheel_builder.matrix.model import PUBLIC, WINDOWS, Addresses, Arch, Matrix, Selection
from wheel_builder.matrix.plan import NOT_ON_WINDOWS, plan
from wheel_builder.tables.products import NOT_WINDOWS, Product, device_names

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"  # it makes a GPU report itself as another arch
UNKNOWN_ON_WINDOWS = "HIP's runtime for Windows does not know the GPU"


@dataclass(frozen=True)
class Gpu:
    """One gfx arch, its devices' full names, and the reason if wheels hold no code for it ("" if they do).

    ``code_names``: its chips. ``processors``: CPUs that contain it. ``pci_ids``: its device numbers.
    ``elsewhere``: other projects' support. ``code_object``: the arch whose machine code it runs, "" for its
    own.
    ``torch_override``: the value of HSA_OVERRIDE_GFX_VERSION that PyTorch's builds need on it, as they lack
    its kernels. ``not_with``: ROCm versions, and ``WINDOWS``, with the reason why no wheel supports it there.
    """

    arch: str
    devices: tuple[str, ...]
    reason: str = ""
    code_names: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    code_object: str = ""
    torch_override: str = ""
    not_with: tuple[tuple[str, str], ...] = ()
    pci_ids: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The arch whose machine code it runs."""
        return self.code_object or self.arch

    @property
    def override(self) -> str:
        """The shell command needed before PyTorch runs on it, "" if none."""
        return f"export {OVERRIDE}={self.torch_override}" if self.torch_override else ""


@dataclass(frozen=True)
class MissingRocm:
    """A ROCm version that has no wheel, and why."""

    version: str
    reason: str


@dataclass(frozen=True)
class Torch:
    """``floor`` is the oldest supported torch, ``tested`` the one that the tests run with."""

    floor: str
    tested: str


@dataclass(frozen=True)
class Catalogue:
    """matrix.yaml as users of the index see it. ``built_rocm`` are the ROCm versions that have a wheel.

    ``public_rocm``: the versions supported by the public wheel. ``public_built_with``: its compiler's
    version.
    ``hardware``: reports from users' GPUs, the newest first.
    """

    gpus: tuple[Gpu, ...]
    missing_rocm: tuple[MissingRocm, ...]
    torch: Torch
    built_rocm: tuple[str, ...] = ()
    hardware: tuple[HardwareRun, ...] = ()
    public_rocm: tuple[str, ...] = ()
    public_built_with: str = ""
    addresses: Addresses = field(default_factory=Addresses)


def catalogue_of(matrix: Matrix, hardware: tuple[HardwareRun, ...] = ()) -> Catalogue:
    """The catalogue of a matrix, in the matrix's order."""
    built = (
        replace(
            _gpu(arch),
            code_object=arch.code,
            torch_override=arch.torch_override,
            not_with=tuple(_not_with(arch, matrix)),
        )
        for arch in matrix.archs
        if arch.devices
    )
    others = (_gpu(other, other.reason) for other in matrix.other_archs)
    planned = plan(matrix, Selection(all_rocm=True))
    return Catalogue(
        gpus=(*built, *others),
        missing_rocm=tuple(
            MissingRocm(rejection.rocm, rejection.reason)
            for rejection in planned.rejected
            if not rejection.arch and rejection.rocm != PUBLIC
        ),
        torch=Torch(matrix.package.torch_floor, matrix.package.torch_headers),
        built_rocm=tuple(job.rocm.version for job in planned.jobs if not job.public),
        hardware=hardware,
        public_rocm=matrix.public.fits,
        public_built_with=matrix.public.built_with,
        addresses=matrix.addresses,
    )


def _not_with(arch: Arch, matrix: Matrix) -> Iterator[tuple[str, str]]:
    yield from ((one.rocm, one.reason) for one in matrix.exclude if one.arch == arch.code)
    if arch.code not in matrix.public.windows:
        yield WINDOWS, NOT_ON_WINDOWS
    elif NOT_WINDOWS in device_names(arch.elsewhere):
        yield WINDOWS, UNKNOWN_ON_WINDOWS


def _gpu(product: Product, reason: str = "") -> Gpu:
    lists = (product.devices, product.code_names, product.processors, product.pci_ids, product.elsewhere)
    devices, chips, processors, numbers, elsewhere = map(device_names, lists)
    return Gpu(product.name, devices, reason, chips, processors, pci_ids=numbers, elsewhere=elsewhere)

"""The sources of a commit, as inputs of its wheels.

``wheel_inputs.toml`` in the commit lists the inputs of its wheels. So old commits stay readable when the list
changes. The commits of version 0.1.0 lack this file: ``FIRST_*`` describe them.
"""

import re
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from wheel_builder.base.errors import AuditError, MatrixError, StoreError, WheelBuilderError
from wheel_builder.base.process import run
from wheel_builder.base.store import sha256_file, sha256_tree
from wheel_builder.build import wheel_inputs
from wheel_builder.build.product import Product, read_product
from wheel_builder.build.shim import SHIMS, Shim, shim_digest
from wheel_builder.build.source import PATHS, constant, git_of, read_flags
from wheel_builder.build.wheel_inputs import read_inputs, sources_digest
from wheel_builder.build.zstd import PINS, Zstd, read_pins
from wheel_builder.matrix.document import read_document
from wheel_builder.matrix.model import LINUX, WINDOWS, WINDOWS_TAG
from wheel_builder.provenance.standing import commit_problem

CHECKOUT = Path(__file__).parents[2]
MATRIX, REQUIREMENTS = "matrix.yaml", "builder-requirements.txt"
WRITING_SBOM = ("wheel_builder/build/sbom.py", "wheel_builder/build/packages.py")

# 0.1.0: the files that keyed wheels, the files behind the digest in SBOM and statement, and the module with
# SOURCE_DATE_EPOCH.
FIRST_SOURCES = ("pyproject.toml", "LICENSE", "kernels", "wheel_builder")
FIRST_CONTENT = ("kernels", "LICENSE")
FIRST_EPOCH = "wheel_builder/stages/wheel.py"


class Base(NamedTuple):
    """Inputs of an image: a base to pull, or a suite to make it from, and names of packages."""

    ref: str
    suite: str
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Recipe:
    """A commit's build recipe. ``llvm`` is by ROCm version, digests are sha256.

    ``requirements``: digest of the builder images' requirements file. ``pins``: its text. ``zig``: its pinned
    release. ``bases``: inputs of images by ROCm version. ``public``: the ROCm version of the public wheel's
    build.
    """

    flags: Mapping[str, Sequence[str]]
    llvm: Mapping[str, str]
    platform_tag: str
    source_date_epoch: str
    torch_headers: str
    torch_headers_sha256: str
    requirements: str
    zig: str
    zstd: Zstd | None
    bases: Mapping[str, Base] = field(default_factory=dict)
    pins: str = ""
    public: str = ""


def _pinned(requirements: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}==(\S+)", requirements, re.MULTILINE)
    if found is None:
        message = f"{REQUIREMENTS} does not pin {name}"
        raise ValueError(message)
    return found[1]


class ShimSources(NamedTuple):
    """``product`` is the reason if it is unknown. ``digest`` is the sha256 over the sources."""

    product: Product | str
    digest: str


NO_SOURCES = ShimSources("it has none", "none")


@dataclass(frozen=True)
class Tree:
    """The sources of a commit: ``sources`` is the digest that keys wheels, ``content`` the one in their
    SBOM.

    Both are empty if unreadable. ``recipe`` is then the reason, also for a recipe in another form than
    today's.
    ``product`` is the reason if the sources' part of a wheel is unknown. ``shims`` has the commit's
    drop-ins, such as flash-attn, by name. ``writes_same_sbom``: its SBOM modules equal this pipeline's.
    """

    content: str
    sources: str
    recipe: Recipe | str
    product: Product | str
    shims: Mapping[str, ShimSources] = field(default_factory=dict)
    writes_same_sbom: bool = True


def read_tree(checkout: Path, commit: str, *, platform: str = LINUX) -> Tree | None:
    """Read a commit's sources, None unless ``checkout`` has the commit on a branch or tag.

    ``platform`` selects the wheel's recipe.
    """
    if commit_problem(checkout, commit):
        return None
    return tree_of_commit(checkout, commit, platform)


@lru_cache(maxsize=16)  # a commit never changes, and each published wheel reads its own twice
def tree_of_commit(checkout: Path, commit: str, platform: str) -> Tree:
    """Read the sources of a commit in ``checkout``, by its full name."""
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-") as name:
        archive, root = Path(name) / "sources.tar", Path(name) / "sources"
        git = git_of(checkout)
        listed = run([*git, "ls-tree", "-z", "--name-only", commit, "--", *PATHS]).stdout
        there = listed.strip("\0").split("\0")  # an old commit may lack some
        run([*git, "archive", "--output", archive, commit, "--", *there])
        with tarfile.open(archive) as tar:
            tar.extractall(root, filter="data")
        return tree_of(root, platform)


def tree_of(root: Path, platform: str = LINUX) -> Tree:
    """Read the sources in a folder."""
    first = not (root / wheel_inputs.FILE).exists()
    content, sources = "", ""
    product = _product_of(root)
    shims = {shim.name: _sources_of(shim, root) for shim in SHIMS if (root / shim.folder).is_dir()}
    same = all(_is_same_file(root / name, CHECKOUT / name) for name in WRITING_SBOM)
    try:
        content, sources = _first_digests(root) if first else _digests(root)
        recipe = read_recipe(root, _first_epoch(root) if first else _epoch(root), platform)
        return Tree(content, sources, recipe, product, shims, same)
    except (MatrixError, StoreError) as error:
        reason = _one_line(error)
    except (OSError, LookupError, SyntaxError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
    return Tree(content, sources, reason.replace(f"{root}/", ""), product, shims, same)


def _is_same_file(one: Path, other: Path) -> bool:
    return one.is_file() and one.read_bytes() == other.read_bytes()


def _product_of(root: Path) -> Product | str:
    try:
        return read_product(root)
    except AuditError as error:
        return _one_line(error)


def _sources_of(shim: Shim, root: Path) -> ShimSources:
    return ShimSources(_product_of(root / shim.folder), shim_digest(shim, root))


def _one_line(error: WheelBuilderError) -> str:
    return error.message.replace("\n  - ", "; ")


def read_recipe(root: Path, source_date_epoch: str, platform: str = LINUX) -> Recipe:
    """The recipe of the sources in a folder for a wheel for ``platform``.

    Raises ``MatrixError``, ``OSError``, ``LookupError``, ``SyntaxError``, ``TypeError`` or ``ValueError``
    when their form differs from today's.
    """
    # load_matrix would refuse an old commit's file if it lacks keys required today.
    matrix = read_document(root / MATRIX).data
    try:
        package, llvm = matrix["package"], {row["version"]: row["llvm"] for row in matrix["rocm"]}
    except (LookupError, TypeError) as error:
        message = f"{MATRIX}: no package, or no rows of rocm with version and llvm"
        raise ValueError(message) from error
    requirements = _requirements(root)
    pins = requirements.read_text(encoding="utf-8")
    return Recipe(
        flags=read_flags(root, platform),
        llvm=llvm,
        platform_tag=WINDOWS_TAG if platform == WINDOWS else package["platform_tag"],
        source_date_epoch=source_date_epoch,
        torch_headers=package["torch_headers"],
        torch_headers_sha256=package["torch_headers_sha256"],
        requirements=sha256_file(requirements),
        zig=_pinned(pins, "ziglang"),
        zstd=read_pins(root) if (root / PINS).is_file() else None,
        bases={row["version"]: _base(row) for row in matrix["rocm"]},
        pins=pins,
        public=str(matrix.get("public", {}).get("built_with", "")),
    )


def _requirements(root: Path) -> Path:
    """In a folder of ``dockerfiles/``, in version 0.1.0 in ``dockerfiles/`` itself."""
    if found := sorted((root / "dockerfiles").rglob(REQUIREMENTS)):
        return found[0]
    message = f"dockerfiles has no {REQUIREMENTS}"
    raise ValueError(message)


def _base(row: Mapping[str, Any]) -> Base:
    names = (name.partition("=")[0] for suite in row.get("packages", {}).values() for name in suite)
    return Base(str(row["base"]), str(row.get("suite", "")), tuple(names))


def _digests(root: Path) -> tuple[str, str]:
    digest = sources_digest(root, read_inputs(root))
    return digest, digest


def _first_digests(root: Path) -> tuple[str, str]:
    content, sources = ([root / path for path in paths] for paths in (FIRST_CONTENT, FIRST_SOURCES))
    return sha256_tree(root, content), sha256_tree(root, sources)


def _epoch(root: Path) -> str:
    return read_inputs(root).source_date_epoch


def _first_epoch(root: Path) -> str:
    return str(constant(root / FIRST_EPOCH, "SOURCE_DATE_EPOCH"))

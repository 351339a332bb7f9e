"""Options shared by several subcommands, and the parsing of their values."""

import argparse
import re
from pathlib import Path
from urllib.parse import urlsplit

from kernels.build.machine import default_jobs, usable_cores, usable_memory
from wheel_builder.matrix.model import LINUX, LOCAL_INDEX, PLATFORMS, PUBLIC_INDEX

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs"  # the documentation
SERVE = "a browser searches it over http only: scripts/wheel-builder serve --index"


def selection_options(parser: argparse.ArgumentParser) -> None:
    """The selection of wheels: ``--rocm``, ``--archs`` and ``--all``."""
    group = parser.add_argument_group("what to build")
    group.add_argument(
        "--rocm",
        type=names,
        action="extend",
        default=[],
        metavar="V[,V]",
        help="ROCm versions, for example 7.2; public: one wheel for every version; all; default: default_rocm"
        " of matrix.yaml",
    )
    group.add_argument(
        "--archs",
        type=names,
        action="extend",
        default=[],
        metavar="A[,B]",
        help="gfx archs, for example gfx942,gfx1100 (default: all archs of the ROCm version)",
    )
    group.add_argument("--all", action="store_true", help="every wheel built in CI; same as --rocm all")


def platforms_option(parser: argparse.ArgumentParser) -> None:
    """``--platforms``: the wheels' systems."""
    parser.add_argument(
        "--platforms",
        type=platforms,
        default=(LINUX,),
        metavar="P[,P]",
        help=f"{' or '.join(PLATFORMS)}, or both (default: {LINUX}); Windows has the public wheel only",
    )


def run_options(parser: argparse.ArgumentParser) -> None:
    """How to work: ``--jobs``, ``--dry-run`` and ``--verbose``."""
    group = parser.add_argument_group("how to build")
    jobs_option(group)
    group.add_argument("--dry-run", action="store_true", help="print the steps without running them")
    group.add_argument("--verbose", action="store_true", help="plain progress lines; tracebacks for errors")


def jobs_option(parser: argparse._ActionsContainer) -> None:
    """``--jobs``."""
    jobs = default_jobs(usable_cores(), usable_memory())
    parser.add_argument(
        "--jobs",
        type=positive,
        default=jobs,
        metavar="N",
        help=f"parallel compilers (default here: {jobs})",
    )


def release_options(parser: argparse.ArgumentParser) -> None:
    """``--index``, ``--install-engine``, the compiler cache, ``--torch-index`` and ``--no-host-settings``."""
    group = parser.add_argument_group("where")
    index_option(group, LOCAL_INDEX)
    group.add_argument(
        "--install-engine",
        action="store_true",
        help="install and start a container engine if none is running",
    )
    _cache_options(group)
    _torch_index_option(group)
    _host_settings_option(group)


def handover_options(parser: argparse.ArgumentParser) -> None:
    """``--take`` and ``--give``: results of another machine, and for another machine."""
    group = parser.add_argument_group("from and for another machine")
    group.add_argument(
        "--take",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="first import results written by --give; the folder may be empty or missing",
    )
    group.add_argument(
        "--give",
        type=Path,
        metavar="DIR",
        help="export this run's results and images, except those imported by --take",
    )


def destination_option(parser: argparse.ArgumentParser) -> None:
    """``--to``: where finished wheels are copied."""
    parser.add_argument("--to", type=Path, metavar="DIR", help="copy the wheels here, for verify")


def held_archs_option(parser: argparse.ArgumentParser) -> None:
    """``--archs`` for finished wheels."""
    parser.add_argument(
        "--archs",
        type=names,
        action="extend",
        default=[],
        metavar="A[,B]",
        help="the wheels' archs (default: all archs of their ROCm version)",
    )


def wheel_arguments(parser: argparse.ArgumentParser) -> None:
    """One or more wheels."""
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")


def index_option(parser: argparse._ActionsContainer, default: str = PUBLIC_INDEX) -> None:
    """``--index``: by default the public one, in another folder than releases of this machine."""
    parser.add_argument(
        "--index",
        type=Path,
        default=ROOT / default,
        metavar="DIR",
        help=f"the index (default: {default}; releases write {LOCAL_INDEX}, publish writes {PUBLIC_INDEX})",
    )


def _cache_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--cache",
        type=Path,
        default=ROOT / "build" / "ccache",
        metavar="DIR",
        help="ccache's folder for device code (default: build/ccache); machines may share it if they trust "
        "all its writers",
    )
    parser.add_argument("--no-cache", action="store_true", help="compile without ccache")


def _torch_index_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--torch-index",
        type=index_or_folder,
        default="",
        metavar="URL|DIR",
        help="an index or a folder of wheels with torch, in addition to pip's settings; a CPU build is "
        "enough, except for a runtime image with GPU access",
    )


def _host_settings_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--no-host-settings",
        action="store_true",
        help="fetch packages without this machine's CA bundle and pip settings",
    )


def names(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        message = f"expected names separated by commas, found {text!r}"
        raise argparse.ArgumentTypeError(message)
    return found


def platforms(text: str) -> tuple[str, ...]:
    """Names of ``PLATFORMS``."""
    if strange := [name for name in names(text) if name not in PLATFORMS]:
        message = f"expected {' or '.join(PLATFORMS)}, found {strange[0]!r}"
        raise argparse.ArgumentTypeError(message)
    return tuple(names(text))


def public_url(text: str) -> str:
    """A URL without a password: command lines are logged, and stored results name their sources."""
    if "@" in urlsplit(text).netloc:
        message = "the URL has a user or password, and logs would show them; put them into pip's settings"
        raise argparse.ArgumentTypeError(message)
    return text


def index_or_folder(text: str) -> str:
    """A URL as in ``public_url``, or the absolute path of an existing folder."""
    if not text or "://" in text:
        return public_url(text)
    if not (path := Path(text)).is_dir():
        message = f"expected a URL or a folder, found {text!r}"
        raise argparse.ArgumentTypeError(message)
    return str(path.absolute())


def registry(text: str) -> str:
    """A place in a registry, such as ``registry.example/owner``."""
    if not re.fullmatch(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*", text):
        message = f"expected a registry's name and a path in small letters, found {text!r}"
        raise argparse.ArgumentTypeError(message)
    return text


def existing_file(text: str) -> Path:
    if not (path := Path(text)).is_file():
        message = f"there is no file {text!r}"
        raise argparse.ArgumentTypeError(message)
    return path


def output_file(text: str) -> Path:
    """A file to write. Existing folders are refused."""
    path = Path(text)
    if not path.name or path.is_dir() or text.endswith("/"):
        message = f"expected the name of a file to write, found the folder {text!r}"
        raise argparse.ArgumentTypeError(message)
    return path


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"expected a whole number of at least 1, found {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


# Shared by every command that builds.
BUILD = (selection_options, run_options, release_options)

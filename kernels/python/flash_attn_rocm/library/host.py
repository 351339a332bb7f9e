"""Loads the host library, which registers the operators ``torch.ops.flash_attn_rocm.*``.

Loading needs neither GPU nor ROCm. The library loads device code at the first launch of a kernel on a device.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from flash_attn_rocm.machine.requirements import LIBRARY, REINSTALL

ROW_IDS = Path(__file__).parents[1] / "values/rows.json"


@dataclass(frozen=True)
class Instance:
    """One kernel of the wheel, the archs with its machine code, and the major version of its compiler."""

    name: str
    op: str
    dtype: str
    head_dim: int
    archs: tuple[str, ...]
    clang: int


class Limits(NamedTuple):
    """The limits of the kernels.

    ``head_dim`` is the largest with all features, ``wide_head_dim`` the largest of plain forwards.
    ``uneven_head_dim`` is v's in kernels with two head dims. ``splits`` is the largest number of parts of the
    keys. In elements: row strides are below ``row_stride``, addresses and strides multiples of ``alignment``.
    The rows of a page are a multiple of ``page``. With a bias, softmax_scale is 0 or from ``least_scale`` on.
    """

    head_dim: int
    wide_head_dim: int
    uneven_head_dim: int
    splits: int
    row_stride: int
    alignment: int
    page: int
    least_scale: float


def load(path: Path) -> None:
    """Loads the library. Raises ImportError with the steps to take."""
    if not path.is_file():
        message = (
            f"{path} is missing: this is a source checkout or a damaged installation\n"
            f"  next: leave the checkout, or {REINSTALL}"
        )
        raise ImportError(message)
    try:
        torch.ops.load_library(path)
    except OSError as error:
        message = f"{path} does not load into PyTorch {torch.__version__}: {error}\n  next: {REINSTALL}"
        raise ImportError(message) from error


def instances() -> tuple[Instance, ...]:
    """The kernels of this wheel, from the library's registry."""
    rows = json.loads(torch.ops.flash_attn_rocm.instances())
    return tuple(Instance(**{**row, "archs": tuple(row["archs"])}) for row in rows)


@cache
def row_ids() -> Mapping[tuple[str, str], str]:
    """The id of a kernel's rows in the table of tiles, by the arch of its machine code and its name.

    Kernels without rows are left out. Compilers before some version have rows of their own.
    """
    pairs = json.loads(ROW_IDS.read_text(encoding="utf-8"))
    return {
        (arch, each.name): next(row for before, row in found if each.clang < before or not before)
        for each in instances()
        for arch in each.archs
        if (found := pairs[arch].get(each.name))
    }


@cache
def gpus() -> Mapping[str, str]:
    """The GPUs of this wheel, each with the arch whose machine code it runs."""
    found: dict[str, str] = json.loads(torch.ops.flash_attn_rocm.gpus())
    return found


def code_of(arch: str) -> str:
    """The arch whose machine code a GPU runs: "gfx1030" for "gfx1031". ``arch`` itself without kernels."""
    return gpus().get(gfx_of(arch), gfx_of(arch))


def gfx_of(arch: str) -> str:
    """The arch in a name, whose target features are optional: "gfx942" for "gfx942:sramecc+:xnack-"."""
    return arch.partition(":")[0]


def limits() -> Limits:
    """The kernels' limits, as the library's headers have them."""
    return Limits(**json.loads(torch.ops.flash_attn_rocm.limits()))


load(LIBRARY)
LIMITS = limits()


@torch.library.register_fake("flash_attn_rocm::fwd")
def _fwd_fake(*_arguments: object) -> None:
    """Fills ``out`` and ``lse``: torch.compile has no shape to infer."""

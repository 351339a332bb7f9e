"""Loads the host library, which registers the operators ``torch.ops.flash_attn_rocm.*``.

Loading needs neither a GPU nor ROCm.  Device code is loaded by the library itself, when a kernel is
first launched on a device.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch

LIBRARY = Path(__file__).parent / "_C" / "libflash_attn_rocm.so"
REINSTALL = "pip install --force-reinstall --no-deps flash-attn-rocm"


@dataclass(frozen=True)
class Instance:
    """One kernel of the wheel and the archs that it exists for."""

    name: str
    op: str
    dtype: str
    head_dim: int
    archs: tuple[str, ...]


def load(path: Path) -> None:
    """Load the library; raises ImportError that says what to do."""
    if not path.is_file():
        message = (
            f"{path} is missing: this is a source checkout or a damaged installation\n"
            f"  next: leave the checkout, or run {REINSTALL}"
        )
        raise ImportError(message)
    try:
        torch.ops.load_library(path)
    except OSError as error:
        message = f"{path} does not load into PyTorch {torch.__version__}: {error}\n  next: {REINSTALL}"
        raise ImportError(message) from error


def instances() -> tuple[Instance, ...]:
    """What the wheel holds, as the library's registry says."""
    rows = json.loads(torch.ops.flash_attn_rocm.instances())
    return tuple(Instance(**{**row, "archs": tuple(row["archs"])}) for row in rows)


load(LIBRARY)


@torch.library.register_fake("flash_attn_rocm::fwd")
def _fwd_fake(*_arguments: object) -> None:
    """Fills ``out`` and ``lse`` and returns nothing, so there is no shape to infer."""

"""The description of the machine in reports."""

import base64
import hashlib
import importlib.metadata
from pathlib import Path
from typing import Any

import torch

from flash_attn_rocm.diagnosis import survey
from flash_attn_rocm.machine import requirements
from flash_attn_rocm.machine.requirements import LIBRARY
from flash_attn_rocm.serving import machine


def device() -> torch.device:
    """Where kernels run: a GPU, or host memory without a GPU or a ROCm build."""
    kind = machine.current().kind
    on_gpu = kind == "cuda" and torch.version.hip is not None and torch.cuda.is_available()
    return torch.device(kind, torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def synchronize(where: torch.device) -> None:
    """Waits for all work of the device."""
    if where.type == "cuda":
        torch.cuda.synchronize(where)


def describe(where: torch.device) -> dict[str, Any]:
    """Device, driver, PyTorch and wheel. ``library_sha256`` identifies the wheel for any installer."""
    facts = survey.collect(ask_gpus=False)
    here = machine.current()
    found = here.device(where) if where.type == here.kind else None
    return {
        "device": str(torch.cuda.get_device_name(where)) if where.type == "cuda" else "CPU",
        "arch": found.arch if found else "",
        "compute_units": found.compute_units if found else 0,
        "driver": facts.driver,
        "os": facts.os_name,
        "python": facts.python,
        "torch": facts.torch.version,
        "torch_build": facts.torch.build,
        "package": requirements.package_version(),
        "library_sha256": hashlib.sha256(Path(LIBRARY).read_bytes()).hexdigest(),
        "library_as_installed": _as_recorded(),
    }


def _as_recorded() -> bool:
    """Whether the library matches the wheel's own list of files."""
    try:
        files = importlib.metadata.files(requirements.DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return False
    digests = [file.hash.value for file in files if file.hash and file.name == LIBRARY.name]
    found = base64.urlsafe_b64encode(hashlib.sha256(LIBRARY.read_bytes()).digest()).rstrip(b"=").decode()
    return digests == [found]

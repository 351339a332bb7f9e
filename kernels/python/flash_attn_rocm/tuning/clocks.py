"""Clocks, power and temperature of a GPU, where the driver tells them."""

from pathlib import Path

import torch

SOURCES = {
    "gpu_mhz": (("freq1_input",), 1e-6),
    "memory_mhz": (("freq2_input",), 1e-6),
    "watts": (("power1_average", "power1_input"), 1e-6),
    "celsius": (("temp1_input",), 1e-3),
}


def told(where: torch.device, root: Path = Path("/")) -> dict[str, float | None]:
    """Each value, None if the driver does not tell it (Windows, WSL2, containers)."""
    folder = _folder(where, root)
    return {name: _value(folder, files, unit) for name, (files, unit) in SOURCES.items()}


def _folder(where: torch.device, root: Path) -> Path | None:
    if where.type != "cuda":
        return None
    found = torch.cuda.get_device_properties(where)
    numbers = [getattr(found, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    if None in numbers:
        return None
    domain, bus, device = numbers
    place = root / f"sys/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.0/hwmon"
    return next(iter(sorted(place.glob("hwmon*"))), None)


def _value(folder: Path | None, files: tuple[str, ...], unit: float) -> float | None:
    for name in files if folder else ():
        try:
            return round(int((folder / name).read_text(encoding="ascii")) * unit, 3)  # type: ignore[operator]
        except (OSError, ValueError):
            continue
    return None

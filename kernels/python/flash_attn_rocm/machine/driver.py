"""The driver of AMD's GPUs on this machine: of Linux, of Windows, or of Windows below WSL2."""

import hashlib
import platform
import sys
from pathlib import Path

from flash_attn_rocm.machine import windows

# WSL2's view of the Windows drivers: a folder per driver, with its version's hash in the name. ROCm's library
# that reaches them may be there.
WSL_DRIVERS = "usr/lib/wsl/drivers"
ROCDXG_FOLDERS = ("opt/rocm/lib", "usr/lib/x86_64-linux-gnu", "usr/local/lib")


def version(root: Path) -> str:
    """The kernel driver's version: its own if it is separate from Linux, else Linux's; "" if not loaded.

    WSL2 uses a Windows driver, and no file has its version: a digest of all drivers there changes with it.
    """
    if sys.platform == "win32":
        return windows.driver()
    if is_wsl(root):
        return _of_windows(root)
    module = root / "sys/module/amdgpu"
    if not module.is_dir():
        return ""
    version = text_of(module / "version").strip()
    return f"amdgpu {version}" if version else f"amdgpu of Linux {platform.release()}"


def _of_windows(root: Path) -> str:
    names = sorted(folder.name for folder in (root / WSL_DRIVERS).glob("*.inf_*"))
    if not names:
        return ""
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    return f"that of Windows (drivers {digest}), {rocdxg(root) or 'no librocdxg'}"


def is_wsl(root: Path) -> bool:
    """Whether this Linux runs in WSL2, where Windows has the GPUs and their driver."""
    return "microsoft" in text_of(root / "proc/sys/kernel/osrelease").lower()


def rocdxg(root: Path) -> str:
    """The file of ROCm's library for WSL2, such as librocdxg.so.1.1.0; "" if missing."""
    found = (path for folder in ROCDXG_FOLDERS for path in sorted((root / folder).glob("librocdxg.so*")))
    return next((path.resolve().name for path in found), "")


def text_of(path: Path) -> str:
    """The text of a file. "" if unreadable."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""

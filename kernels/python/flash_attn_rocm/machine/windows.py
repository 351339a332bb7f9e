"""Queries to Windows: running processes, loaded files, the GPUs' driver."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import suppress

HIP_RUNTIME = "amdhip64_7.dll"  # as in kernels/host/launch/windows/hip_functions.hpp
PROCESS_QUERY_LIMITED_INFORMATION, STILL_ACTIVE, ACCESS_DENIED = 0x1000, 259, 5
LONGEST_PATH = 32768
# The class of display adapters: a key for each, 0000 and so on, with its driver's maker and version.
ADAPTERS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
AMD = "Advanced Micro Devices"

if sys.platform == "win32":
    import winreg

    _KERNEL32 = ctypes.WinDLL("kernel32", use_last_error=True)
    # A handle is a pointer. The default result type, int, would truncate it.
    _KERNEL32.OpenProcess.restype = _KERNEL32.GetModuleHandleW.restype = ctypes.c_void_p

    def process_runs(pid: int) -> bool:
        """Whether there is a process with this number.

        On Windows ``os.kill(pid, 0)`` would send it Ctrl+C.
        """
        handle = _KERNEL32.OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, False, pid)  # noqa: FBT003
        if not handle:
            return ctypes.get_last_error() == ACCESS_DENIED
        try:
            code = ctypes.c_ulong()
            known = _KERNEL32.GetExitCodeProcess(ctypes.c_void_p(handle), ctypes.byref(code))
            return not known or code.value == STILL_ACTIVE
        finally:
            _KERNEL32.CloseHandle(ctypes.c_void_p(handle))

    def hip_libraries() -> tuple[str, ...]:
        """The HIP runtime's file in this process, if there is one."""
        handle = _KERNEL32.GetModuleHandleW(HIP_RUNTIME)
        if not handle:
            return ()
        path = ctypes.create_unicode_buffer(LONGEST_PATH)
        _KERNEL32.GetModuleFileNameW(ctypes.c_void_p(handle), path, LONGEST_PATH)
        return (path.value,)

    def driver() -> str:
        """AMD's driver of the display adapters: "AMD 32.0.21013.1000"; "" without one."""
        return ", ".join(f"AMD {version}" for version in dict.fromkeys(_versions()))

    def _versions() -> Iterator[str]:
        with suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, ADAPTERS) as adapters:
            for number in range(winreg.QueryInfoKey(adapters)[0]):
                with suppress(OSError), winreg.OpenKey(adapters, winreg.EnumKey(adapters, number)) as adapter:
                    if str(winreg.QueryValueEx(adapter, "ProviderName")[0]).startswith(AMD):
                        yield str(winreg.QueryValueEx(adapter, "DriverVersion")[0])

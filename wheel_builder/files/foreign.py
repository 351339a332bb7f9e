"""Libraries of the user's ROCm and torch. A wheel must never contain copies of them.

Patterns match a SONAME or file name of any version, and auditwheel's names for copies
(``libamdhip64-1a2b3c4d.so.7``). A pattern for the bare ``.so`` would miss both.
"""

from fnmatch import fnmatchcase

TORCH = ("libtorch*.so*", "libc10*.so*", "libshm*.so*", "libcaffe2*.so*", "libaotriton*.so*")
ROCM = (
    "libMIOpen*.so*",
    "libamd_comgr*.so*",
    "libamd_smi*.so*",
    "libamdhip64*.so*",
    "libamdocl64*.so*",
    "libdrm*.so*",
    "libhip*.so*",
    "libhsa-*.so*",
    "libmigraphx*.so*",
    "librccl*.so*",
    "libroc*.so*",
)
PATTERNS = (*TORCH, *ROCM)


def is_foreign(name: str) -> bool:
    """Whether a file name, without folders, belongs to ROCm or torch."""
    return any(fnmatchcase(name, pattern) for pattern in PATTERNS)

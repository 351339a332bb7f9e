"""The packages of an image that form the compiler. Pure."""

import re
from collections.abc import Mapping

# Debian's names, and AMD's own. The libraries hold most of the compiler. Compiled code includes the common
# headers and the HIP headers.
COMPILER = re.compile(
    r"(clang|lld|llvm|libllvm|libclang-cpp|libclang-common-)-?[0-9.]+(-dev)?"
    r"|hipcc|libamdhip64-dev|rocm-device-libs(-[0-9.]+)?|hip-dev|rocm-llvm|rocm-core"
)


def compiler_packages(packages: Mapping[str, str]) -> dict[str, str]:
    """The packages (name -> version) that affect compiled code, or all if none is recognised."""
    known = {name: version for name, version in sorted(packages.items()) if COMPILER.fullmatch(name)}
    return known or dict(sorted(packages.items()))

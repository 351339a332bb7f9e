"""Where the compiler is, and how its failures are said.

Standard library only: this runs in the builder image.
"""

DEFAULT_LLVM = "/usr/lib/llvm-22/bin"


class BuildError(Exception):
    """Instances failed to compile, exceed their limits, or could not be joined."""

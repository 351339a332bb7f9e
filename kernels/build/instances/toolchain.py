"""Where the compiler is, and how its failures are said.

Standard library only: this runs in the builder image.
"""

DEFAULT_LLVM = "/usr/lib/llvm-22/bin"


class BuildError(Exception):
    """Instances did not compile, use more than they may, or were not joined."""

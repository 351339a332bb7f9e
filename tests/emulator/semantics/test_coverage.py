"""Every mnemonic in use is implemented and has a vector.

    python -m pytest tests/emulator/semantics -k coverage -s

prints the figures per arch.  In use: by the finished wheels in dist/ and by what this checkout compiles.
"""

import pytest

from tests.emulator.semantics.coverage import coverage
from tests.emulator.semantics.machine import ARCHS

# Spilled registers of kernels of head dim 256.  An assembled vector has no scratch memory of its own; a wrong
# one would change what tests/numerics compares with float64.
SPILLS = {"scratch_load_dword", "scratch_store_dword"}


@pytest.mark.parametrize("arch", ARCHS)
def test_every_mnemonic_in_use_is_implemented_and_has_a_vector(arch, shipped):
    found = coverage(arch, shipped(arch))
    print(f"\n{found}; in {', '.join(shipped(arch))}")  # noqa: T201
    assert not found.missing, "\n".join(found.missing)
    untested = [name for name in found.untested if name not in SPILLS]
    lines = [f"{name}, in {found.used[name]}: no line in a table here" for name in untested]
    assert not lines, "\n".join(lines)

"""Every mnemonic in use is implemented and has a vector.

    python -m pytest tests/engine/emulator/semantics -k coverage -s

prints the figures per arch.  In use: by the finished wheels in dist/ and by this checkout's kernels.
"""

import pytest

from tests.engine.emulator.semantics.coverage import coverage
from tests.engine.emulator.semantics.machine import ARCHS

# test_widths.py executes every one of them.
SCRATCH = "scratch_"


@pytest.mark.parametrize("arch", ARCHS)
def test_every_mnemonic_in_use_is_implemented_and_has_a_vector(arch, shipped):
    found = coverage(arch, shipped(arch))
    print(f"\n{found}; in {', '.join(shipped(arch))}")  # noqa: T201
    assert not found.missing, "\n".join(found.missing)
    untested = [name for name in found.untested if not name.startswith(SCRATCH)]
    lines = [f"{name}, in {found.used[name]}: no line in a table here" for name in untested]
    assert not lines, "\n".join(lines)

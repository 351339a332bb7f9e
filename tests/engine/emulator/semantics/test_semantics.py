"""Every instruction against its definition: edge values in, the emulator's answer compared bit for bit."""

import pytest

from tests.engine.emulator.semantics import cases
from tests.engine.emulator.semantics.machine import ARCHS

SHOWN = 5
# Archs share the emulator's arithmetic.  Without --full the first arch of a line computes all of its rows,
# the others one wave of this many. That is enough to check decoding, and the lanes and halves written.
THINNED = 8


def names():
    """One test per mnemonic and arch, with all its lines.  By mnemonic: archs share references' results."""
    both = dict.fromkeys((arch, cases.plain(line, arch)) for arch in ARCHS for line in cases.lines(arch))
    return sorted(both, key=lambda item: (item[1].replace("_", ""), item[0]))


@pytest.mark.parametrize("every", [THINNED, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize(("arch", "mnemonic"), names())
def test_instruction_does_what_its_definition_says(arch, mnemonic, every, snippet_machine):
    machine = snippet_machine(arch)
    problems = []
    for case in cases.of(arch, every)[mnemonic]:
        data, check = case.make()
        for problem in check(machine.run(case.snippet, data, case.memory))[:SHOWN]:
            problems.append(f"{case.snippet.name}: {problem}")
    assert not problems, "\n".join(problems)

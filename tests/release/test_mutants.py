"""``verify`` finds faults beyond static audits: well-formed mutants of the released wheel.

Each passes the rules for the library. The emulated suite refuses it.
"""

from itertools import cycle

import pytest

from tests.conftest import CHECKOUT
from tests.release.mutants import (
    ends_at_once,
    in_each_others_bundles,
    mutant_wheel,
    traps,
    under_each_others_names,
)
from wheel_builder.audit.loading import bundle_problems, content_problems, layout_problems
from wheel_builder.base.errors import VerifyError
from wheel_builder.files.device.library import LIBRARY, code_objects, unused_bundles
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.tables.archs import known_archs
from wheel_builder.verify.numerics import run_emulated
from wheel_builder.verify.seen import subjects_of

ARCHS = list(known_archs())
# How each is made, and the expected text in the suite's log.
MUTANTS = {
    "a kernel that ends at once": (ends_at_once, "against float64, allowed"),
    "kernels under each other's names": (under_each_others_names, "against float64, allowed"),
    "kernels in each other's bundles": (in_each_others_bundles, "the code object has no kernel"),
    "a host function that traps": (traps, "Trace/breakpoint trap"),
}
QUICK = list(zip(cycle(ARCHS), MUTANTS))


@pytest.fixture(scope="module")
def library(release):
    return read_wheel(release.wheel, max_mib=64).files[LIBRARY]


def mutants():
    for name in MUTANTS:
        for arch in ARCHS:
            yield pytest.param(arch, name, marks=[] if (arch, name) in QUICK else pytest.mark.full)


@pytest.mark.parametrize(("arch", "name"), list(mutants()))
def test_verify_refuses_what_the_audit_cannot_see(
    release, library, arch, name, builder, verifier, emulator, context, as_text, tmp_path
):
    change, reason = MUTANTS[name]
    mutant = change(library, arch)
    assert mutant != library
    assert [*layout_problems(mutant, code_objects(mutant)), *content_problems(code_objects(mutant))] == []
    assert list(bundle_problems(unused_bundles(mutant))) == []
    kept = {"store": context.store, "log": tmp_path / "log"}
    sound = disassemble_wheel(release.wheel, builder, **kept)
    wheel, disassembly = mutant_wheel(release.wheel, mutant, sound, tmp_path, as_text)
    with pytest.raises(VerifyError, match="failed numerics's tests in the verify container"):
        run_emulated(
            subjects_of(wheel, [arch])[arch], planned_kernels(CHECKOUT, [arch])[arch], image=verifier,
            fake_hip=emulator, disassembly=disassembly,
            checkout=context.checkout, jobs=context.jobs, most_failures=1, **kept,
        )  # fmt: skip
    assert reason in (tmp_path / "log").read_text()

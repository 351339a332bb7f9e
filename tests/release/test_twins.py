"""Content outside the key of an emulated suite has no effect: a twin has the same key and record."""

import pytest

from tests.conftest import CHECKOUT
from tests.release.twins import twin_checkout, twin_wheel
from wheel_builder.base.store import Store, sha256_file
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.pipeline.verification import chosen_tier
from wheel_builder.tables.archs import known_archs
from wheel_builder.verify.numerics import run_emulated
from wheel_builder.verify.seen import subjects_of

ARCHS = list(known_archs())


@pytest.fixture(scope="module")
def sound(release, builder, context):
    """The released wheel's disassembly."""
    return disassemble_wheel(release.wheel, builder, store=context.store, log=context.log("disassembly"))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return twin_checkout(CHECKOUT, tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def emulate(release, sound, checkout, verifier, emulator, context, tmp_path):
    """``emulate(arch, store)``: the emulated suite of an arch's twin, kept in ``store``."""

    def run(arch, store):
        twin = twin_wheel(release.wheel, arch, tmp_path)
        assert sha256_file(twin) != sha256_file(release.wheel)
        return run_emulated(
            subjects_of(twin, [arch])[arch], planned_kernels(CHECKOUT, [arch])[arch], image=verifier,
            fake_hip=emulator, disassembly=sound, checkout=checkout, store=store, jobs=context.jobs,
            log=tmp_path / "log", tier=chosen_tier(),
        )  # fmt: skip

    return run


@pytest.mark.parametrize("arch", ARCHS)
def test_a_twin_has_the_key_of_the_released_wheel(emulate, arch, context):
    """So the suite is not emulated again."""
    assert emulate(arch, context.store).reused


@pytest.mark.full
@pytest.mark.parametrize("arch", ARCHS)
def test_a_twin_that_is_emulated_has_the_same_record(emulate, arch, context, tmp_path):
    """Bit for bit: errors, launches, instructions, coverage."""
    own = {"wheel", "sha256"}
    before, again = (emulate(arch, store) for store in (context.store, Store(tmp_path / "build")))
    assert not again.reused
    records = [dict(each.facts) for each in (before, again)]
    ran = [{k: v for k, v in record.pop("executed").items() if k not in own} for record in records]
    assert records[0] == records[1]
    assert ran[0] == ran[1]

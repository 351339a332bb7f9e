"""The wheel for Windows as a user makes it: executed under wine on an ISA emulator, not on Windows."""

import json

import pytest

from tests.conftest import CHECKOUT
from tests.release.conftest import Release
from tests.release.mutants import ends_at_once, mutant_wheel
from wheel_builder.audit.loading import bundle_problems, content_problems
from wheel_builder.base.errors import EmulatorBuildError, VerifyError
from wheel_builder.fake_hip.container import WINDOWS_LIBRARY as FAKE_HIP
from wheel_builder.fake_hip.stage import EXPORTS, build_fake_hip, refuse_unexported
from wheel_builder.files.library import WINDOWS_LIBRARY, dll_code_objects, unused_dll_bundles
from wheel_builder.files.pe import read_pe
from wheel_builder.files.wheelfile import read_wheel
from wheel_builder.images.wine import build_wine_image
from wheel_builder.matrix.model import WINDOWS
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.provenance.records import record_path
from wheel_builder.static_checks.stage import disassemble_wheel
from wheel_builder.verify.numerics import run_emulated
from wheel_builder.verify.seen import subject_of
from wheel_builder.verify.wine import HOW, NOT_EXECUTED, TESTS, archs_under_wine

pytestmark = pytest.mark.container


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """The main job for Windows."""
    done = Release(tmp_path_factory.mktemp("index"), "--platforms", "windows")
    assert done.status == 0, done.err
    return done


@pytest.fixture
def fake_dll(builder, context):
    return build_fake_hip(
        builder, checkout=CHECKOUT, store=context.store, log=context.log("emulator-dll"), platform=WINDOWS,
        cache=context.build / "ccache",
    )  # fmt: skip


def test_it_is_verified_under_wine_and_its_record_says_so(windows):
    record = json.loads(record_path(windows.wheel).read_text())
    archs = tuple(record["archs"])
    executed = {arch: found["numerics"] for arch, found in record["archs"].items() if found["passed"]}
    assert executed == dict.fromkeys(archs_under_wine(archs, full=False), HOW)
    assert {found["numerics"] for found in record["archs"].values()} == {HOW, NOT_EXECUTED}
    assert record["sha256"] == windows.says("sha256")
    assert record["tests"][TESTS]["passed"] > 0
    assert record["serves"] == []
    assert windows.says("executed").startswith(HOW.removeprefix("executed "))
    assert "not published" in windows.says("note")


def test_a_kernel_that_ends_at_once_fails_under_wine(
    windows, builder, fake_dll, context, as_text, tmp_path, engine
):
    """The audit's rules about the DLL accept it."""
    [arch, *_] = archs_under_wine(
        tuple(json.loads(record_path(windows.wheel).read_text())["archs"]), full=False
    )
    sound = read_wheel(windows.wheel, max_mib=64).files[WINDOWS_LIBRARY]
    mutant = ends_at_once(sound, arch)
    assert mutant != sound
    dll = read_pe(mutant)
    assert [*content_problems(dll_code_objects(dll)), *bundle_problems(unused_dll_bundles(dll))] == []
    kept = {"store": context.store, "log": tmp_path / "log"}
    disassembly = disassemble_wheel(windows.wheel, builder, **kept)
    wheel, mutants = mutant_wheel(windows.wheel, mutant, disassembly, tmp_path, as_text)
    with pytest.raises(VerifyError, match="failed numerics's tests in the container with wine"):
        run_emulated(
            subject_of(wheel, arch), planned_kernels(CHECKOUT, [arch])[arch],
            image=build_wine_image(context.store, logs=context.log("").parent), fake_hip=fake_dll,
            disassembly=mutants, checkout=CHECKOUT, jobs=context.jobs, most_failures=1, under_wine=True,
            **kept,
        )  # fmt: skip
    assert "against float64, allowed" in (tmp_path / "log").read_text()


def test_a_runtime_that_lacks_a_function_is_not_built(fake_dll):
    dll, exports = (fake_dll.path / FAKE_HIP).read_bytes(), (CHECKOUT / EXPORTS).read_text()
    refuse_unexported(dll, exports)
    with pytest.raises(EmulatorBuildError, match="does not export hipSetDevice, which"):
        refuse_unexported(dll.replace(b"\0hipSetDevice\0", b"\0hipSetDevic_\0"), exports)

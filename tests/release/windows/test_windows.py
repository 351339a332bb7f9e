"""The wheel for Windows as a user makes it: executed under wine on an ISA emulator, not on Windows."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT
from tests.release.conftest import Release
from tests.release.mutants import ends_at_once, mutant_wheel
from tests.release.test_provenance import is_clean
from tests.release.tuned import Place, require_tuned
from tests.tools.made.wheels import write_wheel
from wheel_builder.audit.loading import bundle_problems, content_problems
from wheel_builder.base.errors import EmulatorBuildError, RebuildError, VerifyError
from wheel_builder.base.process import run
from wheel_builder.build.shim import SHIMS, build_shim
from wheel_builder.build.wheel import build_wheel
from wheel_builder.build.zstd import fetch_zstd
from wheel_builder.cli.selected import read_catalogue
from wheel_builder.files.binaries.pe import read_pe
from wheel_builder.files.device.library import WINDOWS_LIBRARY, dll_code_objects, unused_dll_bundles
from wheel_builder.files.difference import first_difference
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.images.wine import build_wine_image
from wheel_builder.index.check import verify_index
from wheel_builder.index.first_use import install_and_call
from wheel_builder.index.publish import publish
from wheel_builder.machine_code.fake_hip.container import WINDOWS_LIBRARY as FAKE_HIP
from wheel_builder.machine_code.fake_hip.stage import EXPORTS, build_fake_hip, refuse_unexported
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel
from wheel_builder.matrix.model import WINDOWS
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.pipeline.release import compile_device_code
from wheel_builder.pipeline.steps import Steps
from wheel_builder.pipeline.verification import job_of
from wheel_builder.provenance.rebuild import rebuild
from wheel_builder.provenance.records import provenance_path, record_path
from wheel_builder.verify.numerics import run_emulated
from wheel_builder.verify.seen import subjects_of
from wheel_builder.verify.shim import verify_shim
from wheel_builder.verify.wine import HOW, NOT_EXECUTED, TESTS, archs_under_wine


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
    assert windows.says("checked").startswith("installed from the index by pip for Windows under wine; ")


def test_it_is_on_the_index_as_a_user_finds_it(windows):
    """The release installed it from there."""
    published = windows.index / "public/simple/flash-attn-rocm" / windows.wheel.name
    assert published.read_bytes() == windows.wheel.read_bytes()
    for path in (record_path, provenance_path):
        assert path(published).read_bytes() == path(windows.wheel).read_bytes()
    assert windows.says("install") == (
        f"pip install flash-attn-rocm==0.1.0 --index-url {(windows.index / 'public/simple').as_uri()}"
    )
    page = (windows.index / "index.html").read_text()
    assert f"What was shown for gfx1100: {HOW}; " in page
    assert verify_index(windows.index) == ()


def elsewhere(argv, **options):
    """Like ``run``, but the wheel is built in another folder, and zig starts without kept objects."""
    folder = "/tmp/another"
    move = ("cp -r /project ", f"mkdir {folder} && cp -r /project "), ("/tmp/project", f"{folder}/project")
    argv = [str(word) for word in argv]
    for old, new in move:
        argv = [word.replace(old, new) for word in argv]
    if any(folder in word for word in argv):
        argv[2:2] = ["--env", f"ZIG_LOCAL_CACHE_DIR={folder}/zig"]
    return run(argv, **options)


def test_two_clean_builds_give_the_same_wheel(windows, builder, package, context, tmp_path, request):
    """The wheel made once more, in another folder, at another time, with its sources compiled again.

    Device code comes from the store. Its test is in tests/release/first. zig's C++ library comes from the
    cache. --full compiles both again.
    """
    full = request.config.getoption("--full")
    job = job_of(windows.wheel, load_matrix(CHECKOUT / "matrix.yaml"))
    other = replace(context, build=tmp_path / "build")
    steps = Steps(other if full else context, package)
    codes = compile_device_code(steps, job, SimpleNamespace(result=builder))
    steps.run()
    again = build_wheel(
        job, package, image=builder, device_code=[code.result for code in codes],
        zstd=fetch_zstd(CHECKOUT, other.store, log=tmp_path / "log").path,
        checkout=CHECKOUT, store=other.store, log=tmp_path / "log",
        cache=None if full else context.build / "ccache", run=elsewhere,
    )  # fmt: skip
    assert not again.reused
    made = [read_wheel(path, max_mib=64) for path in (windows.wheel, again.path / again.facts["wheel"])]
    assert first_difference(*made) is None
    assert again.facts["sha256"] == windows.says("sha256")


@pytest.mark.full
def test_a_rebuild_from_the_statement_is_the_same_bit_for_bit(windows, tmp_path):
    """In a worktree of its commit, without any cache."""
    if not is_clean():
        with pytest.raises(RebuildError, match="its sources differed from their commit"):
            rebuild(windows.wheel, CHECKOUT, jobs=2, log=tmp_path / "log")
        return
    rebuilt = rebuild(windows.wheel, CHECKOUT, jobs=2, log=tmp_path / "log")
    assert (rebuilt.wheel, rebuilt.sha256) == (windows.wheel.name, windows.says("sha256"))
    assert rebuilt.image.startswith("the statement's own image")


def test_pip_for_windows_takes_it_and_not_the_one_for_linux(windows, context, tmp_path):
    """Both are one version of the index."""
    root = shutil.copytree(windows.index, tmp_path / "index")
    metadata = "flash_attn_rocm-0.1.0.dist-info/METADATA"
    own = read_wheel(windows.wheel, max_mib=64).files
    tag = "flash_attn_rocm-0.1.0.dist-info/WHEEL"
    files = {metadata: own[metadata], tag: own[tag].replace(b"win_amd64", b"manylinux_2_28_x86_64")}
    linux = write_wheel(
        tmp_path, files, name=windows.wheel.name.replace("win_amd64", "manylinux_2_28_x86_64")
    )
    simple = publish(
        [linux], root, "public", catalogue=read_catalogue(), now=datetime.now(UTC), to_others=False
    ).simple
    found = install_and_call(
        "flash-attn-rocm==0.1.0", index=root, simple=simple, checkout=CHECKOUT, log=tmp_path / "log",
        image=build_wine_image(context.store, logs=context.log("").parent), under_wine=True,
    )  # fmt: skip
    assert len(list((simple / "flash-attn-rocm").glob("*.whl"))) == 2
    assert found["version"] == "0.1.0"
    assert found["max_error"] < 0.01


@pytest.mark.full
@pytest.mark.parametrize("shim", SHIMS, ids=lambda shim: shim.name)
def test_the_drop_in_works_beside_it(windows, builder, context, shim, tmp_path):
    """The same file as on Linux, and the same tests."""
    kept = {"checkout": CHECKOUT, "store": context.store, "log": tmp_path / "log"}
    built = build_shim(shim, image=builder, **kept)
    shown = verify_shim(
        shim, built.path / built.facts["wheel"], windows.wheel, under_wine=True,
        image=build_wine_image(context.store, logs=context.log("").parent), **kept,
    )  # fmt: skip
    assert shown.facts["beside"]["wheel"].endswith("-win_amd64.whl")
    assert shown.facts["tests"]["passed"] > 0


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
            subjects_of(wheel, [arch])[arch], planned_kernels(CHECKOUT, [arch])[arch],
            image=build_wine_image(context.store, logs=context.log("").parent), fake_hip=fake_dll,
            disassembly=mutants, checkout=CHECKOUT, jobs=context.jobs, most_failures=1, under_wine=True,
            **kept,
        )  # fmt: skip
    assert "against float64, allowed" in (tmp_path / "log").read_text()


def test_published_candidates_are_tuned_under_wine(windows, builder, fake_dll, context, tmp_path):
    image = build_wine_image(context.store, logs=context.log("").parent)
    texts = disassemble_wheel(windows.wheel, builder, store=context.store, log=tmp_path / "log")
    place = Place("gfx1100", image.facts["ref"], fake_dll.path, "windows-python", under_wine=True)
    require_tuned(windows.wheel, texts.path, place, tmp_path)


def test_a_runtime_that_lacks_a_function_is_not_built(fake_dll):
    dll, exports = (fake_dll.path / FAKE_HIP).read_bytes(), (CHECKOUT / EXPORTS).read_text()
    refuse_unexported(dll, exports)
    with pytest.raises(EmulatorBuildError, match="does not export hipSetDevice, which"):
        refuse_unexported(dll.replace(b"\0hipSetDevice\0", b"\0hipSetDevic_\0"), exports)

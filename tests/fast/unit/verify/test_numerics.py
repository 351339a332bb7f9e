"""The emulated suite's stage with a fake engine: its commands and its refusals."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fast.unit.build.test_stages import IMAGE, FakeEngine, suite
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.store import Artifact, Store
from wheel_builder.images.wheel_tests import FULL, NIGHTLY_TIER, RELEASE_TIER
from wheel_builder.machine_code.fake_hip.container import CONTROL, LIBRARY, SHARED, WINDOWS_LIBRARY
from wheel_builder.verify import numerics as emulated
from wheel_builder.verify import seen
from wheel_builder.verify.coverage import REASONS
from wheel_builder.verify.seen import Subject

TEST, ORACLE = "tests/installed/numerics/test_a.py", "tests/installed/numerics/data/oracle.json"
KERNELS = ("fa_fwd_bf16_d64", "fa_fwd_fp16_d64")


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    for name in (TEST, "README.md", CONTROL, *SHARED):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f'"""{name}"""\nVALUE = 1\n')
    (root / REASONS).parent.mkdir(exist_ok=True)
    (root / REASONS).touch()
    (root / ORACLE).parent.mkdir()
    (root / ORACLE).write_text("[1.0]")
    return root


@pytest.fixture(autouse=True)
def parts(tmp_path):
    """A fake HIP runtime and a disassembly."""
    for name in (f"fake_hip/{LIBRARY}", *(f"code/{arch}-{n}" for n, arch in enumerate(("gfx908", "gfx942")))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        for file in [name] if name.startswith("fake_hip") else [f"{name}.co", f"{name}.s"]:
            (tmp_path / file).write_text(file)


def part(tmp_path, name):
    return Artifact(path=tmp_path / name, manifest={"key": name, "facts": {}}, reused=True)


def subject(tmp_path, arch="gfx942", **changes):
    """The wheel as the suite sees it."""
    file = tmp_path / "a-1+rocm7.2-py3-none-any.whl"
    file.write_bytes(b"wheel")
    return Subject(file, "0" * 64, arch, {"code": "c", "library": "l", "package": "p"} | changes)


def coverage(executed):
    """Coverage of a kernel with 1000 instructions. The first did not run."""
    block = {"offset": 0, "behind": [], "code": ["s_mul_i32 s0, s1, s2"] * (1000 - executed)}
    return {"instructions": 1000, "not_executed": [block] if block["code"] else []}


def record(**changes):
    found = {"arch": "gfx942", "launches": dict.fromkeys(KERNELS, 3), "findings": []}
    return found | {"coverage": dict.fromkeys(KERNELS, coverage(1000))} | changes


def answering(found):
    def answer(argv, folders):
        if "/out" in folders:
            (Path(folders["/out"]) / "junit.xml").write_text(suite())
            (Path(folders["/out"]) / "record.json").write_text(json.dumps(found))

    return FakeEngine(answer)


def emulate(checkout, tmp_path, engine, *, wheel=None, image=IMAGE, kernels=KERNELS, **more):
    return emulated.run_emulated(
        wheel or subject(tmp_path), kernels, image=image,
        fake_hip=part(tmp_path, "fake_hip"), disassembly=part(tmp_path, "code"),
        checkout=checkout, store=Store(tmp_path / "build"), jobs=2, log=tmp_path / "log",
        run=engine, **more,
    )  # fmt: skip


def test_the_suite_runs_on_the_arch_with_sanitizers_and_without_network(checkout, tmp_path):
    engine = answering(record())
    shown = emulate(checkout, tmp_path, engine)
    [command] = engine.commands
    assert command[command.index("--network") + 1] == "none"
    assert "FA_FAKE_HIP_ARCH=gfx942:sramecc+:xnack-" in command
    assert "FA_FAKE_HIP_CHECKS=uninit,race,barrier" in command
    assert "FA_FAKE_HIP_TIME_LIMIT=600" in command
    assert "PRELOAD=/fake_hip/libamdhip64.so.7" in command
    covered = {"instructions": 1000, "executed": 1000, "not_executed": []}
    ran = shown.facts["executed"]
    assert shown.facts == record(
        tests={"passed": 3}, coverage=dict.fromkeys(KERNELS, covered), executed=ran, tier=RELEASE_TIER
    )
    assert len(ran["suite"]) == 64
    assert ran == {
        "wheel": "a-1+rocm7.2-py3-none-any.whl", "sha256": "0" * 64, "code": "c", "library": "l",
        "package": "p", "suite": ran["suite"],
    }  # fmt: skip


def test_under_wine_the_runtime_is_a_dll_and_python_is_windows(checkout, tmp_path):
    (tmp_path / f"fake_hip/{WINDOWS_LIBRARY}").touch()
    engine = answering(record())
    emulate(checkout, tmp_path, engine, under_wine=True)
    [command] = engine.commands
    assert "PRELOAD=/fake_hip/amdhip64_7.dll" in command
    assert "windows-python -m pytest" in command[-1]
    assert command[command.index("--network") + 1] == "none"
    assert not emulate(checkout, tmp_path, engine).reused


def test_a_failure_under_wine_says_where_it_was(checkout, tmp_path):
    (tmp_path / f"fake_hip/{WINDOWS_LIBRARY}").touch()
    with pytest.raises(VerifyError, match="failed numerics's tests in the container with wine\ndocker run"):
        emulate(checkout, tmp_path, FakeEngine(fails=True), under_wine=True)


def test_the_nightly_tier_is_another_result_and_its_record_says_so(checkout, tmp_path):
    engine = answering(record())
    tiers = [emulate(checkout, tmp_path, engine, tier=tier) for tier in (RELEASE_TIER, NIGHTLY_TIER)]
    assert [shown.reused for shown in tiers] == [False, False]
    assert [shown.facts["tier"] for shown in tiers] == [RELEASE_TIER, NIGHTLY_TIER]
    assert [f"{FULL}=1" in command for command in engine.commands] == [False, True]


@pytest.mark.parametrize(("more", "most"), [({}, 20), ({"most_failures": 1}, 1)])
def test_the_suite_stops_after_as_many_failures_as_the_caller_wants(checkout, tmp_path, more, most):
    engine = answering(record())
    emulate(checkout, tmp_path, engine, **more)
    [command] = engine.commands
    assert f"MOST_FAILURES={most}" in command
    assert '--maxfail="$MOST_FAILURES"' in command[-1]


def test_all_that_the_container_gets_is_in_the_key(checkout, tmp_path):
    """Files come only from copies of the hashed ones. There is no network."""
    engine = answering(record())
    key = emulate(checkout, tmp_path, engine).manifest["inputs"]
    [command] = engine.commands
    mounts = [
        dict(p.split("=") for p in m.split(",") if "=" in p) for m in command if m.startswith("type=bind")
    ]
    own = {mount["target"]: mount["source"] for mount in mounts}
    assert {*own} == {*key["files"], "/wheel", "/out"}
    assert [source for source in own.values() if str(checkout) in source] == []
    variables = [part for before, part in pairwise(command) if before == "--env"]
    known = {f"{name}={value}" for name, value in key["environment"].items()}
    # These leave results unchanged: threads, output folders, when the suite gives up, caches.
    other = ("FA_FAKE_HIP_THREADS", "FA_RECORD", "MOST_FAILURES", "PYTHONDONTWRITEBYTECODE", "PRELOAD")
    assert {variable for variable in variables if variable.partition("=")[0] not in other} == known
    assert f"PRELOAD={key['preload']}" in variables
    assert command[command.index("--network") + 1] == "none"


def test_only_the_code_objects_of_the_arch_are_in_the_container(checkout, tmp_path):
    seen = []

    def look(argv, folders):
        mount = next(part for part in argv if part.endswith("target=/disassembly,readonly"))
        folder = Path(mount.split("source=")[1].split(",")[0])
        seen.extend(sorted((file.name, file.read_text()) for file in folder.iterdir()))
        answering(record()).answer(argv, folders)

    emulate(checkout, tmp_path, FakeEngine(look))
    assert seen == [("0.co", "code/gfx942-1.co"), ("0.s", "code/gfx942-1.s")]


def write(path, text):
    return lambda root: (root / path).write_text(text)


# Changes of the checkout or of build results, by part of the key.
CHANGES = {
    "a test": write(f"checkout/{TEST}", '"""words"""\nVALUE = 2\n'),
    "a new test": write("checkout/tests/installed/numerics/test_b.py", ""),
    "data of tests": write(f"checkout/{ORACLE}", "[1.1]"),
    "a reason": write(f"checkout/{REASONS}", "# words, but of a file that is no Python"),
    "upstream's cases": write("checkout/tests/installed/shared/upstream.py", "VALUE = 2\n"),
    "control of the fake HIP runtime": write(f"checkout/{CONTROL}", "VALUE = 2\n"),
    "the emulator": write(f"fake_hip/{LIBRARY}", "another emulator"),
    "a code object": write("code/gfx942-1.co", "another kernel"),
    "its disassembly": write("code/gfx942-1.s", "another kernel"),
    "a test that can be run": lambda root: (root / "checkout" / TEST).chmod(0o755),
}
WORDS = {
    "a docstring and a comment of a test": write(f"checkout/{TEST}", '"""Others."""\n\n# why\nVALUE = 1\n'),
    "a docstring of upstream's cases": write(
        "checkout/tests/installed/shared/upstream.py", '"""x"""\nVALUE = (\n 1)\n'
    ),
    "README": write("checkout/README.md", "words"),
    "another arch's code object": write("code/gfx908-0.co", "another kernel"),
    "a code object more of another arch": write("code/gfx908-2.co", "another kernel"),
    "the runtime's manifest": write("fake_hip/manifest.json", "{}"),
    "Python's caches": lambda root: (root / "checkout/tests/installed/numerics/__pycache__").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_the_result_has_the_suite_run_again(checkout, tmp_path, change):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    assert emulate(checkout, tmp_path, engine).reused
    change(tmp_path)
    assert not emulate(checkout, tmp_path, engine).reused


@pytest.mark.parametrize("change", WORDS.values(), ids=WORDS)
def test_words_and_other_archs_cost_nothing(checkout, tmp_path, change):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    change(tmp_path)
    assert emulate(checkout, tmp_path, engine).reused
    assert len(engine.commands) == 1


@pytest.mark.parametrize("part", ["code", "library", "package"])
def test_a_changed_part_of_the_wheel_has_the_suite_run_again(checkout, tmp_path, part):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    assert not emulate(checkout, tmp_path, engine, wheel=subject(tmp_path, **{part: "changed"})).reused


def test_another_wheel_with_the_same_parts_has_the_same_result(checkout, tmp_path):
    """The record still names the executed wheel."""
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    again = emulate(checkout, tmp_path, engine, wheel=replace(subject(tmp_path), sha256="1" * 64))
    assert again.reused
    assert again.facts["executed"]["sha256"] == "0" * 64


@pytest.mark.parametrize("setting", ["CHECKS", "SEED", "TIME_LIMIT"])
def test_a_changed_setting_has_the_suite_run_again(checkout, tmp_path, setting, monkeypatch):
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    monkeypatch.setattr(emulated, setting, "7")
    assert not emulate(checkout, tmp_path, engine).reused


def test_other_kernels_archs_and_images_have_results_of_their_own(checkout, tmp_path):
    engine = answering(record())
    other = replace(IMAGE, manifest={"key": "k", "facts": {**IMAGE.facts, "image_id": "sha256:2"}})
    emulate(checkout, tmp_path, engine)
    assert not emulate(checkout, tmp_path, engine, kernels=KERNELS[:1]).reused
    assert not emulate(checkout, tmp_path, engine, image=other).reused
    engine = answering(record(arch="gfx908"))
    assert not emulate(checkout, tmp_path, engine, wheel=subject(tmp_path, "gfx908")).reused


def test_what_judges_a_record_is_in_the_key(checkout, tmp_path, monkeypatch):
    """After a limit was raised, results from the lower one still passed."""
    engine = answering(record())
    emulate(checkout, tmp_path, engine)
    for judge in emulated.JUDGES:
        changed = tmp_path / Path(judge).name
        changed.write_text(Path(judge).read_text() + "\nLIMIT = 2\n")
        others = tuple(str(changed) if each == judge else each for each in emulated.JUDGES)
        monkeypatch.setattr(emulated, "JUDGES", others)
        assert not emulate(checkout, tmp_path, engine).reused


def test_an_edit_while_the_command_runs_is_not_taken_for_what_was_there_before(
    checkout, tmp_path, monkeypatch
):
    """The key was of the old file, the container had the new one, and the result was kept."""
    real = seen.copied

    def edited_first(files, to, expected):
        (checkout / TEST).write_text("VALUE = 2\n")
        return real(files, to, expected)

    monkeypatch.setattr(seen, "copied", edited_first)
    engine = answering(record())
    with pytest.raises(
        VerifyError, match="tests/installed/numerics changed while the command ran\n  next: nothing was"
    ):
        emulate(checkout, tmp_path, engine)
    assert engine.commands == []
    assert not list((tmp_path / "build/emulated").glob("*/manifest.json"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arch": "gfx908"}, "it is about gfx908"),
        ({"launches": {KERNELS[0]: 3}}, f"{KERNELS[1]} never ran"),
        ({"findings": ["lds-race: store"]}, "the emulator found: lds-race: store"),
        (
            {"coverage": {KERNELS[0]: coverage(1000), KERNELS[1]: coverage(959)}},
            f"{KERNELS[1]}: 95.9% of its instructions were executed or have a reason in ",
        ),
        (
            {"coverage": {KERNELS[0]: coverage(989), KERNELS[1]: coverage(1000)}},
            f"expected at most 0.5%\n  - {KERNELS[0]}+0x0: 11 of them, from `s_mul_i32 s0, s1, s2` on",
        ),
    ],
)
def test_a_record_that_does_not_vouch_for_the_wheel(checkout, tmp_path, change, words):
    with pytest.raises(
        VerifyError, match="the emulated suite of gfx942 does not vouch for the wheel"
    ) as caught:
        emulate(checkout, tmp_path, answering(record(**change)))
    assert words in str(caught.value)
    assert not list((tmp_path / "build" / "emulated").glob("*/record.json"))

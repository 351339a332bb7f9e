"""Stages with a fake engine: their commands, and their results."""

import hashlib
import json
import os
import re
import stat
import threading
import tomllib
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.checkouts import copy_sources
from wheel_builder.base.errors import CommandFailedError, DeviceCodeError, VerifyError, WheelError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Artifact, Store, key_of
from wheel_builder.build import device_code, wheel
from wheel_builder.build.budget import UPDATE, KernelCost, to_text
from wheel_builder.build.compiler_cache import cache_settings
from wheel_builder.images.wheel_tests import FULL, NIGHTLY_TIER
from wheel_builder.machine_code.fake_hip.container import LIBRARY, SHARED
from wheel_builder.matrix.model import Job, Package, Public, Rocm
from wheel_builder.tables.archs import TABLES
from wheel_builder.verify import stage as verify

IMAGE = Artifact(path=None, manifest={"key": "k", "facts": {
    "ref": "builder:7.2", "image_id": "sha256:1", "python_tag": "cp314-cp314", "os": "Debian GNU/Linux",
    "packages": {"clang-22": "1:22.1.8-3"}, "python_packages": {"ziglang": "0.17.0"},
    "libcxx": "21.1.0"}}, reused=True)  # fmt: skip
STATIC = Artifact(
    path=None, manifest={"key": "s", "facts": {"archs": {"gfx908": {}}, "differences": []}}, reused=True
)
ROCM = Rocm("7.2", "debian", "debian:sid-slim", "/usr/lib/llvm-22/bin", ("gfx908",))
PACKAGE = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)


KERNEL = "fa_fwd_fp16_d64"
SUITES = (verify.TESTS, verify.WORDS, verify.ERROR_TESTS)
RESULTS = re.compile(r"source=([^,']+),target=/out\b")


class FakeEngine:
    """Stands in for ``process.run``: notes each command and lets ``answer`` write to the writable mounts."""

    def __init__(self, answer=lambda argv, folders: None, fails=False):
        self.commands, self.answer, self.fails = [], answer, fails

    def __call__(self, argv, *, log=None, env=None, cwd=None, check=True, advice=""):
        argv = [str(part) for part in argv]
        self.commands.append(argv)
        if self.fails and argv[:2] == ["docker", "run"]:
            message = "docker run ended with status 1\n  | error: no member named 'mfma'"
            raise CommandFailedError(message)
        flags = [argv[n + 1] for n, part in enumerate(argv) if part == "--mount"]
        mounts = [
            dict(f.split("=", 1) for f in flag.split(",") if "=" in f) | {"flag": flag} for flag in flags
        ]
        self.answer(argv, {m["target"]: m["source"] for m in mounts if "readonly" not in m["flag"]})
        return Completed("", 0)


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    for name in (
        "kernels/device/a.hpp",
        "kernels/build/instances/build.py",
        "shim/flash_attn/__init__.py",
        *(f"{suite}/test_a.py" for suite in SUITES),
        "wheel_builder/machine_code/fake_hip/control.py",
        verify.MACHINES,
        *SHARED,
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    copy_sources(root)
    budget = {"gfx908": {KERNEL: KernelCost(code_bytes=1000, cpu_seconds=1.5, peak_mib=100)}}
    (root / "kernels/tables/costs.json").write_text(to_text(budget))
    return root


def compiled(argv, folders, code_bytes=1000):
    out = Path(folders["/out"])
    (out / f"{KERNEL}.hsaco").write_bytes(b"elf")
    found = {
        "cpu_seconds": 1.5,
        "kernels": {KERNEL: {"code_bytes": code_bytes}},
        "costs": {KERNEL: {"cpu_seconds": 1.4, "peak_mib": 90}},
    }
    (out / "resources.json").write_text(json.dumps(found))


def test_a_kernel_that_doubles_fails_the_build_and_is_not_kept(checkout, tmp_path):
    engine = FakeEngine(partial(compiled, code_bytes=2000))
    with pytest.raises(DeviceCodeError) as failure:
        compile_gfx908(checkout, Store(tmp_path / "build"), engine)
    assert failure.value.message == (
        "kernels for gfx908 cost more than kernels/tables/costs.json allows\n"
        "  - fa_fwd_fp16_d64 for gfx908: machine code has 2000 bytes, expected about 1000 (2.0 times)"
    )
    assert failure.value.advice == UPDATE
    assert compile_gfx908(checkout, Store(tmp_path / "build"), FakeEngine(compiled)).reused is False


def compile_gfx908(checkout, store, engine):
    return device_code.compile_arch(
        "gfx908", image=IMAGE, checkout=checkout, store=store, jobs=2, log=checkout / "log", run=engine
    )


def test_device_code_is_compiled_without_network_or_root_and_only_once(checkout, tmp_path):
    engine, store = FakeEngine(compiled), Store(tmp_path / "build")
    first = compile_gfx908(checkout, store, engine)
    second = compile_gfx908(checkout, store, engine)
    [command] = engine.commands
    assert command[command.index("--network") + 1] == "none"
    assert command[command.index("--user") + 1] == "65534:65534"
    assert first.facts == {
        "arch": "gfx908",
        "instances": ["fa_fwd_fp16_d64"],
        "cpu_seconds": 1.5,
        "code_bytes": 3,
    }
    assert second.reused


def test_what_kernels_do_not_read_compiles_nothing_again(checkout, tmp_path):
    """A changed GPU name or modelled latency recompiled every kernel."""
    store = Store(tmp_path / "build")
    compile_gfx908(checkout, store, FakeEngine(compiled))
    for name in TABLES:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("# changed")
    assert compile_gfx908(checkout, store, FakeEngine(compiled)).reused
    (checkout / "kernels/generated/archs.json").write_text('{"gfx908": []}')
    assert not compile_gfx908(checkout, store, FakeEngine(compiled)).reused


def test_a_cache_is_mounted_and_told_which_compiler_it_is(checkout, tmp_path):
    engine, cache = FakeEngine(compiled), tmp_path / "cache"
    device_code.compile_arch(
        "gfx908", image=IMAGE, checkout=checkout, store=Store(tmp_path / "build"), jobs=2,
        log=tmp_path / "log", cache=cache, run=engine,
    )  # fmt: skip
    [command] = engine.commands
    assert f"type=bind,source={cache}/device/objects,target=/cache" in command
    assert command[-2:] == ["--cache", "/cache"]
    # The container's user, nobody, may write to objects. The folder around it keeps other users out.
    assert stat.S_IMODE((cache / "device").stat().st_mode) == 0o700
    assert stat.S_IMODE((cache / "device" / "objects").stat().st_mode) == 0o777
    assert f"CCACHE_COMPILERCHECK=string:{device_code.compiler_id(IMAGE.facts)}" in command
    other = {**IMAGE.facts, "packages": {"clang-22": "1:22.1.8-4"}}
    assert device_code.compiler_id(other) != device_code.compiler_id(IMAGE.facts)
    same = {**IMAGE.facts, "image_id": "sha256:2", "packages": {"clang-22": "1:22.1.8-3", "bash": "5"}}
    assert device_code.compiler_id(same) == device_code.compiler_id(IMAGE.facts)


def test_a_changed_kernel_is_compiled_again(checkout, tmp_path):
    engine, store = FakeEngine(compiled), Store(tmp_path / "build")
    compile_gfx908(checkout, store, engine)
    (checkout / "kernels/device/a.hpp").write_text("changed")
    assert not compile_gfx908(checkout, store, engine).reused


def test_a_kernel_that_does_not_compile_is_shown_with_its_arch(checkout, tmp_path):
    with pytest.raises(DeviceCodeError) as caught:
        compile_gfx908(checkout, Store(tmp_path / "build"), FakeEngine(fails=True))
    assert "the device code for gfx908 does not build" in str(caught.value)
    assert "no member named 'mfma'" in str(caught.value)


def zstd(checkout):
    folder = checkout.with_name("zstd")
    folder.mkdir(exist_ok=True)
    return folder


def build_wheel(checkout, store, engine, wheels):
    code = compile_gfx908(checkout, store, FakeEngine(compiled))

    def answer(argv, folders):
        if "cibuildwheel" in argv:
            for name in wheels:
                (Path(argv[argv.index("--output-dir") + 1]) / name).write_bytes(b"wheel")

    engine.answer = answer
    return wheel.build_wheel(
        Job(ROCM, ("gfx908",)), PACKAGE, image=IMAGE, device_code=[code], zstd=zstd(checkout),
        checkout=checkout, store=store,
        log=checkout / "log", run=engine,
    )  # fmt: skip


def test_the_wheel_stage_leaves_the_wheel_and_nothing_else(checkout, tmp_path):
    built = build_wheel(checkout, Store(tmp_path / "build"), FakeEngine(), ["a-1-py3-none-any.whl"])
    assert sorted(p.name for p in built.path.iterdir()) == ["a-1-py3-none-any.whl", "manifest.json"]
    assert built.facts["bytes"] == 5


def test_the_build_gets_the_settings_of_the_projects_file_and_no_others(checkout, tmp_path, monkeypatch):
    """A caller's variables overrode them."""
    monkeypatch.setenv("CIBW_TEST_COMMAND", "true")
    monkeypatch.setenv("FA_CACHE", "/mine")
    envs = []

    class Engine(FakeEngine):
        def __call__(self, argv, *, env=None, **named):
            envs.append(env)
            return super().__call__(argv, env=env, **named)

    build_wheel(checkout, Store(tmp_path / "build"), Engine(), ["a-1-py3-none-any.whl"])
    given = {name for name in envs[-1] if name not in os.environ}
    assert {name for name in envs[-1] if name.startswith(("CIBW_", "FA_"))} <= given
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    passed = project["tool"]["cibuildwheel"]["environment-pass"]
    assert {name for name in given if not name.startswith("CIBW_")} <= set(passed)
    assert set(passed) - given == {"FA_CACHE", *cache_settings("any")}


def test_the_wheel_for_windows_is_built_without_cibuildwheel(checkout, tmp_path):
    code = compile_gfx908(checkout, Store(tmp_path / "build"), FakeEngine(compiled))
    asked = []

    def answer(argv, folders):
        asked.append(argv)
        if "/out" in folders and "-m build" in argv[-1]:
            (Path(folders["/out"]) / "a-1-py3-none-win_amd64.whl").write_bytes(b"wheel")

    built = wheel.build_wheel(
        Job(ROCM, ("gfx908",), PUBLIC, "windows"), PACKAGE, image=IMAGE, device_code=[code],
        zstd=zstd(checkout), checkout=checkout, store=Store(tmp_path / "build"), log=checkout / "log",
        cache=tmp_path / "cache",
        run=FakeEngine(answer),
    )  # fmt: skip
    assert built.facts["wheel"] == "a-1-py3-none-win_amd64.whl"
    assert not [argv for argv in asked if "cibuildwheel" in argv]
    environment = {argv[at + 1] for argv in asked for at, word in enumerate(argv) if word == "--env"}
    assert {"FA_PLATFORM=windows", "FA_ROCM_VERSION=public", "ZIG_GLOBAL_CACHE_DIR=/cache"} <= environment
    assert (tmp_path / "cache/zig-windows/objects").is_dir()


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt, CommandFailedError("cibuildwheel ended with status 1")]
)
def test_a_stopped_build_leaves_no_container_of_cibuildwheels(checkout, tmp_path, failure):
    engine = FakeEngine()
    asked = []

    def run(argv, **kwargs):
        asked.append([str(part) for part in argv])
        if "cibuildwheel" in argv:
            raise failure
        if "ps" in argv:
            return Completed("c0ffee\n", 0)
        return engine(argv, **kwargs)

    code = compile_gfx908(checkout, Store(tmp_path / "build"), FakeEngine(compiled))
    with pytest.raises((KeyboardInterrupt, CommandFailedError)):
        wheel.build_wheel(
            Job(ROCM, ("gfx908",)), PACKAGE, image=IMAGE, device_code=[code], zstd=zstd(checkout),
            checkout=checkout, store=Store(tmp_path / "build"), log=checkout / "log", run=run,
        )  # fmt: skip
    assert asked[-1] == ["docker", "rm", "--force", "--volumes", "c0ffee"]


@pytest.mark.parametrize("wheels", [[], ["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"]])
def test_not_exactly_one_wheel_is_an_error(checkout, tmp_path, wheels):
    with pytest.raises(WheelError, match=f"left {len(wheels)} wheels, expected one"):
        build_wheel(checkout, Store(tmp_path / "build"), FakeEngine(), wheels)


def verified(junit):
    def answer(argv, folders):
        (Path(folders["/out"]) / "junit.xml").write_text(junit)

    return FakeEngine(answer)


WHEEL_SHA256 = hashlib.sha256(b"wheel").hexdigest()


def emulated(arch, **changes):
    """The output of an arch's emulated suite."""
    how = "executed on an ISA emulator, not run on hardware"
    facts = {"arch": arch, "how": how, "tests": {"passed": 9}, "checks": ["race"], "seed": 1,
             "wave_instructions": 1000,
             "instances": {"fa_fwd_fp16_d64": {"cases": 9, "worst_error": 0.001}},
             "executed": {"wheel": "a.whl", "sha256": WHEEL_SHA256, "code": "c" * 64},
             "launches": {"fa_fwd_fp16_d64": 9}, "coverage": {}, "findings": [],
             "tier": "release"} | changes  # fmt: skip
    return Artifact(path=None, manifest={"key": f"{arch}-{key_of(facts)}", "facts": facts}, reused=True)


def loaded(rocm, *problems):
    """The output of loading the wheel under a runtime."""
    functions, codes = {"hipGetDevice": "libamdhip64.so.7"}, {"gfx908-0": "amdgcn-amd-amdhsa--gfx908 1"}
    found = None if problems else {"functions": functions, "codes": codes, "gpus": ["gfx900", "gfx908"]}
    facts = {"rocm": rocm, "package": "libamdhip64-7 7.2.4", "found": found, "problems": list(problems)}
    return Artifact(path=None, manifest={"key": f"{rocm}-load", "facts": facts}, reused=True)


PUBLIC = Public("7.2", ("6.4", "7.2"), (("7.2", ("7.14", "10.0")), ("6.4", ("6.5",))))


def verify_one(checkout, tmp_path, engine, runtimes=None, shown=None, public=None, jobs=1, **options):
    file = tmp_path / "a-1+rocm7.2-py3-none-any.whl"
    file.write_bytes(options.pop("wheel", b"wheel"))
    for name in (LIBRARY, "gfx908-0.co", "gfx908-0.s"):
        (tmp_path / name).write_text(name)
    part = Artifact(path=tmp_path, manifest={"key": "part", "facts": {}}, reused=True)
    return verify.verify_wheel(
        file, {"gfx908": shown or emulated("gfx908")}, static=STATIC, job=Job(ROCM, ("gfx908",), public),
        image=IMAGE, fake_hip=part, disassembly=part,
        runtimes={"7.2": loaded("7.2"), "6.4": loaded("6.4"), **(runtimes or {})},
        checkout=checkout, store=Store(tmp_path / "build"), jobs=jobs, log=tmp_path / "verify.log",
        run=engine, **options,
    )  # fmt: skip


def suite(tests=3, failures=0, errors=0, skipped=0):
    counts = f'tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}"'
    return f"<testsuites><testsuite {counts}/></testsuites>"


def test_the_record_says_what_was_shown_and_what_was_not(checkout, tmp_path):
    record = verify_one(checkout, tmp_path, verified(suite()))
    shown = record.facts["archs"]["gfx908"]
    assert shown["numerics"] == "executed on an ISA emulator, not run on hardware"
    assert shown["passed"] is True
    assert list(shown["gpus"]) == ["gfx908"]
    assert shown["runtimes"] == {"7.2": ["gfx908"], "6.4": ["gfx908"]}
    assert shown["instances"]["fa_fwd_fp16_d64"] == {"cases": 9, "worst_error": 0.001}
    assert record.facts["tests"] == {suite: {"passed": 3} for suite in SUITES}
    assert json.loads((record.path / "record.json").read_text()) == record.facts


@pytest.mark.parametrize(
    ("sha256", "words"),
    [(WHEEL_SHA256, "this wheel"), ("0" * 64, "an earlier wheel, with the same code objects")],
)
def test_the_record_says_on_which_bytes_kernels_were_executed(checkout, tmp_path, sha256, words):
    before = emulated("gfx908", executed={"wheel": "b.whl", "sha256": sha256, "code": "c" * 64})
    shown = verify_one(checkout, tmp_path, verified(suite()), shown=before).facts["archs"]["gfx908"]
    assert shown["code"] == "the code of gfx908"
    assert shown["executed"]["on"].startswith(words)
    assert shown["executed"]["sha256"] == sha256
    assert shown["executed"]["code"] == "c" * 64


def test_slow_tests_of_the_wheel_make_another_result(checkout, tmp_path):
    engine = verified(suite())
    verify_one(checkout, tmp_path, engine)
    assert not verify_one(checkout, tmp_path, engine, tier=NIGHTLY_TIER).reused
    assert [f"{FULL}=1" in command for command in engine.commands] == [False] * 3 + [True] * 2 + [False]


def test_the_folders_of_tests_run_side_by_side_with_logs_of_their_own(checkout, tmp_path):
    """One after the other they took four minutes, with a core idle."""
    together, logs = threading.Barrier(3, timeout=30), []

    def answer(argv, folders):
        together.wait()
        (Path(folders["/out"]) / "junit.xml").write_text(suite())

    engine = FakeEngine(answer)

    def run(argv, *, log=None, **options):
        logs.append(log.name)
        return engine(argv, log=log, **options)

    record = verify_one(checkout, tmp_path, run, jobs=3)
    assert record.facts["tests"] == {suite: {"passed": 3} for suite in SUITES}
    assert sorted(logs) == ["verify-fake_hip.log", "verify-wheel.log", "verify-words.log"]


def suites_run(engine):
    """The suites run, in order, by the folders of their results."""
    return [Path(folder).name for command in engine.commands for folder in RESULTS.findall(str(command))]


def test_of_a_wheel_with_other_words_only_the_words_are_tested(checkout, tmp_path):
    """After a changed docstring, a release repeated minutes of suites with known results."""
    engine = verified(suite())
    verify_one(checkout, tmp_path, engine)
    assert suites_run(engine) == ["fake_hip", "wheel", "words"]
    record = verify_one(checkout, tmp_path, engine, wheel=b"with another docstring").facts
    assert suites_run(engine) == ["fake_hip", "wheel", "words", "words"]
    assert record["tested"].pop(verify.WORDS) == "this wheel"
    assert all(on.startswith("an earlier wheel, with the same code") for on in record["tested"].values())
    assert record["tests"] == {suite: {"passed": 3} for suite in SUITES}


def test_of_another_kernel_all_is_tested(checkout, tmp_path):
    engine = verified(suite())
    for code in "cd":
        ran = {"wheel": "a.whl", "sha256": WHEEL_SHA256, "code": code * 64}
        verify_one(checkout, tmp_path, engine, shown=emulated("gfx908", executed=ran))
    assert suites_run(engine) == ["fake_hip", "wheel", "words"] * 2


def test_a_changed_test_of_the_wheel_runs_with_its_suite_alone(checkout, tmp_path):
    engine = verified(suite())
    verify_one(checkout, tmp_path, engine)
    (checkout / verify.TESTS / "test_a.py").write_text("def test_more(): pass\n")
    verify_one(checkout, tmp_path, engine)
    assert suites_run(engine)[3:] == ["wheel", "words"]


@pytest.mark.parametrize("tier", ["release", "nightly"])
def test_the_record_says_which_tests_ran(checkout, tmp_path, tier):
    shown = verify_one(checkout, tmp_path, verified(suite()), shown=emulated("gfx908", tier=tier)).facts
    assert shown["archs"]["gfx908"]["tier"] == tier


def test_the_record_says_which_runtimes_the_wheel_serves(checkout, tmp_path):
    old = loaded("5.7", "hipGetDevicePropertiesR0600 is not in its libamdhip64")
    record = verify_one(checkout, tmp_path, verified(suite()), {"5.7": old}).facts
    assert record["serves"] == ["6.4"]
    assert record["runtimes"]["6.4"] == (
        "loaded with libamdhip64-7 7.2.4 and without GPU: the runtime has all 1 functions and answers "
        "through the library, and its comgr reads all 1 code objects; no code was loaded to a device"
    )
    assert record["runtimes"]["5.7"].startswith(
        "not offered for ROCm 5.7: hipGetDevicePropertiesR0600 is not"
    )


def test_the_public_wheel_serves_what_has_a_runtime_like_one_that_it_loads_under(checkout, tmp_path):
    old = loaded("6.4", "hipGetDevicePropertiesR0600 is not in its libamdhip64")
    record = verify_one(checkout, tmp_path, verified(suite()), public=PUBLIC).facts
    assert record["serves"] == ["7.2", "6.4", "7.14", "10.0", "6.5"]
    assert record["runtimes"]["10.0"] == (
        "not loaded: PyTorch's builds for it bring a runtime of the same ABI as ROCm 7.2's"
    )
    (again := tmp_path / "again").mkdir()
    record = verify_one(checkout, again, verified(suite()), {"6.4": old}, public=PUBLIC).facts
    assert record["serves"] == ["7.2", "7.14", "10.0"]
    assert "6.5" not in record["runtimes"]


def test_a_wheel_that_does_not_load_under_its_own_runtime_is_refused(checkout, tmp_path):
    with pytest.raises(VerifyError, match=r"does not load under ROCm 7\.2\n  - it names no kernel"):
        verify_one(checkout, tmp_path, verified(suite()), {"7.2": loaded("7.2", "it names no kernel")})


@pytest.mark.parametrize("counts", [{"tests": 0}, {"failures": 1}, {"errors": 1}, {"skipped": 1}])
def test_a_wheel_is_verified_only_when_every_test_ran_and_passed(checkout, tmp_path, counts):
    with pytest.raises(VerifyError, match="did not all pass"):
        verify_one(checkout, tmp_path, verified(suite(**counts)))


def test_a_failing_test_is_shown_with_its_log(checkout, tmp_path):
    with pytest.raises(VerifyError) as caught:
        verify_one(checkout, tmp_path, FakeEngine(fails=True))
    assert "failed fake_hip's tests in the verify container" in str(caught.value)
    assert str(tmp_path / "verify-fake_hip.log") in str(caught.value)

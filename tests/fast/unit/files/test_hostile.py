"""Hostile values in matrix.yaml, paths and names are refused, or stay plain text wherever they end up."""

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cibuildwheel.oci_container import OCIContainerEngineConfig

from tests.conftest import CHECKOUT
from tests.tools.made.checkouts import copy_sources
from tests.tools.made.wheels import BUILDER_FACTS
from tests.tools.noted import Noted
from wheel_builder.base.errors import ImageError, MatrixError, SelectionError, WheelError
from wheel_builder.base.store import Artifact, Store
from wheel_builder.build import wheel
from wheel_builder.build.runtime_image import NO_TORCH, labels
from wheel_builder.build.source import Source
from wheel_builder.cli.main import main
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.images.docker import Mount, build, run_in
from wheel_builder.machine_code.disassembly.listing import SCRIPT, Tools, list_code
from wheel_builder.matrix.model import Job, Package, Plan, Rocm
from wheel_builder.matrix.plan import to_github
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.pipeline.verification import job_of

MATRIX = CHECKOUT / "matrix.yaml"
HOSTILE = (
    "$(touch planted)", "`touch planted`", "a;touch planted", "a&&touch", "a|touch", 'a"b', "a'b", "a\nb",
    "../../planted", "<script>planted()</script>", "--planted", "a b", "a\x00b", "a\\b", "",
    "\N{FULLWIDTH DIGIT SEVEN}.2",
)  # fmt: skip
# All values used in command lines, Dockerfiles, paths and workflows. Values for people only are free.
PLACES = (
    ("default_rocm",), ("package", "torch_floor"), ("package", "torch_headers"),
    ("package", "torch_headers_sha256"), ("package", "platform_tag"),
    ("not_built", 0, "archs", 0), ("rocm", 0, "version"), ("rocm", 0, "provider"), ("rocm", 0, "base"),
    ("rocm", 0, "suite"), ("rocm", 0, "llvm"), ("rocm", 0, "archs", 0), ("rocm", 0, "packages", "sid", 0),
    ("exclude", 0, "rocm"), ("exclude", 0, "arch"),
    ("public", "built_with"), ("public", "runtimes", 0), ("public", "like", "7.2", 0),
    ("public", "windows", 0),
    ("upstream", "version"), ("upstream", "sha256"), ("upstream", "archs", 0),
)  # fmt: skip
# Empty before the project is public. Given ones appear on pages and in messages.
ADDRESSES = tuple(("addresses", name) for name in ("repository", "issues", "index", "security"))
READ_BY_PEOPLE = {"reason", "note"}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *itertools.product(PLACES, HOSTILE),
        *itertools.product(ADDRESSES, (*filter(None, HOSTILE), "javascript:alert(1)", "https://a@host/")),
    ],
    ids=ascii,
)
def test_matrix_yaml_refuses_what_could_mean_something_elsewhere(place, value, document, tmp_path):
    *parents, last = place
    node = document
    for part in parents:
        node = node[part]
    node[last] = value
    with pytest.raises(MatrixError):
        load(document, tmp_path)


def test_without_a_hostile_value_the_same_document_is_taken(document, tmp_path):
    assert load(document, tmp_path) == load_matrix(MATRIX)


def load(document, folder):
    file = folder / "matrix.yaml"
    file.write_text(json.dumps(document))  # JSON is YAML too
    return load_matrix(file)


@pytest.fixture
def document():
    """The content of matrix.yaml, to be changed."""
    return yaml.load(MATRIX.read_text(), Loader=yaml.CSafeLoader)


def test_these_are_all_places_of_matrix_yaml(document):
    def keys(node, path=()):
        children = (
            node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        )
        if isinstance(node, str):
            yield path
        for key, child in children:
            # One row, one item stands for all.
            yield from keys(child, (*path, 0 if isinstance(key, int) else key))

    texts = {path for path in keys(document) if path[-1] not in READ_BY_PEOPLE}
    known = {(*path[:3], "sid", 0) if path[2:3] == ("packages",) else path for path in texts}
    assert known == {*PLACES, *ADDRESSES}


def test_a_workflow_output_is_one_line_whatever_a_row_holds():
    rocm = replace(load_matrix(MATRIX).rocm[0], version='7.2\nplanted=1"')
    plan = Plan((Job(rocm, ("gfx908",)),), (), load_matrix(MATRIX).package)
    lines = to_github(plan, {"rocm" + rocm.version: "key"}).splitlines()
    names = ["image", "device", "wheel", "gpu", "runtime", "tuning", "tuning_image"]
    assert [line.partition("=")[0] for line in lines] == names
    assert json.loads(lines[2].partition("=")[2])["include"][0]["rocm"] == rocm.version


@pytest.mark.parametrize("sign", [",", '"', "\n", "\r"])
def test_a_path_cannot_add_options_to_a_mount(sign):
    with pytest.raises(ImageError, match=r"in the path; the container engine cannot mount it"):
        run_in("image", ["true"], mounts=[Mount(Path(f"/a{sign}readonly=false"), "/src")], run=Noted())


@pytest.mark.parametrize("value", [v for v in HOSTILE if v], ids=ascii)
def test_values_are_single_words_of_docker_commands(value, tmp_path):
    run = Noted()
    build(tmp_path, "a.Dockerfile", "tag", args={"A": value}, labels={"l": value}, log=tmp_path, run=run)
    run_in("image", ["echo", value], env={"E": value}, run=run)
    built, ran = run.commands
    assert built[built.index("--build-arg") + 1] == f"A={value}"
    assert built[built.index("--label") + 1] == f"l={value}"
    assert ran[-1] == value
    assert ran[ran.index("--env") + 1] == f"E={value}"


def test_archs_of_a_wheel_are_arguments_of_the_script_not_part_of_it(tmp_path):
    run, evil = Noted(), "gfx908; touch planted"
    with pytest.raises(FileNotFoundError):  # the listing never ran
        list_code(
            [CodeObject(evil, b"")], tools=Tools("id", image="builder"), store=Store(tmp_path),
            log=tmp_path / "log", run=run,
        )  # fmt: skip
    [argv] = run.commands
    assert argv[-6:] == ["sh", "-c", SCRIPT, "sh", "/out", evil]
    assert '--mcpu="$arch"' in SCRIPT


def test_a_checkouts_path_is_one_word_of_cibuildwheels_settings(tmp_path):
    """cibuildwheel splits its settings by a shell's rules."""
    checkout = tmp_path / "$(touch planted) 'a'; disable_host_mount: false"
    copy_sources(checkout)
    image = Artifact(tmp_path, {"key": "k", "facts": BUILDER_FACTS}, reused=True)
    rocm = Rocm("7.2", "debian", "debian:sid-slim", "/llvm", ("gfx908",))
    package = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)
    run, zstd = Noted(), tmp_path / "zstd"
    zstd.mkdir()
    with pytest.raises(WheelError, match="left 0 wheels"):
        wheel.build_wheel(
            Job(rocm, ("gfx908",)), package, image=image, device_code=[], zstd=zstd, checkout=checkout,
            store=Store(checkout / "build"), log=tmp_path / "log", cache=checkout / "cache", run=run,
        )  # fmt: skip
    settings = {name: value for name, value in run.envs[-1].items() if os.environ.get(name) != value}
    engine = OCIContainerEngineConfig.from_config_string(settings.pop("CIBW_CONTAINER_ENGINE"))
    assert engine.disable_host_mount
    [mount] = [arg for arg in engine.create_args if "planted" in arg]
    assert mount == f"type=bind,source={checkout}/cache/host/objects,target=/cache"
    assert settings
    assert not [value for value in settings.values() if "planted" in value]


@pytest.mark.parametrize(
    "name",
    [
        "$(touch planted).whl",
        "../../planted.whl",
        "<script>.whl",
        "flash_attn_rocm-0.1.0+rocm7.2-py3-none-any.whl\n",
        "flash_attn_rocm-0.1.0-py3-none-any.sh",
    ],
)
def test_a_file_that_is_not_named_as_a_wheel_belongs_to_no_job(name):
    with pytest.raises(WheelError, match="is not a wheel's file name"):
        job_of(Path(name), load_matrix(MATRIX))


def test_labels_take_names_as_they_are(tmp_path):
    file = tmp_path / 'a-1"$(touch planted)-py3-none-any.whl'
    file.write_bytes(b"")
    job = Job(load_matrix(MATRIX).rocm[0], ("gfx908",))
    assert labels(job, file, NO_TORCH, Source("", "", (), "", {}, ""))["flash-attn-rocm.wheel"] == file.name


@pytest.mark.parametrize(
    "value", [value for value in HOSTILE if value and not value.startswith("-")], ids=ascii
)
def test_what_a_form_sends_is_a_known_name_or_refused(value, capsys):
    assert main(["plan", "--github", "--rocm", "default", "--archs", value]) == SelectionError.exit_code
    assert capsys.readouterr().out == ""

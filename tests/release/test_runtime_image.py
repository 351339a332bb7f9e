"""``docker run rocm-fa:7.2`` with the released wheel in it."""

import json
import re
import subprocess

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.wheels import project_wheel
from wheel_builder.build.runtime_image import build_runtime_image
from wheel_builder.images import docker
from wheel_builder.images.size import BUDGET_MIB, MIB

PAGE = (CHECKOUT / "docs/install.md").read_text()
ATTEND = """
import warnings, torch, flash_attn_rocm
warnings.simplefilter("ignore", flash_attn_rocm.FlashAttnFallbackWarning)
q = torch.randn(1, 5, 2, 64, dtype=torch.float16)
print(tuple(flash_attn_rocm.flash_attn_func(q, q, q).shape))
"""


def built(release, job, package, context, *, slim):
    logs = context.log("image-runtime").parent
    return build_runtime_image(
        job, release.wheel, context.store, package=package, checkout=CHECKOUT, logs=logs, slim=slim
    ).facts


@pytest.fixture(scope="module")
def image(release, job, package, context):
    """The runtime image's facts."""
    return built(release, job, package, context, slim=False)


@pytest.fixture(scope="module")
def slim(release, job, package, context):
    """The facts of the image without torch."""
    return built(release, job, package, context, slim=True)


@pytest.fixture
def derived(context, tmp_path):
    """``derived(name, dockerfile)``: the facts of an image. The image is removed after the test."""
    made = []

    def build(name, dockerfile):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "Dockerfile").write_text(dockerfile)
        made.append(f"flash-attn-rocm-test:{name}")
        docker.build(tmp_path / name, "Dockerfile", made[-1], args={}, log=context.log("derived"))
        return {"ref": made[-1]}

    yield build
    for tag in made:
        docker.remove(tag)


def docker_run(image, *argv, status=0):
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", image["ref"], *argv],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout


def test_it_is_named_after_the_rocm_version_and_its_torch(image):
    assert (image["ref"], image["torch_build"]) == ("rocm-fa:7.2-cpu", "CPU")


def test_without_a_command_it_prints_the_doctors_report(image):
    said = docker_run(image, status=1)  # 1: there is no GPU
    assert "gfx908" in said
    assert "for every ROCm from 6.4 on" in said
    assert re.search(
        r" with PyTorch [\w.+]+, a CPU build, which cannot use an AMD GPU$", said.splitlines()[0]
    )


def test_with_pytorchs_rocm_build_the_first_line_says_so(image, derived):
    """A stand-in: PyTorch's ROCm build is several gigabytes. This torch only claims to be one."""
    change = "sed -i \"s/^hip.*/hip = '7.2.53210'/\" /opt/venv/lib/python3.*/site-packages/torch/version.py"
    rocm = derived("rocm", f"FROM {image['ref']}\nUSER 0\nRUN {change}\nUSER 10001\n")
    first = docker_run(rocm, status=1).splitlines()[0]
    assert first.endswith(", a ROCm 7.2.53210 build")


def test_two_lines_on_top_of_a_pytorch_image(image, release, derived):
    """The page's two lines, on an image with torch and pip as a stand-in for the vendor's."""
    [(base, install)] = re.findall(r"```dockerfile\n(FROM .*)\n(RUN .*)\n```", PAGE)
    assert base == "FROM rocm/pytorch:latest"
    line = install.replace("<index>", "file:///index")
    assert line != install
    remove = "python -m pip uninstall --yes flash-attn-rocm"
    vendor = derived("vendor", f"FROM {image['ref']}\nUSER 0\nRUN {remove}\n")
    argv = [
        "sh",
        "-c",
        f"{line.removeprefix('RUN ')} && {{ python -m flash_attn_rocm doctor || test $? = 1; }}",
    ]
    said = docker.run_in(vendor["ref"], argv, mounts=[docker.Mount(release.index, "/index")], user="0").stdout
    assert "Successfully installed flash-attn-rocm" in said
    assert " with PyTorch " in said


def test_a_command_is_run(image):
    assert docker_run(image, "python", "-c", ATTEND).strip() == "(1, 5, 2, 64)"


def test_the_hip_runtime_is_there(image):
    count = "hipGetDeviceCount(ctypes.byref(ctypes.c_int()))"
    code = f"import ctypes; print(ctypes.CDLL('libamdhip64.so.7').{count})"
    assert docker_run(image, "python", "-c", code).strip() == "100"  # hipErrorNoDevice: there is no GPU here


def test_it_does_not_run_as_root(image):
    assert docker_run(image, "id", "-u").strip() != "0"


def inspected(image):
    argv = ["docker", "image", "inspect", "--format", "{{json .}}", image["ref"]]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def test_its_labels_name_the_wheel_and_the_commit(image, release):
    labels = inspected(image)["Config"]["Labels"]
    assert labels["flash-attn-rocm.wheel.sha256"] == release.says("sha256")
    assert re.fullmatch(r"[0-9a-f]{40}(-changed)?", labels["org.opencontainers.image.revision"])
    assert labels["flash-attn-rocm.torch.build"] == "CPU"
    assert "can use no GPU" in labels["org.opencontainers.image.description"]


@pytest.mark.parametrize("kind", ["image", "slim"])
def test_it_is_within_its_budget(kind, request):
    facts = request.getfixturevalue(kind)
    size = facts["size"]
    assert size["bytes"] == inspected(facts)["Size"] == size["base"] + size["torch"] + size["above"]
    assert 50 * MIB < size["above"] <= BUDGET_MIB * MIB
    assert (size["torch"] > 300 * MIB) == (kind == "image")


@pytest.mark.parametrize("kind", ["image", "slim"])
def test_it_is_healthy_by_its_own_check(kind, request):
    facts = request.getfixturevalue(kind)
    assert inspected(facts)["Config"]["Healthcheck"]["Test"] == ["CMD", "rocm-fa-healthy"]
    # The slim image needs torch to work.
    docker_run(facts, "rocm-fa-healthy", status=0 if kind == "image" else 1)


def test_a_damaged_wheel_is_not_healthy(image):
    """The check imports the wheel: here an empty module shadows it by name."""
    damage = "mkdir -p /tmp/flash_attn_rocm; echo 'raise ImportError' >/tmp/flash_attn_rocm/__init__.py"
    argv = ["sh", "-c", f"{damage}; PYTHONPATH=/tmp rocm-fa-healthy"]
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", image["ref"], *argv], check=False, capture_output=True
    )
    assert done.returncode != 0


def test_the_slim_image_has_no_torch_and_says_so(slim):
    assert slim["ref"] == "rocm-fa:7.2-slim"
    assert slim["torch"] == ""
    said = docker_run(slim, status=1)
    assert said.splitlines()[0].endswith(" without a PyTorch that imports")
    assert "flash_attn_rocm does not import on this machine." in said
    assert inspected(slim)["Config"]["Labels"]["flash-attn-rocm.torch.build"] == "none"
    assert docker_run(slim, "id", "-u").strip() == "10001"


def test_what_is_added_to_the_slim_image_is_there_for_its_user(slim, derived, tmp_path):
    """Added by the page's lines. A small wheel stands for torch, and a folder for the index."""
    [(begin, end)] = re.findall(r"```dockerfile\n(FROM .*\nUSER 0\n)RUN .*\n(USER .*\n)```", PAGE)
    (tmp_path / "slim").mkdir()
    wheel = project_wheel(tmp_path / "slim", "demo", "1.0")
    assert begin.startswith(f"FROM {slim['ref']}\n")
    install = f"COPY {wheel.name} /tmp/\nRUN python -m pip install --no-index /tmp/{wheel.name}\n"
    made = derived("slim", begin + install + end)
    assert docker_run(made, "python", "-c", "import demo; print(demo.VALUE)").strip() == "42"
    assert docker_run(made, "id", "-u").strip() == "10001"


def test_the_groups_of_devices_are_given_as_numbers(image):
    """As in the compose example and docs/install.md, because images lack the groups' names."""
    argv = [
        "docker",
        "run",
        "--rm",
        "--network=none",
        "--group-add=44",
        "--group-add=993",
        image["ref"],
        "id",
    ]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert "44" in said
    assert "993" in said


def test_its_user_cannot_change_what_it_runs(image):
    find = "find /opt/venv /usr/local/bin ! -type l -perm /022 -print -quit"
    assert docker_run(image, "sh", "-c", find) == ""

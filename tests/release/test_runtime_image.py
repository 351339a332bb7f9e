"""``docker run rocm-fa:7.2`` with the released wheel in it."""

import json
import re
import subprocess

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.build.runtime_image import build_runtime_image
from wheel_builder.images.size import BUDGET_MIB, MIB

pytestmark = pytest.mark.container
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


def docker_run(image, *argv):
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", image["ref"], *argv],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_named_after_the_rocm_version(image):
    assert image["ref"] == "rocm-fa:7.2"


def test_without_a_command_it_prints_the_doctors_report(image):
    said = docker_run(image)
    assert "gfx908" in said
    assert "7.2" in said


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
    docker_run(facts, "rocm-fa-healthy")


def test_a_damaged_wheel_is_not_healthy(image):
    """The check imports the wheel: here an empty module of the same name shadows it."""
    damage = "mkdir -p /tmp/flash_attn_rocm; echo 'raise ImportError' >/tmp/flash_attn_rocm/__init__.py"
    argv = ["sh", "-c", f"{damage}; PYTHONPATH=/tmp rocm-fa-healthy"]
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", image["ref"], *argv], check=False, capture_output=True
    )
    assert done.returncode != 0


def test_the_slim_image_has_no_torch_and_says_so(slim):
    assert slim["ref"] == "rocm-fa:7.2-slim"
    assert slim["torch"] == ""
    assert "torch" in docker_run(slim)
    assert docker_run(slim, "id", "-u").strip() == "10001"


def test_the_groups_of_devices_are_given_as_numbers(image):
    """As in the compose example and the README, because group names differ or are missing in the image."""
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

"""``docker run rocm-fa:7.2`` with the released wheel in it."""

import json
import subprocess

import pytest

from wheel_builder.stages.runtime_image import build_runtime_image

pytestmark = pytest.mark.container
ATTEND = """
import warnings, torch, flash_attn_rocm
warnings.simplefilter("ignore", flash_attn_rocm.FlashAttnFallbackWarning)
q = torch.randn(1, 5, 2, 64, dtype=torch.float16)
print(tuple(flash_attn_rocm.flash_attn_func(q, q, q).shape))
"""


@pytest.fixture(scope="module")
def image(release, job, package, place):
    """The runtime image's facts."""
    log = place.log("image-runtime")
    return build_runtime_image(job, release.wheel, place.store, package=package, logs=log.parent).facts


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


def test_its_labels_name_the_wheel(image, release):
    inspect = ["docker", "image", "inspect", "--format", "{{json .Config.Labels}}", image["ref"]]
    labels = json.loads(subprocess.run(inspect, check=True, capture_output=True, text=True).stdout)
    assert labels["flash-attn-rocm.wheel.sha256"] == release.says("sha256")

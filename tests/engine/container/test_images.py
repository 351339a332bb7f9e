"""The real images: their contents, their check, and their forbidden contents."""

import re
from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import run
from wheel_builder.base.store import Store
from wheel_builder.build.runtime_image import build_runtime_image
from wheel_builder.images import docker
from wheel_builder.images.build import run_check
from wheel_builder.images.docker import NOBODY
from wheel_builder.images.stages import build_image
from wheel_builder.matrix.model import Rocm

from .conftest import MARKS, SECRETS, found_in_image


def check(ref, logs, *archs):
    run_check(ref, ["check-image", *archs], "the image", log=logs / "check.log", run=run)


def test_the_builder_image_has_the_rocm_of_its_row(builder, job):
    packages = builder.facts["packages"]
    assert packages["libamdhip64-dev"].startswith(f"{job.rocm.version}.")
    assert re.fullmatch(r"cp3\d+-cp3\d+", builder.facts["python_tag"])
    assert builder.facts["base"]["origin"] in {"pulled", "mmdebstrap"}


def test_the_builder_image_is_built_once(builder, job, package, context):
    again = build_image(job, package, context.store, logs=context.log("").parent)
    assert again.reused
    assert again.facts["image_id"] == builder.facts["image_id"]


@pytest.mark.parametrize("user", ["0:0", NOBODY])
def test_the_check_passes_for_every_user_without_a_network(builder, job, logs, user):
    """Two archs: an image is finished only after the check of all archs."""
    archs = job.archs[:2]
    said = docker.run_in(
        builder.facts["ref"], ["check-image", *archs], user=user, log=logs / "check.log"
    ).stdout
    assert [line for line in said.splitlines() if line.startswith("device code: ")] == [
        f"device code: {arch}" for arch in archs
    ]
    assert "check-image:" not in said


def test_a_broken_image_fails_the_check_with_all_its_faults(builder, image_of, logs):
    broken = image_of("broken", "flash-attn-rocm-test:broken", BASE=builder.facts["ref"])
    with pytest.raises(ImageError) as caught:
        run_check(
            broken, ["check-image", "gfx908", "gfx1100"], "the image", log=logs / "broken.log", run=docker.run
        )
    text = str(caught.value)
    assert text.startswith("the image is not fit for use\n")
    assert "the variable ZIG_GLOBAL_CACHE_DIR is not set" in text
    assert "patchelf does not answer" in text
    assert "device code for gfx908 does not compile" in text
    assert "a host library does not build" in text
    assert "gfx1100" not in text


def test_a_check_that_names_no_arch_is_no_check(builder, logs):
    with pytest.raises(ImageError, match="no gfx arch was named"):
        check(builder.facts["ref"], logs)


def test_a_package_that_does_not_exist_is_named(job, package, tmp_path, engine):
    rocm = replace(job.rocm, packages=((job.rocm.suite, ("no-such-compiler",)),))
    with pytest.raises(ImageError) as caught:
        build_image(replace(job, rocm=rocm), package, Store(tmp_path / "build"), logs=tmp_path)
    assert f"the builder image of ROCm {rocm.version} does not build" in str(caught.value)
    assert "Unable to locate package no-such-compiler" in str(caught.value)


@pytest.mark.full  # runs the steps of the Debian image again: zig's C++ library takes a minute to compile
def test_a_vendor_image_becomes_a_builder(system_image, job, package, image_of, tmp_path):
    """For images with an existing /opt/rocm: no ROCm packages are installed."""
    base = image_of("vendor", "flash-attn-rocm-test:vendor", BASE=system_image, LLVM=job.rocm.llvm)
    vendor = Rocm("7.2-vendor", "vendor", base, "/opt/rocm/llvm/bin", job.archs)
    made = build_image(replace(job, rocm=vendor), package, Store(tmp_path / "build"), logs=tmp_path).facts
    try:
        assert made["base"]["origin"] == "pulled"
        env = docker.run_in(made["ref"], ["sh", "-c", 'echo "$FA_LLVM"']).stdout.strip()
        assert env == "/opt/rocm/llvm/bin"
    finally:
        docker.remove(made["ref"])
        docker.remove(f"{made['ref']}-system")


@pytest.mark.full
def test_the_builder_image_builds_from_an_empty_state(job, package, marked_host, tmp_path, engine):
    rocm = replace(job.rocm, version=f"{job.rocm.version}-fresh")
    made = build_image(
        replace(job, rocm=rocm),
        package,
        Store(tmp_path / "build"),
        logs=tmp_path,
        host=marked_host,
        fresh=True,
    ).facts
    try:
        assert found_in_image(made["ref"], (*MARKS, "check-image ARCH...")) == {"check-image ARCH..."}
    finally:
        docker.remove(made["ref"])
        docker.remove(f"{made['ref']}-system")


def test_nothing_of_the_hosts_settings_is_in_the_image_for_users(
    job, package, tiny_wheel, marked_host, planted, tmp_path, engine
):
    """The entrypoint's text is the control: the search must find it, and find none of the marks."""
    rocm = replace(job.rocm, version=f"{job.rocm.version}-test")
    made = build_runtime_image(
        replace(job, rocm=rocm),
        tiny_wheel,
        Store(tmp_path / "build"),
        package=package,
        checkout=CHECKOUT,
        logs=tmp_path / "logs",
        slim=True,
        host=marked_host,
    ).facts
    control = "python -m flash_attn_rocm doctor"
    try:
        assert docker.run_in(made["ref"], [], check=False).stdout == "tiny without a PyTorch\n"
        assert found_in_image(made["ref"], (*MARKS, control)) == {control}
        stored = "".join(file.read_text() for file in (tmp_path / "build").rglob("manifest.json"))
        logged = "".join(file.read_text() for file in (tmp_path / "logs").iterdir())
        assert "docker run" in logged
        assert "mark-of-the-host.invalid" in logged  # pip does print where it looked
        assert not [secret for secret in SECRETS if secret in stored + logged]
    finally:
        for ref in (made["ref"], made["built_as"], f"{made['built_as']}-system"):
            docker.remove(ref)

"""Code shared by the stages that make images."""

import json
from pathlib import Path

import pytest

from wheel_builder.base.errors import CommandFailedError, ImageError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Store
from wheel_builder.images import build as image_build
from wheel_builder.images.build import (
    context,
    file_digests,
    link_tree,
    os_name,
    package_groups,
    run_check,
    stored_image,
)
from wheel_builder.images.fetch import DOCKERFILES


class FakeEngine:
    """An engine whose images are a dict from name to id."""

    def __init__(self, images, said="", status=0):
        self.images, self.said, self.status = images, said, status

    def __call__(self, argv, **kwargs):
        argv = [str(part) for part in argv]
        if argv[:2] == ["docker", "images"]:
            return Completed(self.images.get(argv[-1], ""), 0)
        if argv[:3] == ["docker", "image", "inspect"]:
            found = {"Id": argv[-1], "RepoDigests": [], "Config": {"Labels": {}}, "Created": "", "Size": 1}
            return Completed(json.dumps(found), 0)
        return Completed(self.said, self.status)


def test_packages_are_grouped_by_suite_and_empty_groups_vanish():
    groups = [("sid", ("clang-22", "lld-22")), ("experimental", ()), ("", ("python3-venv",))]
    assert package_groups(groups) == "sid:clang-22,lld-22 :python3-venv"


def test_an_image_that_is_gone_from_the_engine_is_made_again(tmp_path):
    engine, made = FakeEngine({}), []

    def make(_):
        made.append(1)
        engine.images["builder:1"] = f"id{len(made)}"
        return {"ref": "builder:1", "image_id": f"id{len(made)}"}

    def get():
        return stored_image("image", {"a": 1}, Store(tmp_path), make, run=engine)

    assert not get().reused
    assert get().reused
    engine.images.clear()
    assert get().facts["image_id"] == "id2"
    engine.images["builder:1"] = "somebody else's"
    assert get().facts["image_id"] == "id3"


def test_a_build_that_fails_names_the_image_and_keeps_the_last_lines(tmp_path):
    failure = CommandFailedError("docker build ended with status 100\n  | E: Unable to locate package hipcc")
    with pytest.raises(ImageError) as caught, context((), "the builder image of ROCm 7.2", tmp_path / "log"):
        raise failure
    text = str(caught.value)
    assert text.startswith("the builder image of ROCm 7.2 does not build\ndocker build ended with status 100")
    assert "Unable to locate package hipcc" in text
    assert f"next: read the log: {tmp_path / 'log'}" in text


def test_the_context_is_gone_afterwards_and_had_copies():
    with context(("check_image.sh",), "x", Path("log")) as folder:
        assert (folder / "check_image.sh").read_text().startswith("#!/bin/sh")
    assert not folder.exists()


def test_problems_of_the_check_are_the_message(tmp_path):
    said = "clang: 22\ncheck-image: zig's cache is cold\npython: 3\ncheck-image: bash is missing\n"
    engine = FakeEngine({}, said, 1)
    with pytest.raises(ImageError) as caught:
        run_check("builder:1", ["check-image"], "the builder image", log=tmp_path / "log", run=engine)
    assert str(caught.value).startswith(
        "the builder image is not fit for use\n"
        "  - check-image: zig's cache is cold\n  - check-image: bash is missing\n  next: "
    )


def test_a_check_that_says_nothing_is_a_failure_too(tmp_path):
    with pytest.raises(ImageError, match="is not fit for use\n  - no answer"):
        run_check("builder:1", ["check-image"], "it", log=tmp_path / "log", run=FakeEngine({}, "", 127))


def test_a_check_that_passes_is_silent(tmp_path):
    run_check("builder:1", ["check-image"], "it", log=tmp_path / "log", run=FakeEngine({}))


def test_a_manifest_says_exact_versions():
    said = "clang-22 1:22.1.8-3\nhipcc 7.2.4+dfsg-1~exp1\n"
    facts = image_build.describe("b:1", log=Path("log"), run=FakeEngine({"b:1": "sha256:1"}, said))
    assert facts["packages"] == {"clang-22": "1:22.1.8-3", "hipcc": "7.2.4+dfsg-1~exp1"}
    assert facts["image_id"] == "sha256:1"


def test_an_image_that_vanished_is_reported():
    with pytest.raises(ImageError, match="does not have the image that was just built"):
        image_build.describe("b:1", log=Path("log"), run=FakeEngine({}))


def test_the_system_has_a_name():
    assert os_name('ID=debian\nPRETTY_NAME="Debian GNU/Linux forky/sid"\n') == "Debian GNU/Linux forky/sid"
    assert os_name("") == "unknown"


def test_a_linked_folder_is_the_same_files(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c.whl").write_text("x")
    link_tree(tmp_path / "a", tmp_path / "copy")
    assert (tmp_path / "copy/b/c.whl").samefile(tmp_path / "a/b/c.whl")


def test_every_file_of_an_image_is_in_its_key():
    names = {file.name for file in DOCKERFILES.glob("*/*")}
    assert set(file_digests(sorted(names))) == names

"""The release workflow's jobs, each run in its own checkout with the outputs of earlier jobs only.

Folders stand for artefacts and cache, which are GitHub's actions in CI.
"""

import fnmatch
import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT
from tests.tools.workflows import filled, job_of
from wheel_builder.base.digests import digests_of, output_line
from wheel_builder.base.store import Store
from wheel_builder.build.shim import SHIMS
from wheel_builder.images.handover import give
from wheel_builder.images.stages import build_image

LEFT_OUT = ("checkout@", "attest-build-provenance@", "upload-pages-artifact@")


class Runner:
    """Runs jobs of release.yml. ``artefacts`` and ``cache`` are folders by name."""

    def __init__(self, root, values):
        self.root, self.values = root, values
        self.artefacts, self.cache, self.outputs, self.told = {}, {}, {}, {}
        self.remote = root / "remote"
        subprocess.run(["git", "init", "--quiet", "--bare", self.remote], check=True)

    def run(self, name, row=None):
        """Run a job. Returns its working folder."""
        values = self.values | {f"matrix.{key}": value for key, value in (row or {}).items()}
        folder = self._checkout(f"{name}-{len(list(self.root.iterdir()))}")
        values |= {
            "toJSON(needs.verify.outputs)": json.dumps(self.told.get("verify", {})),
            "needs.shim.outputs.files": self.told.get("shim", {}).get("files", "{}"),
            "needs.docs.outputs.sums": self.told.get("docs", {}).get("sums", "{}"),
        }
        for step in job_of("release.yml", name).steps:
            if "run" in step:
                self._command(name, step, folder, values)
            elif not any(action in step["uses"] for action in LEFT_OUT):
                self._action(step, folder, values)
        return folder

    def _checkout(self, name):
        folder = self.root / name
        subprocess.run(["git", "clone", "--quiet", CHECKOUT, folder], check=True)
        subprocess.run(["git", "remote", "set-url", "origin", self.remote], cwd=folder, check=True)
        # As in the workflow, even if CI has this checkout on a detached commit.
        subprocess.run(["git", "switch", "--quiet", "--force-create", "main"], cwd=folder, check=True)
        (folder / ".venv").symlink_to(sys.prefix)
        if changed := changed_files():
            for file in changed:
                (folder / file).unlink(missing_ok=True)
                if (CHECKOUT / file).is_file():
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(CHECKOUT / file, folder / file)
            # The same commit in each checkout, because statements name it.
            subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
            who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
            env = os.environ | {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
            subprocess.run(
                ["git", *who, "commit", "--quiet", "--message=test"], cwd=folder, env=env, check=True
            )
        # As actions/checkout leaves it.
        fetched = ["git", "update-ref", "refs/remotes/origin/main", "HEAD"]
        subprocess.run(fetched, cwd=folder, check=True)
        return folder

    def _command(self, name, step, folder, values):
        if step["run"].startswith("scripts/venv "):
            return  # the tools running this test are used
        env = {key: filled(str(value), values) for key, value in step.get("env", {}).items()}
        output = folder / "github-output"
        # Even within CI, these checkouts cannot name a workflow's source.
        env["GITHUB_ACTIONS"] = ""
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=folder, env=os.environ | env | {"GITHUB_OUTPUT": str(output)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{step['run']}\n{done.stdout}{done.stderr}"
        if output.exists():
            lines = [line.partition("=") for line in output.read_text().splitlines()]
            if name == "plan":
                self.outputs |= {key: json.loads(value)["include"] for key, _, value in lines}
            else:
                self.told.setdefault(name, {}).update({key: value for key, _, value in lines})

    def _action(self, step, folder, values):
        given = {key: filled(str(value), values) for key, value in step["with"].items()}
        here = folder / given["path"]
        if "upload-artifact@" in step["uses"]:
            assert any(here.iterdir())
            self.artefacts[given["name"]] = here
        elif "download-artifact@" in step["uses"]:
            names = fnmatch.filter(self.artefacts, given.get("name") or given["pattern"])
            assert names
            for name in names:
                _link(self.artefacts[name], here)
        else:
            assert "cache@" in step["uses"]
            if found := self.cache.get(given["key"]):
                _link(found, here)


def told(job, folder):
    """The output of the job verify about the files in ``folder``."""
    name, _, value = output_line(job, digests_of([*folder.iterdir()])).partition("=")
    return {name: value}


def changed_files():
    """Files of the checkout that differ from its commit."""
    listed = ["git", "ls-files", "--modified", "--deleted", "--others", "--exclude-standard", "-z"]
    staged = ["git", "diff", "--cached", "--name-only", "--no-renames", "-z", "HEAD"]
    found = (
        subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout
        for command in (listed, staged)
    )
    return sorted({file for files in found for file in files.split("\0") if file})


def _link(source, target):
    shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    values = {
        "inputs.rocm": "default",
        "inputs.platforms": "linux",
        "inputs.archs": "gfx1030",
        "github.token": "",
    }
    return Runner(tmp_path_factory.mktemp("runner"), values)


@pytest.fixture(scope="module")
def cached(runner, engine, job, package, context, tmp_path_factory):
    """The cache of an earlier run, which built the builder image from the same content."""
    folder, store = tmp_path_factory.mktemp("cached"), Store(context.build)
    build_image(job, package, store, logs=context.log("").parent)
    give(store.used, folder, log=context.log("handover"))
    runner.run("plan")
    [row] = [row for row in runner.outputs["image"] if row["job"] == job.builder]
    runner.cache[f"builder-{row['image']}"] = folder
    return row


@pytest.fixture(scope="module")
def wheel(runner, cached):
    """The wheel made from the plan by the jobs image, device-code and wheel."""
    image = runner.run("image", cached)
    assert not (image / "build" / "builder-wheels").exists(), "the cached image was built again"
    for row in runner.outputs["device"]:
        runner.run("device-code", row)
    [row] = runner.outputs["wheel"]
    folder = runner.run("wheel", row)
    log = folder / "build" / "logs" / f"device-code-{row['job']}-gfx1030.log"
    assert not log.exists(), "the wheel's job compiled device code again"
    [wheel] = (folder / "finished").glob("*.whl")
    return wheel


@pytest.mark.full
def test_jobs_that_share_nothing_but_artefacts_make_the_wheel(wheel, runner):
    assert wheel.name.startswith("flash_attn_rocm-")
    assert set(runner.artefacts) >= {"image-rocm7.2", "device-code-rocm7.2-gfx1030", "wheel-public"}


@pytest.mark.full
def test_the_audit_holds_it_to_the_archs_that_were_asked_for(wheel):
    command = [sys.executable, "-m", "wheel_builder", "audit", wheel]
    subprocess.run([*command, "--archs", "gfx1030"], cwd=CHECKOUT, check=True, capture_output=True)
    refused = subprocess.run(command, cwd=CHECKOUT, check=False, capture_output=True, text=True)
    assert refused.returncode == 34
    assert "gfx908" in refused.stderr


@pytest.mark.full
def test_it_is_verified_where_nothing_else_is(wheel, runner):
    [row] = runner.outputs["wheel"]
    folder = runner.run("verify", row)
    [record] = (folder / "finished").glob("*.whl.verification.json")
    assert list(json.loads(record.read_text())["archs"]) == ["gfx1030"]


@pytest.mark.full
def test_flash_attn_is_made_beside_it(wheel, runner):
    [row] = runner.outputs["wheel"]
    runner.artefacts |= {f"verified-{row['job']}": wheel.parent}
    runner.told["verify"] = told(row["job"], wheel.parent)
    folder = runner.run("shim")
    found = sorted((folder / "shim-finished").glob("*.whl"))
    assert len(found) == len(SHIMS)
    for made in found:
        record = json.loads((made.parent / f"{made.name}.verification.json").read_text())
        assert [one["wheel"] for one in record["beside"]] == [wheel.name]


def test_the_released_wheels_are_published_to_the_branch(runner, release, engine):
    wheel = release.wheel
    verified = runner.root / "verified"
    verified.mkdir()
    shims = {shim: next(wheel.parent.glob(f"{shim.package}-*.whl")) for shim in SHIMS}
    for published in (wheel, *shims.values()):
        for file in wheel.parent.glob(f"{published.name}*"):
            shutil.copy2(file, verified)
    runner.artefacts["verified-public"] = verified
    runner.told |= {"verify": told("public", verified), "shim": {"files": "{}"}}
    runner.run("docs")
    if changed_files():
        with pytest.raises(AssertionError, match="build it from a commit without changes"):
            runner.run("rehearse")
        return
    rehearsed = runner.run("rehearse")
    listed = ["git", "ls-tree", "-r", "--name-only", "index"]
    assert subprocess.run(listed, cwd=runner.remote, check=False, capture_output=True).returncode != 0
    published = runner.run("publish")
    files = subprocess.run(listed, cwd=runner.remote, check=True, capture_output=True, text=True).stdout
    assert f"public/simple/flash-attn-rocm/{wheel.name}" in files.splitlines()
    for shim, file in shims.items():
        assert f"public/simple/{shim.name}/{file.name}" in files.splitlines()
    for folder in (rehearsed, published):
        assert (folder / "index" / "index.html").is_file()
    assert "docs/troubleshooting.html" in files.splitlines()

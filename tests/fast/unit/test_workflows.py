"""The workflows against the command line and the plan: all commands and values they use exist."""

import argparse
import itertools
import json
import os
import re
from fnmatch import fnmatch

import pytest

from tests.tools.workflows import (
    BUILDER,
    CHECKOUT,
    EXPRESSION,
    FOLDER,
    OUTPUT,
    all_jobs,
    filled,
    job_of,
    load,
    words,
)
from wheel_builder.base.digests import output_line
from wheel_builder.cli.commands import commands_for
from wheel_builder.cli.commands.wheels.plan import SHARDS
from wheel_builder.cli.main import _parser
from wheel_builder.extras.upstream.recipe import rows
from wheel_builder.matrix.model import PLATFORMS, PUBLIC, Selection
from wheel_builder.matrix.plan import plan, to_github
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.archs import known_archs

JOBS = all_jobs()
FILES = sorted(file.name for file in FOLDER.glob("*.yml"))
RUNS = [(job, step) for job in JOBS for step in job.steps if "run" in step]
MATRIX = load_matrix(CHECKOUT / "matrix.yaml")
PLAN = plan(MATRIX, Selection(all_rocm=True))
ROWS = {
    **{
        name: json.loads(value)["include"]
        for name, _, value in (
            line.partition("=")
            for line in to_github(PLAN, {job.builder: "key" for job in PLAN.jobs}).splitlines()
        )
    },
    **rows(PLAN, MATRIX.upstream, SHARDS),
}
INPUTS = {
    "inputs.rocm": "default", "inputs.platforms": "linux", "inputs.archs": "all",
    "inputs.job": "rocm7.2", "inputs.run": "1",
    "inputs.shards": "24",
}  # fmt: skip
MOST_ROWS = 256  # of a workflow's matrix
# Jobs with write access, and their scopes. All other jobs only read.
WRITERS = {
    "release.yml:publish": {"attestations", "contents", "id-token"},
    "release.yml:pages": {"pages", "id-token"},
    "release.yml:upload": {"id-token"},
    "release.yml:runtime-image": {"attestations", "id-token", "packages"},
    "tuning.yml:publish": {"attestations", "contents", "id-token"},
    "tuning.yml:pages": {"pages", "id-token"},
}
# Programs of this repository besides the command line, with all arguments from workflows.
OTHERS = (
    r"scripts/venv wheel_builder/(extras/site/)?requirements\.txt",
    r"sudo -H bash \.ci/run",
    r"sudo -H scripts/release",
    r"scripts/test tests/fast/(lint|unit)",
    r"sudo -H scripts/test --full( tests/engine/emulator/test_upstream\.py)?",
    r"scripts/test-on-gpu",
    r"\.venv/bin/python -m tests\.tools\.mutation(\.canary)? --of-the-day --count \d+",
    r"\.venv/bin/python -m tests\.tools\.run_bench",
    r"\.ci/index-branch (get|keep) index",
)


def values_for(job):
    """A value for each expression a job may use."""
    row = ROWS[job.rows][0] if job.rows else {}
    return {
        **INPUTS,
        **{f"matrix.{key}": value for key, value in row.items()},
        "github.token": "token",
        "github.actor": "somebody",
        "toJSON(needs.verify.outputs)": "{}",
        "toJSON(needs.candidates.outputs)": "{}",
        "needs.shim.outputs.files": "{}",
        "needs.docs.outputs.sums": "{}",
        "vars.FA_GPU_PYTHON": "python3",
        "vars.FA_REGISTRY": "registry.example/owner",
        "vars.FA_UPLOAD_URL": "https://packages.example/legacy/",
        "vars.FA_TORCH_INDEX": "https://builds.example/rocm7.2",
    }


def env_of(job, step):
    return {name: filled(str(value), values_for(job)) for name, value in step.get("env", {}).items()}


def each(cases):
    return pytest.mark.parametrize("job", cases, ids=str)


def each_run(cases=RUNS):
    return pytest.mark.parametrize(
        ("job", "step"), cases, ids=[f"{job} {step['run']}" for job, step in cases]
    )


@each_run()
def test_a_run_line_is_one_command_without_expressions(job, step):
    line = step["run"].removesuffix(OUTPUT)
    assert "\n" not in line
    assert not re.search(r"[;&|<>`]|\$[({]", line), "logic belongs into the command line, values into env"


@each_run()
def test_a_run_line_is_one_of_ours(job, step, tmp_path, monkeypatch):
    command = words(step["run"], env_of(job, step))
    if command[:3] != BUILDER:
        assert any(re.fullmatch(known, " ".join(command)) for known in OTHERS), command
        program = command[
            {"bash": 3, "scripts/test": 2, "scripts/release": 2}.get(command[2], 0)
            if command[0] == "sudo"
            else 0
        ]
        assert os.access(CHECKOUT / program, os.X_OK)
        return
    monkeypatch.chdir(tmp_path)
    (tmp_path / "finished").mkdir()
    (tmp_path / "finished" / "*.whl").touch()  # a shell would put the files' names there
    args = _parser(commands_for([])).parse_args(command[3:])
    assert isinstance(args, argparse.Namespace)
    assert args.command == command[3]


@each_run()
def test_variables_are_quoted_and_set_where_they_are_used(job, step):
    used = re.findall(r"\$(\w+)", step["run"])
    assert set(used) <= {*step.get("env", {}), "GITHUB_OUTPUT"}
    assert len(used) == len(re.findall(r'"\$\w+"', step["run"]))


@each(JOBS)
def test_every_matrix_key_in_use_is_made_by_plan(job):
    used = {match[7:] for match in EXPRESSION.findall(json.dumps(job.body)) if match.startswith("matrix.")}
    assert used <= (set(ROWS[job.rows][0]) if job.rows else set())
    if job.rows:
        outputs = load(job.workflow)["jobs"]["plan"]["outputs"]
        assert outputs[job.rows] == f"${{{{ steps.plan.outputs.{job.rows} }}}}"
        assert "plan" in job.body["needs"]


def test_every_row_that_plan_makes_is_used():
    assert {job.rows for job in JOBS} - {""} == set(ROWS)
    assert max(map(len, ROWS.values())) <= MOST_ROWS


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_allowed_unless_a_job_says_so(name):
    workflow = load(name)
    assert workflow["permissions"] == {}
    assert "group" in workflow["concurrency"]


@each(JOBS)
def test_jobs_have_the_least_rights(job):
    granted = job.body["permissions"]
    assert {right for right, level in granted.items() if level != "read"} == WRITERS.get(str(job), set())


@each([job for job in JOBS if "uses" not in job.body])
def test_jobs_end(job):
    assert job.body["timeout-minutes"] <= 350


@pytest.mark.parametrize("name", FILES)
def test_actions_are_pinned_by_commit_and_say_their_version(name):
    lines = [line for line in (FOLDER / name).read_text().splitlines() if "uses: " in line]
    for line in lines:
        assert re.search(r"uses: (\./|[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$)", line), line


def test_one_action_has_one_version():
    text = "".join(file.read_text() for file in FOLDER.glob("*.yml"))
    pins = set(re.findall(r"uses: ([\w./-]+)@(\w+)", text))
    assert len(pins) == len({action for action, _ in pins})


def test_no_secret_is_named():
    for file in FOLDER.glob("*.yml"):
        assert "secrets" not in file.read_text()


@each(JOBS)
def test_a_checkout_keeps_no_credentials(job):
    for step in job.steps:
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_the_form_does_nothing_lasting_unless_told():
    inputs = load("release.yml")["on"]["workflow_dispatch"]["inputs"]
    assert {name: given["default"] for name, given in inputs.items()} == {
        "rocm": "default", "platforms": "linux", "archs": "all",
        "gpu": False, "publish": False, "upload": False,
    }  # fmt: skip
    inputs = load("tuning.yml")["on"]["workflow_dispatch"]["inputs"]
    assert {name: given.get("default") for name, given in inputs.items()} == {"archs": None, "publish": False}


def test_publishing_needs_the_form_the_default_branch_the_rehearsal_and_an_approval():
    body = job_of("release.yml", "publish").body
    assert body["environment"] == "index"
    for condition in (
        "inputs.publish", "needs.rehearse.result == 'success'", "!failure()",
        "github.ref == format('refs/heads/{0}', github.event.repository.default_branch)",
    ):  # fmt: skip
        assert condition in body["if"]
    assert "||" not in body["if"]


def test_only_public_wheels_are_uploaded_after_they_were_published_and_approved():
    job = job_of("release.yml", "upload")
    assert job.body["environment"] == "upload"
    assert "publish" in job.body["needs"]
    for condition in ("inputs.upload", "needs.publish.result == 'success'", "vars.FA_UPLOAD_URL != ''"):
        assert condition in job.body["if"]
    assert "||" not in job.body["if"]
    [downloaded] = [step["with"] for step in job.steps if "download-artifact@" in step.get("uses", "")]
    assert downloaded == {"pattern": f"verified-{PUBLIC}*", "merge-multiple": True, "path": "finished"}
    both = plan(MATRIX, Selection(all_rocm=True, platforms=PLATFORMS)).jobs
    taken = [job for job in both if fnmatch(f"verified-{job.id}", downloaded["pattern"])]
    assert taken == [job for job in both if job.public]
    assert [job.platform for job in taken] == list(PLATFORMS)


TOLD = {
    "finished/*": {
        "VERIFIED": "${{ toJSON(needs.verify.outputs) }}", "SHIMS": "${{ needs.shim.outputs.files }}",
    },
    "site/SHA256SUMS": {"SITE": "${{ needs.docs.outputs.sums }}"},
}  # fmt: skip


@pytest.mark.parametrize("name", ["shim", "rehearse", "publish", "upload", "runtime-image"])
def test_what_others_are_given_is_compared_with_what_the_jobs_told_that_made_it(name):
    """Any job of a run can add or replace an artefact, including the job on the self-hosted machine."""
    job = job_of("release.yml", name)
    taken = {"finished": "finished/*", "site": "site/SHA256SUMS"}
    for step, then in itertools.pairwise(job.steps):
        path = taken.get(step.get("with", {}).get("path", ""))
        if path and "download-artifact@" in step.get("uses", ""):
            assert then["run"].startswith(f".venv/bin/python -m wheel_builder digests {path} ")
            expected = {"VERIFIED": TOLD[path]["VERIFIED"]} if name == "shim" else TOLD[path]
            assert then["env"] == expected
            assert re.findall(r'--told "\$(\w+)"', then["run"]) == list(expected)
            assert ("--some" in then["run"]) == (name in ("upload", "runtime-image"))
            assert {word.split(".")[1] for word in re.findall(r"needs\.\w+", str(expected))} <= {
                *job.body["needs"]
            }


def test_each_row_has_an_output_of_its_own_for_digests():
    """Outputs with one name would replace each other."""
    both = plan(MATRIX, Selection(all_rocm=True, platforms=PLATFORMS)).jobs
    names = [output_line(job.id, {}).partition("=")[0] for job in both]
    verify = job_of("release.yml", "verify")
    assert verify.body["outputs"] == {n: f"${{{{ steps.digests.outputs.{n} }}}}" for n in names}
    [told] = [step for step in verify.steps if step.get("id") == "digests"]
    uploaded = next(step for step in verify.steps if "upload-artifact@" in step.get("uses", ""))
    assert uploaded["with"]["path"] == "finished"
    assert told["run"].startswith(".venv/bin/python -m wheel_builder digests finished/* --output ")


def test_the_self_hosted_machine_begins_when_no_artefact_is_taken_unseen_any_more():
    """Images are too large to compare, so they are downloaded before."""
    waited = before(job_of("release.yml", "gpu"))
    takers = {
        job.name
        for job in JOBS
        for step in job.steps
        if job.workflow == "release.yml" and "image-" in str(step.get("with", {}).get("pattern"))
    }
    assert takers == {"verify", "shim"}
    assert takers <= waited


@pytest.mark.parametrize("workflow", ["release.yml", "tuning.yml"])
def test_files_are_compared_and_attested_before_they_are_published(workflow):
    steps = [step.get("uses", step.get("run", "")) for step in job_of(workflow, "publish").steps]
    compared = next(n for n, step in enumerate(steps) if "digests finished/*" in step)
    attested = next(n for n, step in enumerate(steps) if "attest-build-provenance" in step)
    published = next(n for n, step in enumerate(steps) if "wheel_builder publish" in step)
    kept = next(n for n, step in enumerate(steps) if "index-branch keep" in step)
    assert compared < attested < published < kept


def test_images_follow_what_was_published_and_are_attested_by_their_digest():
    job = job_of("release.yml", "runtime-image")
    assert "needs.publish.result == 'success'" in job.body["if"]
    attested = [step["with"] for step in job.steps if "attest-build-provenance" in step.get("uses", "")]
    pushed = {step["id"]: step["run"] for step in job.steps if "--push" in step.get("run", "")}
    assert [given["subject-digest"] for given in attested] == [
        f"${{{{ steps.{name}.outputs.digest }}}}" for name in pushed
    ]
    assert "--for-gpu" in pushed["push"], "what is called rocm-fa:7.2 for others can use the GPU"
    assert "--slim" in pushed["slim"]


def test_ci_runs_the_suite_and_beside_it_what_answers_soon_and_a_kernel_of_upstreams():
    lines = [step["run"] for job in JOBS if job.workflow == "ci.yml" for step in job.steps if "run" in step]
    assert lines == [
        "scripts/test tests/fast/lint", "scripts/test tests/fast/unit", "sudo -H bash .ci/run",
        "sudo -H scripts/test --full tests/engine/emulator/test_upstream.py",
    ]  # fmt: skip
    assert (CHECKOUT / "tests/engine/emulator/test_upstream.py").is_file()


def test_the_rehearsal_publishes_by_the_same_commands():
    def lines(name):
        return [step["run"] for step in job_of("release.yml", name).steps if "run" in step]

    assert lines("publish") == [*lines("rehearse"), ".ci/index-branch keep index"]


def runs(workflow, name):
    return [step["run"] for step in job_of(workflow, name).steps if "run" in step]


def test_candidates_are_published_as_releases_are():
    """By approval, what was compared with its digests, by the commands of the rehearsal."""
    one, other = (job_of(workflow, "publish").body for workflow in ("release.yml", "tuning.yml"))
    assert (other["environment"], other["if"], other["permissions"]) == (
        one["environment"], one["if"], one["permissions"],
    )  # fmt: skip
    assert runs("tuning.yml", "publish") == [*runs("tuning.yml", "rehearse"), ".ci/index-branch keep index"]
    left_out = ("index docs", "digests")
    of_release = [line for line in runs("release.yml", "publish") if not any(w in line for w in left_out)]
    assert [line for line in runs("tuning.yml", "publish") if "digests" not in line] == of_release
    for name in ("rehearse", "publish"):
        [told] = [step for step in job_of("tuning.yml", name).steps if "digests" in step.get("run", "")]
        assert told["run"] == '.venv/bin/python -m wheel_builder digests finished/* --told "$MADE"'
        assert told["env"] == {"MADE": "${{ toJSON(needs.candidates.outputs) }}"}
    assert load("tuning.yml")["concurrency"] == load("release.yml")["concurrency"], "both write the index"


def test_candidates_of_each_arch_have_an_output_of_their_own():
    outputs = job_of("tuning.yml", "candidates").body["outputs"]
    assert outputs == {arch: f"${{{{ steps.digests.outputs.{arch} }}}}" for arch in known_archs()}
    assert {row["arch"] for row in ROWS["tuning"]} <= {*outputs}


def test_candidates_are_searched_by_no_workflow():
    lines = [step["run"] for _, step in RUNS]
    assert not [line for line in lines if re.search(r"wheel_builder (tune|candidates) ", line)]
    [made] = [line for line in lines if "tuning-wheel" in line]
    assert "tuning-wheel" in " ".join(runs("tuning.yml", "candidates"))
    assert "--take handed" in made


def test_the_gpu_machine_takes_the_wheel_and_builds_nothing():
    [job] = [job for job in JOBS if job.workflow == "gpu.yml"]
    assert [step["run"] for step in job.steps if "run" in step] == ["scripts/test-on-gpu"]
    assert "self-hosted" in job.body["runs-on"]
    assert [str(j) for j in JOBS if "self-hosted" in str(j.body.get("runs-on"))] == ["gpu.yml:numerics"]


@each([job for job in JOBS if job.workflow in ("release.yml", "gpu.yml", "upstream.yml", "tuning.yml")])
def test_what_is_downloaded_was_uploaded_by_a_job_before(job):
    uploads = {
        EXPRESSION.sub("*", step["with"]["name"]): other.name
        for other in JOBS if other.workflow in ("release.yml", "upstream.yml", "tuning.yml")
        for step in other.steps if "upload-artifact@" in step.get("uses", "")
    }  # fmt: skip
    for step in job.steps:
        if "download-artifact@" in step.get("uses", ""):
            wanted = EXPRESSION.sub("*", step["with"].get("name") or step["with"]["pattern"]).replace(
                "**", "*"
            )
            made_by = next(
                by
                for name, by in uploads.items()
                if fnmatch(wanted.replace("-*-*", "-*"), name.replace("-*-*", "-*"))
            )
            assert job.workflow == "gpu.yml" or made_by in before(job)


def before(job):
    """The jobs a job waits for, directly or indirectly."""
    found, todo = set(), [job]
    while todo:
        needs = todo.pop().body.get("needs", [])
        for name in [needs] if isinstance(needs, str) else needs:
            found.add(name)
            todo.append(job_of(job.workflow, name))
    return found

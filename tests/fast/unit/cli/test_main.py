"""The command line: usage, exit codes, and words for failures and interrupts."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from wheel_builder.base.errors import (
    CaseError,
    EngineError,
    FilesError,
    SelectionError,
    ToolsError,
    WheelBuilderError,
    WheelError,
)
from wheel_builder.cli import runs, selected
from wheel_builder.cli.command import Command
from wheel_builder.cli.commands import NAMES, PLACES, commands_for
from wheel_builder.cli.commands.indexes import publish
from wheel_builder.cli.commands.wheels import release, runtime_image
from wheel_builder.cli.main import error_text, main
from wheel_builder.cli.options import ROOT, release_options, run_options, selection_options, wheel_arguments
from wheel_builder.cli.runs import run_context
from wheel_builder.cli.selected import plan_of
from wheel_builder.images.hostenv import NO_SETTINGS
from wheel_builder.images.push import Pushed
from wheel_builder.index.finder.steps import DEVICES
from wheel_builder.pipeline.release import Attempt
from wheel_builder.tables.archs import known_archs


def command(run, *options):
    return [Command("work", "do some work", run, options)]


def fail(error):
    def run(args):
        raise error

    return command(run, run_options)


def parsed(argv, *options):
    seen = []
    assert main(["work", *argv], command(seen.append, *options)) == 0
    return seen[0]


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: scripts/wheel-builder")
    for known in commands_for([]):
        assert known.name in out
        assert known.help in " ".join(out.split())


@pytest.mark.parametrize("known", commands_for([]), ids=lambda known: known.name)
def test_every_command_has_help(known, capsys):
    with pytest.raises(SystemExit) as caught:
        main([known.name, "--help"])
    assert caught.value.code == 0
    assert known.help in capsys.readouterr().out


def test_only_the_module_of_the_command_is_imported():
    """Importing all of them takes a second."""
    code = (
        "import sys; from wheel_builder.cli.main import main; main(['plan', '--json'])\n"
        "loaded = [name for name in sys.modules if name.startswith('wheel_builder.cli.commands.')]\n"
        "packages = ['wheel_builder.cli.commands.wheels', 'wheel_builder.cli.commands.wheels.plan']\n"
        "sys.exit(loaded != packages or 'wheel_builder.pipeline' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False).returncode
        == 0
    )


def test_every_module_is_a_command():
    """A module without a name in the table could never run."""
    folder = ROOT / "wheel_builder/cli/commands"
    modules = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("[!_]*.py")}
    assert modules == set(PLACES.values())
    assert [command.name for command in commands_for([])] == list(NAMES)
    assert [command.name for command in commands_for(["wheel", "--all"])] == ["wheel"]
    assert len(commands_for(["plam"])) == len(commands_for(["--help"])) == len(NAMES)


def test_an_unknown_command_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["plam"])
    assert caught.value.code == 2
    assert "'plam'" in capsys.readouterr().err


def test_names_may_be_repeated_or_joined():
    args = parsed(["--rocm", "7.2,6.4", "--rocm", "7.0", "--archs", "gfx908, gfx942"], selection_options)
    assert args.rocm == ["7.2", "6.4", "7.0"]
    assert args.archs == ["gfx908", "gfx942"]
    assert not args.all


def test_names_of_one_run_do_not_leak_into_the_next():
    parsed(["--rocm", "7.0"], selection_options)
    assert parsed([], selection_options).rocm == []


def test_a_form_can_say_that_it_wants_nothing_special():
    every = plan_of(parsed(["--rocm", "all", "--archs", "all"], selection_options))
    assert every == plan_of(parsed(["--all"], selection_options))
    usual = plan_of(parsed(["--rocm", "default", "--archs", "all"], selection_options))
    assert usual == plan_of(parsed([], selection_options))
    assert plan_of(parsed(["--rocm", "default", "--archs", "gfx908"], selection_options)).jobs[0].archs == (
        "gfx908",
    )


@pytest.mark.parametrize("stage", ["image", "device-code", "wheel"])
def test_a_dry_run_of_a_stage_only_says_what_would_be_done(stage, capsys):
    assert main([stage, "--dry-run", "--archs", "gfx908"]) == 0
    said = capsys.readouterr().out.splitlines()
    steps = {"image": 2, "device-code": 3, "wheel": 4}[stage]
    assert said[:2] == [f"[1/{steps}] container engine", f"[2/{steps}] public builder image"]
    assert len(said) == steps


@pytest.mark.parametrize("url", ["https://user:planted@host/simple", "https://planted@host/simple"])
def test_a_password_in_a_url_is_refused_before_anything_is_logged(url, capsys):
    with pytest.raises(SystemExit):
        main(["work", "--torch-index", url], command(print, release_options))
    said = capsys.readouterr().err
    assert "has a user or password, and logs would show them; put them into pip's settings" in said
    assert "planted" not in said


def test_an_empty_name_is_wrong_usage(capsys):
    with pytest.raises(SystemExit):
        main(["work", "--archs", "gfx908,"], command(print, selection_options))
    assert "expected names separated by commas, found 'gfx908,'" in capsys.readouterr().err


def test_jobs_have_a_default_and_can_be_given():
    assert parsed([], run_options).jobs >= 1
    assert parsed(["--jobs", "7"], run_options).jobs == 7


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_jobs_must_be_a_positive_whole_number(text, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["work", f"--jobs={text}"], command(print, run_options))
    assert caught.value.code == 2
    assert f"expected a whole number of at least 1, found '{text}'" in capsys.readouterr().err


@pytest.mark.parametrize("text", [".", "/", "", "{tmp}", "{tmp}/", "{tmp}/new/"])
@pytest.mark.parametrize("argv", [["explain-log", "--html"], ["why", "--html"], ["cost", "--svg"]])
def test_a_folder_is_no_file_to_write(argv, text, tmp_path, capsys):
    """``--html .`` ended in a traceback after all the work was done."""
    name = text.format(tmp=tmp_path)
    with pytest.raises(SystemExit) as caught:
        main([*argv, name])
    assert caught.value.code == 2
    assert f"expected the name of a file to write, found the folder {name!r}" in capsys.readouterr().err


def test_wheels_are_paths():
    assert [wheel.name for wheel in parsed(["dist/a.whl", "b.whl"], wheel_arguments).wheels] == [
        "a.whl",
        "b.whl",
    ]


def test_options_are_not_guessed_from_their_beginning(capsys):
    with pytest.raises(SystemExit):
        main(["work", "--dry"], command(print, run_options))
    assert "--dry" in capsys.readouterr().err


def test_a_dry_run_of_verify_says_the_steps_and_does_nothing(capsys, tmp_path):
    wheel = tmp_path / "flash_attn_rocm-0.1.0+rocm7.2-py3-none-manylinux_2_28_x86_64.whl"
    assert main(["verify", "--dry-run", str(wheel)]) == 0
    lines = capsys.readouterr().out.splitlines()
    steps = 7 + len(known_archs())
    assert lines[0] == f"[1/{steps}] container engine"
    assert f"[6/{steps}] rocm7.2 emulate {next(iter(known_archs()))}" in lines
    assert lines[-1] == f"[{steps}/{steps}] rocm7.2 verify"
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_tuning_wheel_says_the_steps_and_makes_nothing(capsys, tmp_path):
    wheel = tmp_path / "flash_attn_rocm-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
    wheel.touch()
    to = tmp_path / "made"
    command = ["tuning-wheel", "--arch", "gfx1100", "--wheel", str(wheel), "--to", str(to)]
    assert main([*command, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"[1/{len(lines)}] container engine"
    assert lines[-1] == f"[{len(lines)}/{len(lines)}] rocm7.2 candidates gfx1100"
    assert not to.exists()


def test_a_failure_is_words_and_its_exit_code(capsys):
    error = EngineError("no container engine answers", advice="start dockerd")
    assert main(["work"], fail(error)) == EngineError.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: no container engine answers\n  next: start dockerd\n"


def test_a_full_disk_is_words_with_the_path_and_an_exit_code_of_its_own(capsys):
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "dist/coverage.json")
    assert main(["work"], fail(error)) == FilesError.exit_code
    assert capsys.readouterr().err == (
        "error: dist/coverage.json: expected to read or write a file, found: No space left on device\n"
        "  next: make room (df -h), then run the same command again; finished steps are kept\n"
    )
    main(["work", "--verbose"], fail(error))
    assert capsys.readouterr().err.startswith("Traceback")


def test_a_full_disk_does_not_keep_the_coverage_table_from_the_terminal(tmp_path, monkeypatch, capsys):
    (tmp_path / "matrix.yaml").symlink_to(ROOT / "matrix.yaml")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / ".coverage.json.part").symlink_to("/dev/full")
    for module in (selected, runs):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    failed = Attempt(plan_of(parsed([], selection_options)).jobs[0], failure=EngineError("no engine"))
    monkeypatch.setattr(release, "release", lambda *_: SimpleNamespace(run=lambda **_: (failed,)))
    assert main(["release"]) == FilesError.exit_code
    captured = capsys.readouterr()
    assert "the public wheel failed: no engine" in captured.out
    assert f"error: {tmp_path / 'dist' / 'coverage.json'}: " in captured.err
    assert "found: No space left on device" in captured.err


def test_verbose_adds_the_traceback(capsys):
    main(["work", "--verbose"], fail(EngineError("no engine")))
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("error: no engine\n")


def test_a_mistake_of_ours_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        main(["work"], fail(ZeroDivisionError()))


def test_notes_stand_between_the_failure_and_the_advice():
    error = WheelBuilderError("compile failed", advice="look at it")
    error.add_note("  step: device code (3 of 9)")
    assert error_text(error) == "error: compile failed\n  step: device code (3 of 9)\n  next: look at it"


def test_a_failed_step_without_advice_says_that_a_rerun_goes_on():
    error = WheelBuilderError("compile failed")
    error.add_note("  step: device code (3 of 9)")
    assert error_text(error).splitlines()[-1] == (
        "  next: fix this and run the same command again; finished steps are kept"
    )


def test_ctrl_c_says_what_is_left(capsys):
    assert main(["work"], fail(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == (
        "interrupted: finished steps are kept; run the same command again to continue\n"
    )


def test_kill_cleans_up_like_ctrl_c(capsys):
    cleaned = []

    def run(args):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            cleaned.append(True)

    before = signal.getsignal(signal.SIGTERM)
    assert main(["work"], command(run)) == 130
    assert cleaned == [True]
    assert capsys.readouterr().err.startswith("interrupted:")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_reader_that_went_away_is_no_traceback(tmp_path, monkeypatch):
    stream = (tmp_path / "out").open("w")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["work"], fail(BrokenPipeError())) == 141
    stream.close()


def test_plan_prints_a_table(capsys):
    assert main(["plan"]) == 0
    assert capsys.readouterr().out.startswith("job ")


def test_plan_json_is_json(capsys):
    assert main(["plan", "--json", "--rocm", "6.4"]) == 0
    assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["rocm6.4"]


def test_plan_github_keeps_reasons_out_of_the_output(capsys):
    assert main(["plan", "--github", "--all"]) == 0
    captured = capsys.readouterr()
    assert [line.split("=")[0] for line in captured.out.splitlines()] == [
        "image", "device", "wheel", "gpu", "runtime", "tuning", "tuning_image",
        "upstream", "upstream_library",
    ]  # fmt: skip
    assert captured.err.startswith("not built:\n")
    assert "gfx950: its HIP runtime lacks support" in captured.err


def test_plan_github_fails_without_rows(capsys):
    assert main(["plan", "--github", "--rocm", "6.4", "--archs", "gfx950"]) == 11
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("gfx950") == 1


def test_plan_with_unknown_names_fails(capsys):
    assert main(["plan", "--archs", "gfx9420"]) == 11
    assert "did you mean gfx942?" in capsys.readouterr().err


def test_a_bad_matrix_fails_with_its_own_code(tmp_path, monkeypatch, capsys):
    (tmp_path / "matrix.yaml").write_text("archs: [\n")
    monkeypatch.setattr(selected, "ROOT", tmp_path)
    assert main(["plan"]) == 10
    assert capsys.readouterr().err.startswith("error: ")


def test_the_hosts_settings_can_be_left_out(tmp_path):
    seen = []
    options = (run_options, release_options)
    command = Command("show", "show the run context", lambda args: seen.append(run_context(args)), options)
    assert main(["show"], [command]) == main(["show", "--no-host-settings"], [command]) == 0
    assert [context.host for context in seen] == [None, NO_SETTINGS]


def test_emulate_says_which_kernel_it_would_run(capsys):
    argv = ["--dtype", "bf16", "--head-dim", "128", "--heads", "4", "--heads-k", "2"]
    assert main(["emulate", __file__, "--arch", "gfx942", "--dry-run", *argv]) == 0
    assert capsys.readouterr().out == f"would run fa_fwd_bf16_d128 of {__file__} for gfx942\n"


def test_emulate_tells_all_that_is_wrong_with_the_shapes(capsys):
    argv = ["--seqlen-q", "0", "--heads", "3", "--heads-k", "2"]
    assert main(["emulate", __file__, "--arch", "gfx942", *argv]) == CaseError.exit_code
    err = capsys.readouterr().err
    assert "seqlen_q is 0, expected at least 1" in err
    assert "nheads is 3, expected a multiple of nheads_k, which is 2" in err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["nowhere.whl", "--arch", "gfx942"], "there is no file 'nowhere.whl'"),
        ([__file__], "required: --arch"),
        ([__file__, "--arch", "gfx942", "--dtype", "fp32"], "invalid choice: 'fp32'"),
        (
            [__file__, "--arch", "gfx942", "--checks", "race,bounds"],
            "expected some of uninit, race, barrier, align, or none; found bounds",
        ),
    ],
)
def test_emulate_used_wrongly(argv, words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["emulate", *argv])
    assert caught.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_rebuild_of_an_index_without_wheels_says_so(capsys, tmp_path):
    assert main(["rebuild", "--published", "7.2,6.4", "--index", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path} has no wheel of ROCm {rocm} that is not yanked" for rocm in ("7.2", "6.4")
    ]


def test_rebuild_of_nothing_is_refused(capsys):
    assert main(["rebuild"]) == WheelError.exit_code
    assert "no wheel was given" in capsys.readouterr().err


def test_a_dry_run_of_verify_has_the_images_of_other_runtimes(capsys, tmp_path):
    wheel = tmp_path / "flash_attn_rocm-0.1.0+rocm7.2-py3-none-manylinux_2_28_x86_64.whl"
    assert main(["verify", "--dry-run", "--runtimes", "6.4", str(wheel)]) == 0
    assert "rocm6.4 HIP runtime" in capsys.readouterr().out


def published(tmp_path, rocm="6.4"):
    """A file with the name of a published wheel."""
    wheel = tmp_path / f"flash_attn_rocm-0.1.0+rocm{rocm}-py3-none-manylinux_2_28_x86_64.whl"
    wheel.touch()
    return str(wheel)


def test_a_runtime_image_can_be_made_of_a_published_wheel(capsys, tmp_path):
    assert main(["runtime-image", "--dry-run", published(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "[1/2] container engine", "[2/2] rocm6.4 runtime image",
    ]  # fmt: skip


def test_the_named_wheel_is_the_one_in_the_image(tmp_path, monkeypatch):
    seen, newest = [], tmp_path / "newest.whl"

    def made(jobs, wheels, *_, **__):
        seen.append((*(job.id for job in jobs), *wheels.values()))
        return SimpleNamespace(run=lambda **_: None), []

    monkeypatch.setattr(runtime_image, "runtime_images", made)
    monkeypatch.setattr(runtime_image, "newest_wheel", lambda *_: newest)
    wheel = published(tmp_path)
    assert main(["runtime-image", "--rocm", "6.4", wheel]) == main(["runtime-image"]) == 0
    assert seen == [("rocm6.4", Path(wheel)), ("public", newest)]


@pytest.mark.parametrize(("option", "found"), [(["--rocm", "7.2"], "7.2"), (["--all"], "all")])
def test_a_wheel_and_another_rocm_version_do_not_go_together(option, found, capsys, tmp_path):
    assert main(["runtime-image", *option, published(tmp_path)]) == SelectionError.exit_code
    said = capsys.readouterr().err
    assert "the image's ROCm version is its wheel's" in said
    assert f"-py3-none-manylinux_2_28_x86_64.whl; found --rocm {found}" in said
    assert "next: omit --rocm and --all, or name another wheel" in said


def test_a_runtime_image_of_no_file_is_wrong_usage(capsys):
    with pytest.raises(SystemExit):
        main(["runtime-image", "nowhere.whl"])
    assert "there is no file 'nowhere.whl'" in capsys.readouterr().err


def test_variants_are_published_when_asked_for(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(publish, "publish_files", lambda *_, **kwargs: seen.append(kwargs) or [tmp_path])
    command = ["publish", "--index", str(tmp_path), published(tmp_path)]
    assert main(command) == main([*command, "--variants"]) == 0
    assert seen == [{"variants": False}, {"variants": True}]
    assert capsys.readouterr().out == f"{tmp_path.as_uri()}\n" * 2


FACTS = {
    "ref": "rocm-fa:7.2",
    "torch_build": "ROCm 7.2.1",
    "size": dict.fromkeys(("bytes", "base", "torch", "above"), 0),
}


@pytest.mark.parametrize(
    ("build", "suffix", "torch", "line"),
    [
        ("ROCm 7.2.1", "", "ROCm 7.2.1 build", f"docker run {DEVICES} rocm-fa:7.2"),
        ("CPU", "-cpu", "CPU build, without GPU access; use --torch-index", "docker run rocm-fa:7.2-cpu"),
        ("", "-slim", "none: add one before use", "FROM rocm-fa:7.2-slim"),
    ],
)
def test_an_image_is_for_the_gpus_only_where_its_torch_is(build, suffix, torch, line):
    text = runtime_image.image_text(FACTS | {"torch_build": build, "ref": f"rocm-fa:7.2{suffix}"})
    assert f"torch     {torch}" in text
    assert text.splitlines()[-1] == line
    assert ("/dev/kfd" in text) == build.startswith("ROCm")


def test_an_image_says_how_long_it_took():
    text = runtime_image.image_text(FACTS | {"seconds": 75.0})
    assert text.splitlines()[2:4] == ["size      0 MiB: base 0, torch 0, all else 0", "built in  1 min 15 s"]


def test_what_was_pushed_is_told_to_people_and_to_workflows():
    pushed = Pushed("registry.example/owner/rocm-fa", "7.2", "sha256:ab")
    assert runtime_image.pushed_lines(pushed, github=False) == [
        "pushed    registry.example/owner/rocm-fa:7.2@sha256:ab"
    ]
    assert runtime_image.pushed_lines(pushed, github=True) == [
        "name=registry.example/owner/rocm-fa", "digest=sha256:ab",
    ]  # fmt: skip


def test_an_image_for_the_gpu_without_torch_is_refused(capsys, tmp_path):
    assert main(["runtime-image", "--slim", "--for-gpu", published(tmp_path)]) == SelectionError.exit_code
    assert "found both --slim and --for-gpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["Owner/x", "registry.example/Owner", "https://registry.example/x", "a b", "-x/../y"]
)
def test_a_place_that_no_registry_has_is_wrong_usage(name, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["runtime-image", f"--push={name}", published(tmp_path)])
    assert "expected a registry's name and a path in small letters" in capsys.readouterr().err


def test_torch_may_come_from_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels").mkdir()
    assert parsed(["--torch-index", "wheels"], release_options).torch_index == str(tmp_path / "wheels")
    assert parsed(["--torch-index", ""], release_options).torch_index == ""
    with pytest.raises(SystemExit):
        parsed(["--torch-index", "nowhere"], release_options)
    assert "expected a URL or a folder, found 'nowhere'" in capsys.readouterr().err


def test_a_python_without_the_tools_is_told_what_installs_them():
    done = subprocess.run(
        [sys.executable, "-S", "-m", "wheel_builder", "plan", "--rocm", "7.2"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == ToolsError.exit_code
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: the Python tools are not installed for {sys.executable}: it has no ")
    assert second == "  next: this installs them in .venv: scripts/wheel-builder plan --rocm 7.2"


def test_a_missing_module_of_our_own_is_a_bug_and_stays_one():
    def broken(args):
        raise ModuleNotFoundError(name="wheel_builder.gone")

    with pytest.raises(ModuleNotFoundError):
        main(["work"], command(broken))

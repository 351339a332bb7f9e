"""Errors of the launch model on users' GPUs, and coefficients that would correct it."""

from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.tunings import ARCH, KERNEL, NOW, another, as_bytes, call, ids, report, signed, tuned
from wheel_builder.cli.commands.indexes import report as command
from wheel_builder.cli.main import main
from wheel_builder.extras.perf.launch.kernels import SPEEDS, parse_speeds
from wheel_builder.extras.site import tables as site
from wheel_builder.extras.site.tables import measured_errors
from wheel_builder.extras.timings import calibrate as module
from wheel_builder.extras.timings.calibrate import (
    ERRORS,
    HEADS,
    NONE,
    Pair,
    errors,
    errors_of,
    fitted,
    modelled_seconds,
    pairs,
    parse_errors,
    to_text,
)
from wheel_builder.matrix.tuned.form import Times, parse_tuning
from wheel_builder.matrix.tuned.tree import FOLDER, to_json

KERNELS = parse_speeds(SPEEDS.name, (CHECKOUT / SPEEDS).read_text("utf-8"))
TODAY = {(ARCH, KERNEL): ids(KERNEL)[0]}
LENGTHS = (512, 1024, 2048)


def parsed(make=report, length=512, **values):
    """A report about one kernel."""
    bins = [call(KERNEL, (20.0, 20.5, 21.0), length=length, **values)]
    return parse_tuning(as_bytes({**make(), "kernels": {KERNEL: tuned(KERNEL, *bins)}}), NOW)


def on_a_gpu(make, start, scale):
    """A report of a GPU that takes ``start`` seconds and ``scale`` times the modelled time."""
    found = parsed(make)
    kernel = found.kernels[KERNEL]
    bins = []
    for length in LENGTHS:
        one = replace(kernel.bins[0], length=length)
        ms = 1e3 * (start + scale * modelled_seconds(ARCH, KERNEL, one, KERNELS[ARCH]))
        times = {row: Times(ms, ms * 0.98, ms * 1.05, 12) for row in one.times}
        bins.append(replace(one, times=times, winner=kernel.shipped))
    return signed(replace(found, kernels={KERNEL: replace(kernel, bins=tuple(bins))}))


def test_coefficients_are_found_again_with_their_spread():
    reports = [on_a_gpu(report, 4e-6, 1.2), on_a_gpu(another, 6e-6, 1.4)]
    [found] = errors(pairs(reports, KERNELS, TODAY))
    assert (found.arch, found.calls, found.machines, found.bins) == (ARCH, "forward", 2, 6)
    assert (found.scale, found.scale_least, found.scale_most) == pytest.approx((1.3, 1.2, 1.4), abs=2e-3)
    assert (found.start, found.start_least, found.start_most) == pytest.approx((5, 4, 6), abs=0.02)
    assert 1.2 < found.ratio_least < found.ratio < found.ratio_most


def test_a_longer_call_is_modelled_longer_and_a_causal_one_shorter():
    one = parsed().kernels[KERNEL].bins[0]
    short, long, causal = (
        modelled_seconds(ARCH, KERNEL, replace(one, **values), KERNELS[ARCH])
        for values in ({}, {"length": 1024}, {"causal": True})
    )
    assert 0 < causal < short < long


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (KERNEL, {"mask": "bool"}),
        ("fa_fwd_bf16_d64", {}),
        ("fa_fwd_fp16_d32", {}),
        ("fa_bwd_dq_fp16_d64", {"kind": "backward", "width": 4}),
        (KERNEL, {"batch": 1 << 20}),
    ],
)
def test_calls_that_the_model_lacks_are_left_out(name, values):
    one = replace(parsed().kernels[KERNEL].bins[0], **values)
    assert modelled_seconds(ARCH, name, one, KERNELS[ARCH]) == 0


@pytest.mark.parametrize("op", ["bwd_dkdv", "bwd_dq", "bwd_fused"])
def test_gradients_are_those_of_a_whole_backward(op):
    one = replace(parsed().kernels[KERNEL].bins[0], kind="backward")
    forward = modelled_seconds(ARCH, KERNEL, replace(one, kind="forward"), KERNELS[ARCH])
    assert modelled_seconds(ARCH, f"fa_{op}_fp16_d64", one, KERNELS[ARCH]) > 2 * forward


def test_other_rows_and_smaller_gpus_are_left_out():
    known = on_a_gpu(report, 0, 1.5)
    assert len([*pairs([known], KERNELS, TODAY)]) == len(LENGTHS)
    assert [*pairs([known], KERNELS, {(ARCH, KERNEL): "00000000"})] == []
    smaller = replace(known, report=replace(known.report, compute_units=84))
    assert [*pairs([smaller], KERNELS, TODAY)] == []


def test_a_start_is_never_negative():
    def pair(measured, modelled):
        return Pair(ARCH, "forward", "x", measured, modelled)

    assert fitted([pair(3.0, 1.0)]) == (0.0, pytest.approx(3.0))
    assert fitted([pair(1.0, 1.0), pair(3.0, 2.0)])[0] == 0.0
    assert fitted([pair(3.0, 1.0), pair(5.0, 2.0)]) == pytest.approx((1.0, 2.0))


def test_the_file_is_read_as_it_was_written():
    found = (*errors(pairs([on_a_gpu(report, 4e-6, 1.2)], KERNELS, TODAY)),)
    assert parse_errors(to_text(found)) == found
    [row] = measured_errors(found, 1).splitlines()[2:]
    assert row.startswith("| gfx1100 | forward | 1 | 3 | 1.")
    assert "1.20 (1.20 to 1.20) | 4.0 (4.0 to 4.0)" in row


def test_without_reports_the_documents_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / SPEEDS).parent.mkdir(parents=True)
    (tmp_path / SPEEDS).write_bytes((CHECKOUT / SPEEDS).read_bytes())
    assert main(["report", "calibrate"]) == 0
    said = capsys.readouterr().out
    assert NONE in said
    assert "python -m flash_attn_rocm tune writes one on a GPU" in said
    assert measured_errors(parse_errors((tmp_path / ERRORS).read_text()), 0) == NONE
    assert main(["report", "calibrate"]) == 0
    assert "commit it" not in capsys.readouterr().out, "the second time nothing changed"


def test_reports_without_a_modelled_time_are_not_said_to_be_missing(tmp_path, monkeypatch, capsys):
    """That of a GPU with other compute units than the modelled one."""
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / SPEEDS).parent.mkdir(parents=True)
    (tmp_path / SPEEDS).write_bytes((CHECKOUT / SPEEDS).read_bytes())
    (tmp_path / FOLDER).mkdir(parents=True)
    found = signed(parsed(lambda: report(compute_units=84)))
    (tmp_path / FOLDER / "one.json").write_bytes(to_json(found))
    assert main(["report", "calibrate"]) == 0
    said = capsys.readouterr().out
    assert "None of 1 tuning reports has a time to compare" in said
    assert NONE not in said
    assert measured_errors((), 1) in said


@pytest.fixture
def two_reports(tmp_path, monkeypatch):
    """A tree with those of two GPUs."""
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ids_of", lambda _: TODAY)
    (tmp_path / SPEEDS).parent.mkdir(parents=True)
    (tmp_path / SPEEDS).write_bytes((CHECKOUT / SPEEDS).read_bytes())
    (tmp_path / FOLDER).mkdir(parents=True)
    for number, make in enumerate((report, another)):
        (tmp_path / FOLDER / f"{number}.json").write_bytes(to_json(on_a_gpu(make, 5e-6 + number * 1e-6, 1.3)))
    return tmp_path


def test_the_documents_show_the_errors_and_their_spread(two_reports, monkeypatch):
    """The page as `pytest tests/fast/unit/docs/test_tables.py --update` writes it after the command."""
    assert main(["report", "calibrate"]) == 0
    monkeypatch.setattr(site, "MEASURED_ERRORS", two_reports / ERRORS)
    page = site.fill((CHECKOUT / "docs/modelled.md").read_text("utf-8"), site.tables(CHECKOUT))
    shown = page.partition("<!-- table: measured_errors -->")[2].partition("<!-- end")[0].strip().splitlines()
    assert shown[0] == f"| {' | '.join(HEADS)} |"
    [row] = shown[2:]
    assert row.startswith("| gfx1100 | forward | 2 | 6 | 1.")
    assert row.endswith("| 1.30 (1.30 to 1.30) | 5.5 (5.0 to 6.0) |")


def test_reports_in_the_tree_give_errors_and_the_advice_to_commit_them(two_reports, capsys):
    assert main(["report", "calibrate"]) == 0
    said = capsys.readouterr().out
    assert "1.30 (1.30 to 1.30) 5.5 (5.0 to 6.0)" in " ".join(said.split())
    assert f"{ERRORS}: commit it, with the tables of the documents that show it" in said
    [found] = parse_errors((two_reports / ERRORS).read_text())
    assert (found.machines, found.bins) == (2, 2 * len(LENGTHS))


def test_the_file_in_the_tree_is_that_of_its_reports():
    assert (CHECKOUT / ERRORS).read_text(encoding="utf-8") == to_text(errors_of(CHECKOUT)), module.__doc__

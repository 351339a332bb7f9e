"""Costs of upstream's kernels, their part in ``plan``, and the page that compares them with ours."""

import re
from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.build.budget import KernelCost
from wheel_builder.cli.main import main
from wheel_builder.extras.upstream.costs import (
    Costs,
    Flags,
    Sample,
    chosen,
    kind_of,
    kinds,
    load_costs,
    parse_costs,
    plan_lines,
    to_text,
)
from wheel_builder.extras.upstream.why import KINDS, sections, to_html
from wheel_builder.extras.upstream.why import to_text as told
from wheel_builder.matrix.model import Upstream
from wheel_builder.matrix.reading import load_matrix

UPSTREAM = Upstream("2.8.3", "0" * 64, ("gfx90a", "gfx942"))


def sample(name, seconds, peak=500):
    return Sample(name, "gfx942", seconds, peak, 20000)


# Two kinds cost 30 and 90 seconds an object, all others 3.6.
THEIRS = Costs(
    "2.8.3",
    {**dict.fromkeys(KINDS, 10), "fwd": 100, "bwd": 200},
    (
        *(
            sample(kind if kind == "api" else f"fmha_{kind}_d64_x", 3.6)
            for kind in KINDS
            if kind not in ("fwd", "bwd")
        ),
        sample("fmha_fwd_d128_a", 40),
        sample("fmha_fwd_d64_z", 20),
        sample("fmha_bwd_d128_a", 90, 900),
    ),
    (Flags("", 40.0, 20000), Flags("-mllvm -slow", 400), Flags("-mllvm -fast", 44.0, 20016)),
)
NAMES = ("fa_bwd_dq_fp16_d64", *(f"fa_fwd_fp16_d{n}" for n in range(29)))
OURS = {arch: {name: KernelCost(1000, 2.0, 150) for name in NAMES} for arch in ("gfx908", "gfx942")}
HOURS = (100 * 30 + 200 * 90 + 60 * 3.6) / 3600


def test_kinds_are_read_from_names():
    assert kind_of("fmha_bwd_dot_do_o_d128_fp16_batch_o2_psdv") == "bwd_dot_do_o"
    assert kind_of("fmha_fwd_splitkv_combine_d64_fp8_batch") == "fwd_splitkv_combine"
    assert kind_of("fmha_fwd_splitkv_api") == "api"
    assert kinds(["fmha_fwd_d64_b", "fmha_fwd_d128_a", "fmha_bwd_api"]) == {"api": 1, "fwd": 2}


def test_the_first_and_the_last_of_each_kind_are_measured():
    names = ["fmha_fwd_d64_z", "fmha_fwd_d128_a", "fmha_fwd_d32_m", "fmha_bwd_d64_x", "fmha_bwd_api"]
    assert chosen(names) == ["fmha_bwd_api", "fmha_bwd_d64_x", "fmha_fwd_d128_a", "fmha_fwd_d64_z"]


def test_all_objects_cost_what_their_kinds_samples_do():
    assert THEIRS.seconds("fwd") == 30
    assert THEIRS.count == 360
    assert THEIRS.hours == pytest.approx(HOURS)
    dearer = replace(THEIRS, measured=(*THEIRS.measured, sample("fmha_bwd_d64_b", 270)))
    assert dearer.hours == pytest.approx(HOURS + 200 * 90 / 3600)


def test_the_file_keeps_everything():
    assert parse_costs(to_text(THEIRS)) == THEIRS


def test_the_plan_tells_the_recipes_cost():
    lines = plan_lines(UPSTREAM, THEIRS)
    assert lines[1].split() == ["flash-attn", "2.8.3", "(CK)", "gfx90a", "gfx942", "360", "6", "12"]
    assert lines[2].startswith("from 9 measured objects")


def test_the_accepted_costs_are_of_the_recipes_version_and_every_kind_was_measured():
    found = load_costs(CHECKOUT)
    assert found.version == load_matrix(CHECKOUT / "matrix.yaml").upstream.version
    assert set(found.objects) == set(KINDS) == {kind_of(one.name) for one in found.measured}
    assert found.flags[0].added == ""


def test_both_sides_stand_beside_each_other():
    text = told(sections(UPSTREAM, THEIRS, OURS))
    rows = dict(re.findall(r"^(\S.*?) {2,}(\S.*)$", text, re.MULTILINE))
    assert re.split(r" {2,}", rows["kernels per arch"]) == ["360", "30"]
    assert re.split(r" {2,}", rows["forward kernels per arch"]) == ["140", "29"]
    assert re.split(r" {2,}", rows["CPU time of forward per arch"]) == ["52 min 24 s", "58 s"]
    assert re.split(r" {2,}", rows["CPU-seconds per kernel"]) == ["58.9", "2.0"]
    assert re.split(r" {2,}", rows["CPU time per arch"]) == ["5 h 53 min", "1 min 0 s"]
    assert re.split(r" {2,}", rows["CPU time for all its archs"]) == ["11 h 47 min", "2 min 0 s"]
    assert re.split(r" {2,}", rows["peak memory of one compiler"]) == ["900 MiB", "150 MiB"]
    assert re.split(r" {2,}", rows["forward"]) == ["100", "2", "30 (20 to 40)", "0.8"]
    assert "pip install flash-attn-rocm --index-url <index>/public/simple" in text


def test_flags_that_cost_are_named_with_what_they_cost():
    text = told(sections(UPSTREAM, THEIRS, OURS))
    assert re.search(r"^-mllvm -slow +more than 400 +more than 10\.0 +stopped$", text, re.MULTILINE)
    assert re.search(r"^-mllvm -fast +44 +1\.1 +20016$", text, re.MULTILINE)
    assert "-mllvm -slow makes it take more than 10.0 times as long: it was stopped then." in text
    assert "What flags cost" not in told(sections(UPSTREAM, replace(THEIRS, flags=THEIRS.flags[:1]), OURS))


def test_the_fewest_flags_that_are_dear_are_named():
    flags = (
        Flags("", 40.0, 20000),
        Flags("-a -b", 200.0, 19000),
        Flags("-a", 44.0, 20000),
        Flags("-a -b -c", 210.0),
    )
    text = told(sections(UPSTREAM, replace(THEIRS, flags=flags), OURS))
    assert "-a -b makes it take 5.0 times as long, for 19000 bytes of code instead of 20000." in text
    cheap = told(sections(UPSTREAM, replace(THEIRS, flags=(flags[0], flags[2])), OURS))
    assert "None of them makes the compiler take 2 times as long." in cheap


def test_the_page_needs_nothing_else_and_says_the_same():
    parts = sections(UPSTREAM, THEIRS, OURS)
    page = to_html(parts, THEIRS, OURS)
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"<script|src=|href=|url\(", page)
    for part in parts:
        assert f"<h2>{part.heading}</h2>" in page
        for row in part.rows:
            assert all(f">{cell}</t" in page for cell in row)
    assert "&lt;index&gt;" in page
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="18"', page)]
    assert widths == [1000.0, pytest.approx(1000 * 60 / (HOURS * 3600), abs=0.01)]


def test_the_command_writes_the_page(tmp_path, capsys):
    assert main(["why", "--html", str(tmp_path / "why.html")]) == 0
    assert "Why does building flash-attn take hours?" in capsys.readouterr().out
    assert (tmp_path / "why.html").read_text().startswith("<!doctype html>")

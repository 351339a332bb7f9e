"""Hardware reports: accepted only if they match a wheel, then shown on the page."""

import copy
import hashlib
import json
import random
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.documents import changed as lie
from tests.tools.made.documents import places
from tests.tools.made.wheels import (
    ARCHS,
    GOOD_LIBRARY,
    KERNELS,
    VERSION,
    good_files,
    write_statement,
    write_wheel,
)
from wheel_builder.base.errors import MatrixError, PublishError
from wheel_builder.cli.commands.indexes import report as command
from wheel_builder.cli.main import main
from wheel_builder.index.finder.data import make_finder
from wheel_builder.index.finder.page import html_page
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.matrix.gpus import device_problem, units_problem
from wheel_builder.matrix.hardware import (
    FOLDER,
    MOST_BYTES,
    MOST_LSE,
    measured_rows,
    read_reports,
    signed_reports,
)
from wheel_builder.matrix.measured import MEASURED, text_of
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.provenance.provenance import LOCAL, RunDetails
from wheel_builder.provenance.records import provenance_path
from wheel_builder.provenance.user_report import add_report
from wheel_builder.tables.archs import known_gpus, known_products
from wheel_builder.tables.products import device_names

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NAME = "A Maintainer <maintainer@localhost>"
ROW = "1564a486"
KERNEL = {
    "calls": 20, "failed": 0, "failures": [], "worst_error": 0.001, "allowed": 0.002,
    "worst_lse_error": 1e-6, "median_ms": 0.5,
}  # fmt: skip
REPORT = {
    "schema": 1, "how": "run on hardware", "time": "2026-11-20T10:00:00+00:00",
    "device": "AMD Radeon RX 6800 XT", "arch": "gfx1030", "compute_units": 72,
    "driver": "amdgpu 6.12.12", "os": "Debian GNU/Linux 12",
    "python": "3.11.2", "torch": "2.13.0+rocm7.2", "torch_build": "ROCm 7.2.53210", "package": VERSION,
    "library_sha256": hashlib.sha256(GOOD_LIBRARY.data).hexdigest(), "library_as_installed": True,
    "complete": True, "seconds": 40.5, "kernels": dict.fromkeys(KERNELS, KERNEL),
}  # fmt: skip

CATALOGUE = catalogue_of(load_matrix(CHECKOUT / "matrix.yaml"))
BUILT = RunDetails(LOCAL, "2026-11-19T10:00:00Z")
# The wheel's suite has 20 calls of each kernel.
SUITE = {arch: {name: list(range(20)) for name in KERNELS} for arch in ARCHS}
WITH_CALLS = good_files() | {"flash_attn_rocm/suite/corpus.json": json.dumps(SUITE).encode()}


def stated_wheel(folder, files=WITH_CALLS):
    """A wheel with a statement of its build time."""
    wheel = write_wheel(folder, files)
    write_statement(wheel, run=BUILT)
    return wheel


@pytest.fixture
def add(tmp_path):
    """Adds a report, a value or its text, to its own tree with one wheel."""
    wheel = stated_wheel(tmp_path)

    def offer(report, *, name=NAME, wheels=(wheel,)):
        file = tmp_path / "selftest.json"
        file.write_bytes(report if isinstance(report, bytes) else json.dumps(report).encode())
        return add_report(file, wheels, tmp_path / "tree", catalogue=CATALOGUE, signed_off_by=name, now=NOW)

    return offer


def changed(**values):
    return {**copy.deepcopy(REPORT), **values}


def kernel(**values):
    return changed(kernels={**REPORT["kernels"], KERNELS[0]: {**KERNEL, **values}})


def page(tree):
    catalogue = catalogue_of(load_matrix(CHECKOUT / "matrix.yaml"), read_reports(tree))
    return html_page(make_finder(catalogue, ())).decode()


def test_a_report_is_taken_and_shown(add, tmp_path):
    path = add(REPORT)
    assert path.parent == tmp_path / "tree" / FOLDER
    [run] = read_reports(tmp_path / "tree")
    assert (run.arch, run.kernels, run.failed, run.signed_off_by) == ("gfx1030", 2, 0, "A Maintainer")
    text = page(tmp_path / "tree")
    assert '<th scope="col">Run on hardware</th>' in text
    assert text.count(">yes, passed</td>") == 1
    assert "gfx1030: all 2 kernels passed on AMD Radeon RX 6800 XT" in text
    assert "A Maintainer." in text
    assert "maintainer@localhost" not in text


BORROWER = {"device": "AMD Radeon RX 6700 XT", "compute_units": 40}


@pytest.mark.parametrize("arch", ["gfx1031", "gfx1030"], ids=["its own name", "with the override"])
def test_a_report_of_a_gpu_that_runs_the_code_of_another(add, tmp_path, arch):
    add(changed(arch=arch, **BORROWER))
    text = page(tmp_path / "tree")
    assert f"{arch}: all 2 kernels passed on AMD Radeon RX 6700 XT" in text
    assert text.count(">yes, passed</td>") == 1


def test_a_report_of_such_a_gpu_has_its_own_compute_units(add):
    with pytest.raises(PublishError) as caught:
        add(changed(arch="gfx1031", **{**BORROWER, "compute_units": 41}))
    assert "compute_units: expected 1 to 40, as GPUs of gfx1031 have, found 41" in str(caught.value)


def test_without_a_report_the_column_says_so(tmp_path):
    text = page(tmp_path)
    assert text.count(">no report</td>") == len(load_matrix(CHECKOUT / "matrix.yaml").archs)
    assert "yes, passed" not in text
    assert "There is none yet." in text


def test_a_report_of_a_failure_is_shown_as_one(add, tmp_path):
    add(kernel(failed=1, failures=["call 3: out: error 0.5, allowed 0.002"], worst_error=0.5))
    assert ">1 of 2 kernels failed</td>" in page(tmp_path / "tree")


ROWS = "flash_attn_rocm/values/rows.json"


def with_rows(tmp_path, *rows):
    """A wheel with these rows of the first kernel."""
    folder = tmp_path / "with-rows"
    folder.mkdir()
    ids = {"gfx1030": {KERNELS[0]: [(22, row) for row in rows]}}
    return (stated_wheel(folder, WITH_CALLS | {ROWS: json.dumps(ids).encode()}),)


def test_a_report_that_names_rows_counts_as_their_measurement(add, tmp_path):
    wheels = with_rows(tmp_path, "00c0ffee", ROW)
    add(kernel(row=ROW), wheels=wheels)
    tree = tmp_path / "tree"
    assert json.loads(text_of(tree)) == {ROW: 1}
    [signed] = signed_reports(tree).values()
    twice = measured_rows([signed.report] * 2)
    assert twice == {ROW: 2}


def test_a_failed_kernel_does_not_measure_its_rows(add, tmp_path):
    wheels = with_rows(tmp_path, "00c0ffee", ROW)
    failed = kernel(row=ROW, failed=1, failures=["call 3: out: error 0.5, allowed 0.002"], worst_error=0.5)
    add(failed, wheels=wheels)
    assert text_of(tmp_path / "tree") == "{}\n"


def test_a_report_of_an_older_wheel_measures_no_rows(add, tmp_path):
    add(REPORT)
    assert text_of(tmp_path / "tree") == "{}\n"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1564a48", "row: expected 8 hexadecimal digits or nothing"),
        ("1564A486", "row: expected 8 hexadecimal digits or nothing"),
        ("../../etc", "row: expected 8 hexadecimal digits or nothing"),
        ("00000000", f"kernels.{KERNELS[0]}: its row in the wheel is not '00000000'"),
    ],
)
def test_rows_are_those_of_the_wheel(add, tmp_path, row, words):
    wheels = with_rows(tmp_path, "00c0ffee", ROW)
    with pytest.raises(PublishError, match=re.escape(words)):
        add(kernel(row=row), wheels=wheels)
    assert not (tmp_path / "tree").exists()


def test_a_row_is_of_its_own_kernel(add, tmp_path):
    wheels = with_rows(tmp_path, ROW)
    rows = changed(kernels={name: {**KERNEL, "row": ROW} for name in KERNELS})
    with pytest.raises(PublishError, match=f"kernels.{KERNELS[1]}: its row in the wheel is not '{ROW}'"):
        add(rows, wheels=wheels)


def test_a_wheel_without_row_ids_has_no_rows(add):
    with pytest.raises(PublishError, match=f"kernels.{KERNELS[0]}: its row in the wheel is not '{ROW}'"):
        add(kernel(row=ROW))


def test_the_packages_counts_are_those_of_the_reports_in_the_tree():
    advice = "run .venv/bin/python -m wheel_builder.matrix.measured"
    assert (CHECKOUT / MEASURED).read_text(encoding="utf-8") == text_of(CHECKOUT), advice


def test_the_newest_report_of_an_arch_counts(add, tmp_path):
    add(changed(time="2026-11-21T10:00:00+00:00"))
    add(kernel(failed=1, failures=["call 3: wrong"]))
    text = page(tmp_path / "tree")
    assert text.count(">yes, passed</td>") == 1
    assert text.count("<li>gfx1030: ") == 2


REFUSED = {
    "emulated": (changed(how="executed on an ISA emulator"), "how: expected 'run on hardware'"),
    "part": (changed(complete=False), "complete: only some kernels or calls"),
    "altered": (changed(library_as_installed=False), "library_as_installed: the library is not the one"),
    "other wheel": (changed(library_sha256="0" * 64), "no wheel has its library, sha256 000"),
    "digest": (changed(library_sha256="../../x"), "library_sha256: expected 64 hexadecimal digits"),
    "version": (changed(package="9.9"), "package: it says 9.9"),
    "schema": (changed(schema=2), "schema: expected 1, found 2"),
    "arch": (changed(arch="gfx900"), "arch: the wheel has no code for gfx900"),
    "arch a path": (changed(arch="../../../etc"), "arch: the wheel has no code for '../../../etc'"),
    "future": (changed(time="2027-01-01T00:00:00+00:00"), "time: expected one in the past"),
    "no zone": (changed(time="2026-11-20T10:00:00"), "time: expected one in the past with its zone"),
    "no time": (changed(time="yesterday"), "time: expected ISO 8601, found 'yesterday'"),
    "control character": (changed(device="RX\x1b[2J"), "device: it has U+001B"),
    "right to left": (changed(device="RX \u202e6800"), "device: it has U+202E"),
    "lines": (changed(driver="a\nb"), "driver: it has U+000A"),
    "type": (changed(compute_units="72"), "compute_units: Input should be a valid integer"),
    "more": (changed(verdict="good"), "verdict: "),
    "less": ({k: v for k, v in REPORT.items() if k != "os"}, "os: "),
    "no kernels": (changed(kernels={}), "kernels: 2 of the wheel's were not run"),
    "few kernels": (changed(kernels={KERNELS[0]: KERNEL}), f"were not run, such as {KERNELS[1]}"),
    "unknown kernel": (
        changed(kernels={**REPORT["kernels"], "fa_fwd_fp8_d64": KERNEL}),
        "the wheel's suite has no fa_fwd_fp8_d64",
    ),
    "strange kernel": (changed(kernels={**REPORT["kernels"], "<b>": KERNEL}), "it is no name of a kernel"),
    "no calls": (kernel(calls=0), "expected at least one call"),
    "more failed": (kernel(failed=21, failures=["x"]), "no more failed ones than calls"),
    "no words": (kernel(failed=1), "expected words of failures where calls failed"),
    "words": (kernel(failures=["x"]), "expected words of failures where calls failed"),
    "too wrong": (kernel(worst_error=0.1), "no call failed, and the worst error is more than allowed"),
    # These were accepted, by the report's own numbers.
    "any allowance": (
        kernel(allowed=1e308, worst_error=1e307),
        "allowed: the suite allows no call more than 128, found 1e+308",
    ),
    "log-sum-exp": (kernel(worst_lse_error=1e-4), "worst_lse_error is more than the 1e-05 that"),
    "calls": (kernel(calls=21), "expected the 20 calls of the wheel's suite, found 21"),
    "fewer calls": (kernel(calls=1), "expected the 20 calls of the wheel's suite, found 1"),
    "more words": (kernel(failed=1, failures=["x", "y"]), "expected words of failures where calls failed"),
    "year 1": (changed(time="0001-01-01T00:00:00+00:00"), "time: expected one since 2026-11-16"),
    "negative seconds": (changed(seconds=-40.5), "expected more than 0 and at most 86400, found -40.5"),
    "a year": (changed(seconds=3e7), "seconds: expected more than 0 and at most 86400, found 3e+07"),
    "too fast": (kernel(median_ms=5e4), "seconds: the kernels' medians add up to 500 at least, found 40.5"),
    "no units": (changed(compute_units=0), "compute_units: expected 1 to 80, as GPUs of gfx1030"),
    "more units": (changed(compute_units=96), "as GPUs of gfx1030 have, found 96"),
    "another GPU": (
        changed(device="AMD Radeon RX 7900 XTX"),
        "device: AMD Radeon RX 7900 XTX is gfx1100 by kernels/tables/gpus.toml, not gfx1030",
    ),
    "another arch": (
        changed(device="AMD Radeon RX 7900 XTX", arch="gfx908", compute_units=96),
        "device: AMD Radeon RX 7900 XTX is gfx1100 by kernels/tables/gpus.toml, not gfx908",
    ),
    "unknown GPU": (
        changed(device="GeForce RTX 4090"), "device: unknown GPU 'GeForce RTX 4090': known: Radeon RX 6800, ",
    ),
    "negative": (kernel(median_ms=-1.0), "median_ms: expected 0 or more"),
    "NaN": (json.dumps(kernel(median_ms=float("nan"))).encode(), "NaN is not a number"),
    "twice": (b'{"schema": 1, "schema": 1}', "the key 'schema' is in it twice"),
    "text": (b"all is well", "not JSON"),
    "large": (b" " * (MOST_BYTES + 1), f"expected at most {MOST_BYTES}"),
}  # fmt: skip


@pytest.mark.parametrize(("report", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_in_words_and_nothing_is_written(add, tmp_path, report, words):
    with pytest.raises(PublishError) as caught:
        add(report)
    assert words in caught.value.problems[0]
    assert not (tmp_path / "tree").exists()


# Each of these was accepted.
LIES = {
    **{
        f"torch +{label}": (changed(torch=f"2.13.0+{label}"), f"torch: +{label} is no build for ROCm")
        for label in ("cpu", "cu128", "xpu", "certified", "best.of.all")
    },
    "torch of long ago": (changed(torch="2.1.0", torch_build="ROCm 5.6.31"), "torch: expected 2.10 or newer"),
    "torch 0": (changed(torch="0.1"), "torch: expected 2.10 or newer, without which the wheel does not"),
    "no torch": (changed(torch="banana"), "torch: expected a version of PyTorch such as 2.13.0+rocm7.2, "),
    "torch and more": (changed(torch="2.13.0 (certified by AMD)"), "torch: expected a version of PyTorch"),
    "ROCm of another build": (
        changed(torch="2.13.0+rocm6.4"), "torch: it is built for ROCm 6.4, and torch_build says ROCm",
    ),
    **{
        f"build {build}": (changed(torch_build=build), "torch_build: expected a build such as")
        for build in ("CPU", "CUDA 12.8", "ROCm", "banana", "ROCm 7.2.53210, certified by AMD", "ROCm seven")
    },
    "a driver in words": (
        changed(driver="amdgpu 6.12, the best"), "driver: expected one such as 'amdgpu 6.12.12', found",
    ),
    "Python 2": (changed(python="2.7.18"), "python: expected a version such as 3.11.2, found '2.7.18'"),
    "Python 4": (changed(python="4.0.0"), "python: expected a version such as 3.11.2, found '4.0.0'"),
    "an old Python": (changed(python="3.9.19"), "python: expected >=3.10, as the wheel asks for, found 3.9"),
    "no Python": (changed(python="snake"), "python: expected a version such as 3.11.2, found 'snake'"),
    "Windows with the library for Linux": (changed(os="Windows 11"), "os: the wheel is for Linux, found "),
    "no error anywhere": (
        changed(kernels={name: {**KERNEL, "worst_error": 0.0} for name in KERNELS}),
        "kernels: not one has any error, expected those of rounding to 16 bits",
    ),
    "no time": (kernel(median_ms=0.0), "median_ms: expected more than 0, as a call takes time"),
    "before the wheel": (
        changed(time="2026-11-18T10:00:00+00:00"), "began before its wheel was there",
    ),
    "it began before the wheel": (
        changed(time="2026-11-19T10:00:30+00:00"), "time: a run of 40.5 s that ended at 2026-11-19T10:0",
    ),
    "in another zone": (
        changed(time="2026-11-19T11:59:00+02:00"), "began before its wheel was there",
    ),
    "two GPUs": (
        changed(device="AMD Radeon RX 6800 XT, RX 6900 XT", compute_units=80),
        "device: expected the name of one GPU, found Radeon RX 6800 XT, Radeon RX 6900 XT",
    ),
    "one GPU twice": (
        changed(device="Radeon RX 6800 XT Radeon RX 6800 XT"), "device: expected the name of one GPU, found",
    ),
    "another GPU too": (
        changed(device="AMD Radeon RX 6800 XT / RX 7600"), "device: expected the name of one GPU, found",
    ),
    **{
        f"a name and {words}": (
            changed(device=f"AMD Radeon RX 6800 XT{words}"),
            "device: expected the name of a GPU, found ",
        )
        for words in (" - best GPU, buy now", " (certified)", " https://a.invalid", " \u5927", " 2 PFLOPS")
    },
    "words for a GPU": (
        changed(device="AMD Radeon Graphics, certified by AMD"), "device: unknown GPU 'AMD Radeon",
    ),
    "compute units of another product": (
        changed(compute_units=60), "compute_units: Radeon RX 6800 XT has 72 by kernels/tables/gpus.toml, fou",
    ),
    "half of its compute units": (changed(compute_units=36), "compute_units: Radeon RX 6800 XT has 72 by"),
}  # fmt: skip


@pytest.mark.parametrize(("report", "words"), LIES.values(), ids=LIES)
def test_a_report_that_no_machine_writes_is_refused(add, tmp_path, report, words):
    with pytest.raises(PublishError) as caught:
        add(report)
    assert any(words in problem for problem in caught.value.problems), caught.value.problems
    assert not (tmp_path / "tree").exists()


TRUE = {
    "torch of AMD": {"torch": "2.10.0+rocm7.2.1.lw.git1a2b3c4d", "torch_build": "ROCm 7.2.53210-3f0d2a1f"},
    "torch of TheRock": {"torch": "2.11.0a0+rocm7.12.0a20260501", "torch_build": "ROCm 7.12.60610-abc"},
    "torch of its SDK": {"torch": "2.10.0+rocmsdk20260301", "torch_build": "ROCm 7.2.53210"},
    "torch compiled at home": {"torch": "2.12.0a0+git1a2b3c4", "torch_build": "ROCm 6.4.43482-0f2d60242"},
    "torch of a distribution": {"torch": "2.13.0"},
    "a newer Python": {"python": "3.14.0rc2"},
    "a Python compiled at home": {"python": "3.13.1+"},
    "another system": {"os": "Arch Linux"},
    "a driver that is a part of Linux": {"driver": "amdgpu of Linux 6.17.1-arch1-1"},
    "no driver known": {"driver": ""},
    "a driver on WSL2": {"driver": "that of Windows (drivers 0123456789ab), librocdxg.so.1.1.0"},
    "one that lacks its library": {"driver": "that of Windows (drivers 0123456789ab), no librocdxg"},
    "drivers of Windows": {"driver": "AMD 32.0.21013.1000, AMD 31.0.1"},
    "it began as the wheel was there": {"time": "2026-11-19T10:00:41+00:00"},
}


@pytest.mark.parametrize("values", TRUE.values(), ids=TRUE)
def test_a_report_that_a_machine_can_write_is_taken(add, values):
    assert add(changed(**values)).is_file()


VALUES = (
    None, True, False, -1, 0, 1, 36, 1e-9, 0.5, 1e308, "", "x", "gfx1100", "2.13.0+cpu", "Windows 11",
    "\x1b[2J", "AMD Instinct MI300X", "certified by AMD", "2026-11-20T10:00:01+00:00",
    "2020-01-01T00:00:00+00:00", [], {}, ["x"], {"a": 1}, "0" * 64,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_report_is_refused_or_says_the_same_of_the_gpu(add, tmp_path, seed):
    """One random value is changed: an accepted report still states the same facts about the GPU."""
    rng, taken = random.Random(seed), []
    tree = tmp_path / "tree"
    add(REPORT)
    [expected] = read_reports(tree)
    for _ in range(150):
        shutil.rmtree(tree)
        place = rng.choice([place for place in places(REPORT) if place])
        mutant = lie(REPORT, place, rng.choice(VALUES))
        try:
            add(mutant)
        except PublishError:
            tree.mkdir()
            continue
        if json.dumps(mutant) == json.dumps(REPORT):
            continue
        [run] = read_reports(tree)
        taken.append(place)
        assert replace(run, time=expected.time, driver=expected.driver) == expected, place
    assert len(taken) < 30
    assert {place[-1] for place in taken} <= FREE


# Values of a run outside the wheel and the tables: the driver's words, system, time and speed.
FREE = {"driver", "os", "time", "seconds", "median_ms", "worst_error", "allowed", "worst_lse_error"}


def test_a_gpu_has_the_compute_units_of_its_product_or_of_a_part_of_its_dies():
    """An MI300X may appear as eight devices. An RX 7900 XTX with half of its units does not exist."""
    products = known_products()
    for device, good, bad in (
        ("AMD Radeon RX 7900 XTX", (96,), (48, 84, 1)),
        ("AMD Radeon RX 7900 XT", (84,), (96,)),
        ("AMD Instinct MI250X / MI250", (104, 110), (103,)),
        ("AMD Radeon RX 6750 GRE", (36, 40), ()),  # two products have that name
        ("AMD Radeon Graphics", (2, 12, 96), ()),
    ):
        found = {units: units_problem(device, units, products, 0) for units in (*good, *bad)}
        assert [units for units, problem in found.items() if problem] == [*bad]
    parts = [
        units for units in range(1, 305) if not units_problem("AMD Instinct MI300X", units, products, 38)
    ]
    assert parts == [38, 76, 152, 304]


def test_gpus_of_one_chip_may_share_a_name(add):
    """AMD's driver writes this if it cannot tell two of them apart."""
    assert device_problem("AMD Instinct MI250X / MI250", "gfx90a", CATALOGUE.gpus) == ""
    assert device_problem("AMD Instinct MI300X OAM", "gfx942", CATALOGUE.gpus) == ""


@pytest.mark.parametrize("product", [name for gpu in CATALOGUE.gpus for name in gpu.devices if gpu.code])
def test_the_name_of_every_product_is_taken(product):
    [gpu] = [gpu for gpu in CATALOGUE.gpus if product in gpu.devices]
    assert device_problem(f"AMD {product}", gpu.arch, CATALOGUE.gpus) == ""


def test_every_product_with_kernels_has_its_compute_units():
    for name, gpu in known_gpus().items():
        if name in known_products():
            units = known_products()[name].units
            assert max(units) == gpu.compute_units, name
            assert len(units) == len(device_names(known_products()[name].devices))


def test_a_run_is_counted_once(add, tmp_path):
    """Once it was accepted again with another time, another maintainer or another number."""
    first = add(REPORT)
    for report, name in (
        (REPORT, NAME),
        (REPORT, "Another <another@localhost>"),
        (changed(time="2026-11-20T12:00:00+00:00", seconds=41.5), NAME),
        (kernel(median_ms=0.6), NAME),
    ):
        with pytest.raises(PublishError, match=f"its run is in the tree already: {first.name}"):
            add(report, name=name)
    assert [*first.parent.iterdir()] == [first]
    copy = first.with_name("z.json")
    copy.write_text(first.read_text().replace("A Maintainer", "Another"))
    with pytest.raises(MatrixError) as caught:
        read_reports(tmp_path / "tree")
    assert caught.value.problems == (f"z.json: its run is in the tree already: {first.name}",)


def test_a_report_is_taken_only_of_a_wheel_that_says_when_it_was_built(add, tmp_path):
    (tmp_path / "other").mkdir()
    wheel = stated_wheel(tmp_path / "other")
    statement = provenance_path(wheel)
    statement.write_text(statement.read_text().replace("T10:00:00Z", "T10:00:00"))
    with pytest.raises(PublishError, match="has no zone"):
        add(REPORT, wheels=[wheel])
    statement.unlink()
    with pytest.raises(PublishError, match=f"time: no statement beside {re.escape(wheel.name)} says when"):
        add(REPORT, wheels=[wheel])


@pytest.mark.parametrize(
    ("device", "units"),
    [
        ("AMD Radeon RX 6800 XT", 72),
        ("Radeon RX 6800", 60),
        ("AMD Radeon Graphics", 72),
        ("AMD Radeon(TM) Graphics", 72),
    ],
)
def test_names_that_a_driver_may_give_a_gpu(add, device, units):
    """The last two are for products unknown to the driver."""
    assert add(changed(device=device, compute_units=units)).is_file()


def test_a_wheel_without_its_suite_has_no_reports(add, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(PublishError) as caught:
        add(REPORT, wheels=[stated_wheel(tmp_path / "other", good_files())])
    assert "kernels: the wheel has no calls for gfx1030 in flash_attn_rocm/suite/corpus.json" in str(
        caught.value
    )


def sharing(tmp_path, **archs):
    suite = json.dumps({**SUITE, **archs}).encode()
    (tmp_path / "other").mkdir()
    files = WITH_CALLS | {"flash_attn_rocm/suite/corpus.json": suite}
    return [stated_wheel(tmp_path / "other", files)]


def test_an_arch_can_share_the_calls_of_another_one(add, tmp_path):
    assert add(REPORT, wheels=sharing(tmp_path, gfx1030="gfx908", gfx1102="gfx1100")).is_file()


def test_an_arch_that_shares_calls_can_have_more(add, tmp_path):
    more = {"like": "gfx908", "kernels": {"fa_fwd_tall_fp16_d64": [1, 2]}}
    with pytest.raises(PublishError, match="1 of the wheel's were not run, such as fa_fwd_tall_fp16_d64"):
        add(REPORT, wheels=sharing(tmp_path, gfx1030=more))


def test_an_arch_that_shares_calls_can_lack_kernels(add, tmp_path):
    other = {**SUITE["gfx1030"], "fa_fwd_tall_fp16_d64": [1, 2]}
    lacking = {"like": "gfx908", "kernels": {"fa_fwd_tall_fp16_d64": []}}
    assert add(REPORT, wheels=sharing(tmp_path, gfx908=other, gfx1030=lacking)).is_file()


def test_an_arch_that_shares_what_is_shared_has_no_calls(add, tmp_path):
    with pytest.raises(PublishError, match="the wheel has no calls for gfx1030"):
        add(REPORT, wheels=sharing(tmp_path, gfx1030="gfx908", gfx908="gfx942"))


def test_the_bounds_are_those_of_the_suite():
    assert MOST_LSE == tolerances.LSE_RELATIVE


def test_everything_that_is_wrong_is_named_at_once(add):
    with pytest.raises(PublishError) as caught:
        add(changed(schema=2, complete=False, time="x"))
    assert all(word in caught.value.problems[0] for word in ("schema: ", "complete: ", "time: "))


@pytest.mark.parametrize("name", ["", "nobody", " <>", "a <b>", "a\n <b@c>"])
def test_somebody_has_to_sign_it_off(add, name):
    with pytest.raises(PublishError, match="not taken") as caught:
        add(REPORT, name=name)
    assert "--signed-off-by: expected 'Name <name@host>'" in caught.value.problems[0]


@pytest.mark.parametrize("edit", [lambda text: text.replace("gfx1030", ""), lambda text: text[:-9]])
def test_a_damaged_report_in_the_tree_is_named(add, tmp_path, edit):
    path = add(REPORT)
    path.write_text(edit(path.read_text()))
    with pytest.raises(MatrixError, match="cannot be read") as caught:
        read_reports(tmp_path / "tree")
    assert caught.value.problems[0].startswith(path.name)


def test_the_command(tmp_path, monkeypatch, capsys):
    wheel = stated_wheel(tmp_path)
    (tmp_path / "matrix.yaml").symlink_to(CHECKOUT / "matrix.yaml")
    file = tmp_path / "selftest.json"
    file.write_text(json.dumps(REPORT))
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / MEASURED).parent.mkdir(parents=True)
    words = ["report", "add", str(file), "--wheel", str(wheel), "--signed-off-by", NAME]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "commit them" in said
    assert Path(said.partition(",")[0]).is_file()
    assert (tmp_path / MEASURED).read_text() == "{}\n"
    file.write_text(json.dumps(changed(complete=False)))
    assert main(words) == PublishError.exit_code
    assert "complete: only some" in capsys.readouterr().err


def test_the_reports_of_this_checkout_can_be_read():
    assert isinstance(read_reports(CHECKOUT), tuple)

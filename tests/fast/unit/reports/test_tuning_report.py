"""Tuning reports: taken only if they match a wheel and its candidates."""

import copy
import hashlib
import json
import random
import shutil

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.documents import changed as lie
from tests.tools.made.documents import places
from tests.tools.made.tunings import (
    ARCH,
    KERNEL,
    NAME,
    NOW,
    OTHER,
    REPORT,
    another,
    as_bytes,
    call,
    candidates,
    candidates_wheel,
    ids,
    report,
    times,
    tuned,
    tuned_wheel,
)
from wheel_builder.base.errors import MatrixError, PublishError, SelectionError
from wheel_builder.cli.commands.indexes import report as command
from wheel_builder.cli.main import main
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.matrix.tuned.form import MOST_BINS, MOST_BYTES
from wheel_builder.matrix.tuned.tree import FOLDER, signed_tunings
from wheel_builder.provenance.tuning_report import add_tuning

CATALOGUE = catalogue_of(load_matrix(CHECKOUT / "matrix.yaml"))
SHIPPED, FIRST, SECOND = ids(KERNEL)
TIMED = {"state": "timed", "words": ""}
BIN = call(KERNEL, (5.0, 4.8, 5.5))


@pytest.fixture
def add(tmp_path):
    """Adds a report, a value or its text, to its own tree with one wheel and its candidates."""
    known = (tuned_wheel(tmp_path), candidates_wheel(tmp_path))

    def offer(value, *, name=NAME, wheels=known):
        file = tmp_path / "tuning.json"
        file.write_bytes(value if isinstance(value, bytes) else as_bytes(value))
        return add_tuning(file, wheels, tmp_path / "tree", catalogue=CATALOGUE, signed_off_by=name, now=NOW)

    return offer


def kernel(**values):
    """The report with these values of a kernel."""
    return report(
        kernels={
            **copy.deepcopy(REPORT["kernels"]),
            KERNEL: {**copy.deepcopy(REPORT["kernels"][KERNEL]), **values},
        }
    )


def more(**kernels):
    return report(kernels={**REPORT["kernels"], **kernels})


def bins(*found):
    return kernel(bins=[*found])


def first_bin(**values):
    return bins({**BIN, **values})


def first_times(**values):
    own = {SHIPPED: times(5.0), FIRST: {**times(4.8), **values}, SECOND: times(5.5)}
    return first_bin(times=own)


def test_a_report_is_taken_with_the_rows_of_its_candidates(add, tmp_path):
    path = add(REPORT)
    assert path.parent == tmp_path / "tree" / FOLDER
    [found] = signed_tunings(tmp_path / "tree").values()
    assert json.loads(as_bytes(REPORT))["kernels"].keys() == found.report.kernels.keys()
    assert found.rows[KERNEL][FIRST].changes == "waves = 2"
    assert found.rows[KERNEL][FIRST].settings[0]["waves"] == 2
    assert found.report.kernels[KERNEL].bins[0].times[FIRST].ms == 4.8
    assert found.candidates_wheel.startswith(f"flash_attn_rocm_tuning_{ARCH}-")


def test_a_kernel_that_does_not_fit_into_memory_may_be_missing(add):
    assert add(report(kernels={KERNEL: REPORT["kernels"][KERNEL]})).is_file()


def test_an_interrupted_run_goes_on_and_tells_the_seconds_of_its_end(add):
    assert add(report(seconds=0.01)).is_file()


def test_a_kernel_whose_candidates_all_fail_has_times_of_its_own_rows(add):
    failed = {"state": "failed", "words": "the code does not load"}
    assert add(kernel(candidates={FIRST: failed, SECOND: failed}, bins=[call(KERNEL, (5.0,))])).is_file()


def test_a_candidate_without_times_is_a_result(add):
    state = {FIRST: TIMED, SECOND: {"state": "wrong", "words": "out: error 0.5"}}
    assert add(kernel(candidates=state, bins=[call(KERNEL, (5.0, 4.8))])).is_file()
    assert add(another(kernels={**REPORT["kernels"], OTHER: tuned(OTHER, call(OTHER, (5.0, 4.0, 3.0)))}))


THOUSAND = [call(KERNEL, (5.0, 4.8, 5.5), length=1 + number) for number in range(1000)]
REFUSED = {
    "emulated": (report(how="executed on an ISA emulator"), "how: expected 'run on hardware'"),
    "part": (report(complete=False), "complete: only some kernels or calls were asked for; run tune without"),
    "altered": (report(library_as_installed=False), "library_as_installed: the library is not the one"),
    "other wheel": (report(library_sha256="0" * 64), "no wheel has its library, sha256 000"),
    "other candidates": (report(candidates="0" * 64), "no distribution has its candidates, sha256 000"),
    "no digest": (report(candidates="../../x"), "candidates: expected 64 hexadecimal digits"),
    "format": (report(format=2), "format, report: expected 1, 'tuning'; found 2, 'tuning'"),
    "kind": (report(report="selftest"), "found 1, 'selftest'"),
    "version": (report(package="9.9"), "package: it says 9.9"),
    "machine": (report(machine="my computer"), "machine: expected 16 hexadecimal digits or nothing"),
    "arch": (report(arch="gfx900"), "arch: the wheel has no code for gfx900"),
    "arch a path": (report(arch="../../../etc"), "arch: the wheel has no code for '../../../etc'"),
    "another GPU": (report(device="AMD Radeon RX 6800 XT"), "is gfx1030 by kernels/tables/gpus.toml"),
    "units": (report(compute_units=97), "compute_units: expected 1 to 96"),
    "future": (report(time="2027-01-01T00:00:00+00:00"), "time: expected one in the past"),
    "before the wheel": (report(time="2026-11-18T10:00:00+00:00"), "began before its wheel was there"),
    "control character": (report(device="RX\x1b[2J"), "device: it has U+001B"),
    "hot": (report(clocks={**REPORT["clocks"], "after": {**REPORT["clocks"]["after"], "celsius": 1e300}}),
            "clocks.after.celsius: expected 0 to 100000, found 1e+300"),
    "cold": (report(clocks={**REPORT["clocks"], "after": {**REPORT["clocks"]["after"], "watts": -1.0}}),
             "clocks.after.watts: expected 0 to 100000, found -1"),
    "more keys": (report(verdict="good"), "verdict: "),
    "fewer keys": ({k: v for k, v in REPORT.items() if k != "clocks"}, "clocks: "),
    "no kernels": (report(kernels={}), "kernels: expected 1 to 128, found 0"),
    "many kernels": (report(kernels={f"fa_fwd_fp16_d{n + 10}": tuned(KERNEL) for n in range(129)}),
                     "kernels: expected 1 to 128, found 129"),
    "strange kernel": (more(**{"<b>": tuned(KERNEL)}), "it is no name of a kernel"),
    "unknown kernel": (more(fa_fwd_fp16_d32=tuned(KERNEL, {**BIN, "head_dim": 32})),
                       "kernels.fa_fwd_fp16_d32: it has no candidates"),
    "no such op": (more(fa_x_fp16_d64=tuned(KERNEL)), "no name of a kernel"),
    "other rows": (kernel(shipped="00000000", winner=FIRST, bins=[
        {**BIN, "times": {"00000000": times(5.0), FIRST: times(4.8), SECOND: times(5.5)}}]),
        f"kernels.{KERNEL}: its row in the wheel is not 00000000"),
    "unknown rows": (kernel(candidates={"00000000": {"state": "wrong", "words": "no"}}, bins=[]),
                     "candidates: none has the rows 00000000"),
    "untried rows": (kernel(candidates={FIRST: TIMED}, bins=[call(KERNEL, (5.0, 4.8))]),
                     f"candidates: {SECOND} were not tried"),
    "rows a path": (kernel(candidates={"../../etc": {"state": "wrong", "words": "no"}}, bins=[]),
                    "candidates.'../../etc': expected the id of rows"),
    "no rows": (kernel(candidates={}), "candidates: expected 1 to 16, found 0"),
    "many rows": (kernel(candidates={f"{n:08x}": TIMED for n in range(17)}),
                  "candidates: expected 1 to 16, found 17"),
    "state": (kernel(candidates={FIRST: {"state": "best", "words": ""}}), "Input should be 'timed', 'wrong'"),
    "words": (kernel(candidates={FIRST: {"state": "timed", "words": "good"}}), "words: expected some of"),
    "no words": (kernel(candidates={FIRST: {"state": "wrong", "words": ""}}), "words: expected some of"),
    "long words": (kernel(candidates={FIRST: {"state": "wrong", "words": "x" * 301}}), "at most 300 charact"),
    "winner": (kernel(winner="00000000"), "winner: expected the id of shipped rows or of a timed candidate"),
    "a thousand bins": (kernel(bins=THOUSAND), f"bins: expected 1 to {MOST_BINS}, found 1000"),
    "no bins": (kernel(bins=[]), f"bins: expected 1 to {MOST_BINS}, found 0"),
    "a bin twice": (bins(*[BIN] * 2), "bins: expected every call once"),
    "another kernel's": (first_bin(dtype="bf16"), "bins.0: it is no call of this kernel"),
    "a decode": (first_bin(kind="decode"), "bins.0: it is no call of this kernel"),
    "unknown kind": (first_bin(kind="training"), "Input should be 'forward', 'backward' or 'decode'"),
    "length": (first_bin(length=0), "bins.0: length: expected 1 to 1048576, found 0"),
    "long": (first_bin(length=10**30), "bins.0: length: expected 1 to 1048576, found 1e+30"),
    "width": (first_bin(width=3), "bins.0: width: 16 heads cannot share keys by 3"),
    "rows without times": (first_bin(times={SHIPPED: times(5.0)}), "times: expected those of the shipped"),
    "times of others": (first_bin(times={**BIN["times"], "00000000": times(1.0)}),
                        "times: expected those of the shipped"),
    "negative": (first_times(ms=-1.0), f"times.{FIRST}: expected 1e-06 <= least <= ms <= most"),
    "zero": (first_times(ms=0.0, least=0.0), f"times.{FIRST}: expected 1e-06 <= least <= ms <= most"),
    # Of a kernel with masks no peak bounds a time. Over a day it was no float, and ended `report merge`.
    "subnormal": (first_times(ms=1e-320, least=1e-320), f"times.{FIRST}: expected 1e-06 <= least"),
    "huge": (first_times(most=1e300), f"times.{FIRST}: expected 1e-06 <= least <= ms <= most <= 8.64e+07"),
    "a huge integer": (first_times(most=10**400), f"times.{FIRST}"),
    "least": (first_times(least=4.9), f"times.{FIRST}: expected 1e-06 <= least <= ms <= most"),
    "runs": (first_times(runs=0), f"times.{FIRST}.runs: expected 1 to 1000, found 0"),
    "many runs": (first_times(runs=10**9), f"times.{FIRST}.runs: expected 1 to 1000"),
    "a text": (first_times(ms="4.8"), f"times.{FIRST}.ms: Input should be a valid number"),
    "a truth": (first_times(runs=True), f"times.{FIRST}.runs: Input should be a valid integer"),
    "sdpa": (first_bin(sdpa_ms=-9.5), "sdpa_ms: expected 1e-06 to 8.64e+07, found -9.5"),
    "bin's winner": (first_bin(winner=SECOND), "winner: expected the row with the least median"),
    "faster than its peak": (bins(call(KERNEL, (0.05, 0.048, 0.055))), "is faster than 96 compute units"),
    "negative seconds": (report(seconds=-40.5), "seconds: expected more than 0"),
    "NaN": (json.dumps(first_times(ms=float("nan"))).encode(), "NaN is not a number"),
    "infinite": (as_bytes(REPORT).replace(b"40.5", b"1e999"), "1e999 is not a number"),
    "twice": (as_bytes(REPORT).replace(b'"format": 1,', b'"format": 1, "format": 1,'), "is in it twice"),
    "deep": (b"[" * 100_000, "its values are nested too deeply"),
    "text": (b"all is well", "not JSON"),
    "list": (b"[]", "Input should be"),
    "large": (b" " * (MOST_BYTES + 1), "the limit is 4194304"),
}  # fmt: skip


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_in_words_and_nothing_is_written(add, tmp_path, value, words):
    with pytest.raises(PublishError, match="the tuning report was not taken") as caught:
        add(value)
    assert words in "\n".join(caught.value.problems)
    assert len(str(caught.value)) < 20_000
    assert not (tmp_path / "tree").exists()


def test_everything_that_is_wrong_is_named_at_once(add):
    with pytest.raises(PublishError) as caught:
        add(report(complete=False, machine="x", time="y", kernels=first_times(runs=0)["kernels"]))
    assert all(f"{word}: " in caught.value.problems[0] for word in ("complete", "machine", "time", "runs"))
    with pytest.raises(PublishError) as caught:
        add(report(package="9.9", device="AMD Radeon RX 6800 XT", torch="2.1.0"))
    assert len(caught.value.problems) == 3


def test_a_flood_of_problems_is_cut(add):
    strange = {f"x{number}": {} for number in range(5000)}
    with pytest.raises(PublishError, match=r"\d+ more problems"):
        add(report(kernels=strange))


def test_candidates_of_another_wheel_or_arch_are_refused(add, tmp_path):
    for value, words in (
        (candidates(libraries=("1" * 64,)), "not for this wheel's library"),
        (
            candidates(arch="gfx1030"),
            "candidates: they are for gfx1030, and gfx1100 runs the code of gfx1100",
        ),
    ):
        (tmp_path / words[:4]).mkdir()
        wheels = (tuned_wheel(tmp_path), candidates_wheel(tmp_path / words[:4], value))
        digest = hashlib.sha256(as_bytes(value)).hexdigest()
        with pytest.raises(PublishError) as caught:
            add(report(candidates=digest), wheels=wheels)
        assert words in "\n".join(caught.value.problems)


def test_a_machine_counts_once_for_the_same_candidates(add):
    first = add(REPORT)
    again = another(machine=REPORT["machine"])
    with pytest.raises(
        PublishError, match=f"of this machine and these candidates is in the tree already: {first.name}"
    ):
        add(again)
    assert add(another()).is_file()


def test_gpus_without_a_number_count_as_one_by_name(add):
    add(report(machine=""))
    with pytest.raises(PublishError, match="of this machine and these candidates"):
        add(another(machine=""))
    assert add(another(machine="", scale=1.02, device="AMD Radeon RX 7900 XT", compute_units=84)).is_file()


def test_a_run_under_another_machines_name_is_refused(add):
    """Also with some numbers changed: two machines never agree on most medians."""
    first = add(REPORT)
    copied = report(machine="f" * 16, time="2026-11-21T10:00:00+00:00")
    copied["kernels"][KERNEL]["bins"][0]["times"][FIRST] = times(4.7)
    with pytest.raises(
        PublishError, match=f"its run is in the tree already, as another machine's: {first.name}"
    ):
        add(copied)


@pytest.mark.parametrize("name", ["", "nobody", "a\n <b@c>"])
def test_somebody_has_to_sign_it_off(add, tmp_path, name):
    with pytest.raises(PublishError, match="--signed-off-by: expected 'Name <name@host>'"):
        add(REPORT, name=name)
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"waves":2', '"waves":3'),
        ("A Maintainer", ""),
        (f'"{ARCH}"', '"gfx1030"'),
        ('"runs": 12', '"runs": 0'),
    ],
)
def test_a_damaged_report_in_the_tree_is_named(add, tmp_path, old, new):
    path = add(REPORT)
    text = json.dumps(json.loads(path.read_text()))
    changed = text.replace(old, new) if old in text else text.replace(old.replace(":", ": "), new)
    assert changed != text
    path.write_text(changed)
    with pytest.raises(MatrixError, match="tuning reports cannot be read") as caught:
        signed_tunings(tmp_path / "tree")
    assert caught.value.problems[0].startswith(path.name)


VALUES = (
    None, True, False, -1, 0, 1, 64, 1e-9, 0.5, 1e308, 10**40, "", "x", "gfx1030", "wrong", "\x1b[2J", [], {},
    ["x"], {"a": 1}, "0" * 64, "00000000",
)  # fmt: skip
# Values of a run outside of the wheel and the tables.
FREE = {
    *("driver", "os", "time", "seconds", "machine", "ms", "least", "most", "runs", "sdpa_ms", "winner"),
    *("gpu_mhz", "memory_mhz", "watts", "celsius", "length", "causal", "width", "mask", "batch", "heads"),
}


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_report_is_refused_or_changes_what_a_machine_measures(add, tmp_path, seed):
    rng, taken = random.Random(seed), []
    for _ in range(150):
        place = rng.choice([place for place in places(REPORT) if place])
        mutant = lie(REPORT, place, rng.choice(VALUES))
        try:
            add(mutant)
        except PublishError:
            assert not (tmp_path / "tree").exists()
            continue
        shutil.rmtree(tmp_path / "tree")
        if mutant != REPORT:
            taken.append(place[-1])
    assert {*taken} <= FREE


def test_the_command(tmp_path, monkeypatch, capsys):
    wheels = [tuned_wheel(tmp_path), candidates_wheel(tmp_path)]
    (tmp_path / "matrix.yaml").symlink_to(CHECKOUT / "matrix.yaml")
    file = tmp_path / "tuning.json"
    file.write_text(json.dumps(REPORT))
    monkeypatch.setattr(command, "ROOT", tmp_path)
    words = ["report", "add", str(file), *(f"--wheel={wheel}" for wheel in wheels), "--signed-off-by", NAME]
    assert main(words) == 0
    assert "commit it" in capsys.readouterr().out
    assert len(signed_tunings(tmp_path)) == 1
    assert main(words) == PublishError.exit_code
    assert "is in the tree already" in capsys.readouterr().err
    assert main(["report", "add"]) == SelectionError.exit_code


def test_the_reports_of_this_checkout_can_be_read():
    assert isinstance(signed_tunings(CHECKOUT), dict)

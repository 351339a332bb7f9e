"""The distribution of candidates: which ones, and a reproducible wheel of data that report add can read."""

import hashlib
import io
import zipfile
from dataclasses import replace

import pytest

from tests.tools.made.tunings import NOW, REPORT, as_bytes
from wheel_builder.base.errors import TuneError
from wheel_builder.extras.timings import distribute
from wheel_builder.extras.timings.distribution import MOST, Chosen, For, OfKernel, wheel_of, worth_timing
from wheel_builder.extras.tune.measuring import Figures
from wheel_builder.extras.tune.proposal import Outcome, Search
from wheel_builder.extras.tune.rows import NONE, Change, Kernel, changed, joined, rows_of
from wheel_builder.files.device.compressed import expand
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.matrix.tuned.candidates import MOST_BYTES, parse_candidates
from wheel_builder.matrix.tuned.form import parse_tuning
from wheel_builder.provenance.tuning_report import candidates_of
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import Workgroup, known_tiles

KERNEL = Kernel("gfx1100", "fwd", "fp16", 64)
ROWS = rows_of(known_tiles(), arch_named("gfx1100"), KERNEL)
LINES = {"fwd, schedule, measured": 100.0, "launch 4096 x 24": 10.0}
FIRST, SECOND, BEHIND, TWIN, REFUSED = (
    joined([Change("prefetch", value)]) for value in (ROWS.plain.prefetch + n for n in range(1, 6))
)
WHEEL = For("0.1.0+rocm7.2", ("1" * 64,))


def made(schedule, launch, **values):
    lines = dict(zip(LINES, (schedule, launch), strict=True))
    return Outcome(figures=Figures(lines, vgpr=84, lds_bytes=8192, code_bytes=100, resident=3), **values)


OUTCOMES = {
    NONE: made(100, 10),
    FIRST: made(130, 9),  # better here, worse there: a GPU decides
    SECOND: made(90, 12),
    BEHIND: made(80, 8),
    TWIN: made(100, 10, twin="00000000"),
    REFUSED: Outcome(refused="vgpr_spill_count = 14"),
}


def search(**outcomes):
    found = OUTCOMES | {{"first": FIRST, "second": SECOND}[name]: each for name, each in outcomes.items()}
    return Search(KERNEL, ROWS, found, "clang 22", "0123", "done")


def chosen(changes, code):
    rows = changed(ROWS, changes)
    return rows.id_of(KERNEL), Chosen(changes, rows, Workgroup(64, 128), OUTCOMES[FIRST].figures, code)


def distributed():
    found = dict([chosen(FIRST, b"one" * 100), chosen(SECOND, b"two" * 100)])
    return wheel_of("gfx1100", WHEEL, {KERNEL: OfKernel(ROWS.id_of(KERNEL), found)}, 1_700_000_000)


def test_what_no_row_dominates_is_worth_timing():
    """Today's row, one it dominates, one with the same code and a refused one are not."""
    assert worth_timing(search()) == [FIRST, SECOND]
    assert worth_timing(search(first=replace(OUTCOMES[FIRST], wrong="out: error 0.5"))) == [SECOND]


def test_the_wheel_is_data_that_report_add_reads(tmp_path):
    name, data = distributed()
    assert name == "flash_attn_rocm_tuning_gfx1100-0.1.0+rocm7.2-py3-none-any.whl"
    (tmp_path / name).write_bytes(data)
    wheel = read_wheel(tmp_path / name, max_mib=1)
    listed = wheel.files["flash_attn_rocm_tuning_gfx1100/candidates.json"]
    digest = hashlib.sha256(listed).hexdigest()
    report = parse_tuning(as_bytes({**REPORT, "candidates": digest}), NOW)
    assert candidates_of(report, [tmp_path / name]) == (name, parse_candidates(listed))
    found = parse_candidates(listed).kernels["fa_fwd_fp16_d64"]
    assert found.shipped == ROWS.id_of(KERNEL)
    assert [each.changes for each in found.candidates.values()] == [
        f"prefetch = {ROWS.plain.prefetch + 1}", f"prefetch = {ROWS.plain.prefetch + 2}",
    ]  # fmt: skip
    bundle = wheel.files["flash_attn_rocm_tuning_gfx1100/fa_fwd_fp16_d64.hipfb"]
    assert found.code.sha256 == hashlib.sha256(bundle).hexdigest()
    codes = {hashlib.sha256(code).hexdigest(): code for code in (b"one" * 100, b"two" * 100)}
    content = expand(bundle)
    places = [content.index(codes[found.candidates[row].sha256]) for row in sorted(found.candidates)]
    assert places == sorted(places)


def test_equal_candidates_give_equal_bytes():
    assert distributed() == distributed()
    with zipfile.ZipFile(io.BytesIO(distributed()[1])) as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {2023}
        requires = archive.read("flash_attn_rocm_tuning_gfx1100-0.1.0+rocm7.2.dist-info/METADATA")
    assert b"Requires-Dist: flash-attn-rocm==0.1.0+rocm7.2\n" in requires


def test_candidates_of_a_proposal_are_those_worth_another_look():
    verdicts = ("today's", "proposed", "better", "worse under 'fwd'", "dominated by 1234", "refused: x")
    proposal = {
        "today": "0123abcd",
        "candidates": [
            {"verdict": verdict, "changes": f"prefetch = {number}"} for number, verdict in enumerate(verdicts)
        ],
    }
    assert distribute.candidates_in(KERNEL, "0123abcd", proposal) == [
        (Change("prefetch", number),) for number in (1, 2, 3)
    ]


def test_a_proposal_about_older_rows_is_refused():
    with pytest.raises(
        TuneError, match="fa_fwd_fp16_d64 of gfx1100 changes other rows than today's"
    ) as caught:
        distribute.candidates_in(KERNEL, "0123abcd", {"today": "00000000", "candidates": []})
    assert "expected 0123abcd, found 00000000" in str(caught.value)


@pytest.fixture
def tuning(monkeypatch):
    """A search whose compiler and emulator are replaced: ``wrong`` and ``unsafe`` by changes."""

    class Tuning:
        kernel, rows, outcomes = KERNEL, ROWS, {}
        wrong, unsafe = {}, {}

        def search(self, _ended):
            return Search(KERNEL, ROWS, self.outcomes, "", "", "")

    found = Tuning()
    found.outcomes, found.wrong, found.unsafe = {}, {}, {}

    def execute(tuning, changes):
        tuning.outcomes[changes] = replace(tuning.outcomes[changes], wrong=found.wrong.get(changes, ""))
        return str(changes).encode()

    def attempt(tuning, batch):
        for changes in batch:
            number = len(tuning.outcomes) if changes != NONE else 0
            tuning.outcomes.setdefault(changes, made(100 + number, 10 - number / 100))

    monkeypatch.setattr(distribute, "execute", execute)
    monkeypatch.setattr(distribute, "attempt", attempt)
    monkeypatch.setattr(
        distribute,
        "unsafe",
        lambda _, code: {str(k).encode(): v for k, v in found.unsafe.items()}.get(code, ""),
    )
    return found


def test_only_candidates_with_right_results_and_safe_code_are_in(tuning):
    tuning.wrong, tuning.unsafe = {FIRST: "out: error 0.5"}, {SECOND: "a wait is missing"}
    said = []
    found = distribute.choose(tuning, distribute.Named([], [FIRST, SECOND, BEHIND]), said.append)
    assert [each.changes for each in found.values()] == [BEHIND]
    assert sorted(words.rpartition("left out: ")[2] for words in said) == [
        "a wait is missing", "out: error 0.5",
    ]  # fmt: skip


def test_a_kernel_has_at_most_eight(tuning):
    named = [joined([Change("prefetch", number)]) for number in range(20, 30)]
    assert len(distribute.choose(tuning, distribute.Named([], named), print)) == MOST


def test_what_the_repository_names_is_in_even_if_a_model_finds_it_worse(tuning, monkeypatch):
    monkeypatch.setattr(distribute, "worth_timing", lambda _: [FIRST])
    found = distribute.choose(tuning, distribute.Named([BEHIND], [FIRST]), print)
    assert [each.changes for each in found.values()] == [BEHIND, FIRST]


def test_wheels_of_two_versions_have_no_candidates_in_common():
    class Wheel:
        def __init__(self, version):
            self.version = version

    with pytest.raises(TuneError, match="candidates belong to one version") as caught:
        distribute.owner_of([Wheel("0.1.0"), Wheel("0.2.0")])
    assert "found 0.1.0, 0.2.0" in str(caught.value)


def test_a_list_of_too_many_bytes_is_not_read():
    with pytest.raises(ValueError, match=f"candidates.json has {MOST_BYTES + 1} bytes, expected at most"):
        parse_candidates(b" " * (MOST_BYTES + 1))

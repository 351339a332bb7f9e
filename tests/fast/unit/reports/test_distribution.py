"""The distribution of candidates: which ones, and a reproducible wheel of data that report add can read."""

import hashlib
import io
import zipfile

import pytest

from tests.tools.made.tunings import NOW, REPORT, as_bytes
from wheel_builder.base.errors import TuneError
from wheel_builder.extras.timings import distribute
from wheel_builder.extras.timings.distribution import Chosen, For, OfKernel, wheel_of
from wheel_builder.extras.timings.wanted import OfKernel as Listed
from wheel_builder.extras.timings.wanted import Wanted, file_of, to_text
from wheel_builder.extras.tune import run
from wheel_builder.extras.tune.compiling import Compiled
from wheel_builder.extras.tune.rows import NONE, Change, Kernel, changed, joined, rows_of
from wheel_builder.files.device.compressed import expand
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.machine_code.disassembly.resources import Resources
from wheel_builder.matrix.tuned.candidates import MOST_BYTES, parse_candidates
from wheel_builder.matrix.tuned.form import parse_tuning
from wheel_builder.provenance.tuning_report import candidates_of
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import Workgroup, known_tiles

KERNEL = Kernel("gfx1100", "fwd", "fp16", 64)
ROWS = rows_of(known_tiles(), arch_named("gfx1100"), KERNEL)
TAKEN = Resources(84, 0, 40, 0, 0, 0, 8192, 128, 128, 64, workgroup_processor=False, code_bytes=100)
FIRST, SECOND, BEHIND, TWIN = (
    joined([Change("prefetch", value)]) for value in (ROWS.plain.prefetch + n for n in range(1, 5))
)
TODAY = hashlib.sha256(ROWS.id_of(KERNEL).encode()).hexdigest()  # of the stand-in's code
WHEEL = For("0.1.0+rocm7.2", ("1" * 64,))


def chosen(changes, code):
    rows = changed(ROWS, changes)
    return rows.id_of(KERNEL), Chosen(changes, rows, Workgroup(64, 128), TAKEN, code)


def distributed():
    found = dict([chosen(FIRST, b"one" * 100), chosen(SECOND, b"two" * 100)])
    return wheel_of("gfx1100", WHEEL, {KERNEL: OfKernel(ROWS.id_of(KERNEL), found)}, 1_700_000_000)


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


@pytest.fixture
def tuning(monkeypatch):
    """What compilers and emulator are replaced by. ``refused`` and ``wrong``: words by changes."""

    class Replaced:
        kernel, rows, compilers, results = KERNEL, ROWS, None, None
        refused, wrong = {}, {}

        def id_of(self, changes):
            return changed(ROWS, changes).id_of(KERNEL)

    found = Replaced()
    found.refused, found.wrong = {}, {}

    def compile_all(_kernel, candidates, _by):
        refused = {found.id_of(each): words for each, words in found.refused.items()}
        ids = [rows.id_of(KERNEL) for rows in candidates]
        return tuple(
            Compiled(words=refused[row]) if row in refused else Compiled(row.encode()) for row in ids
        )

    def executed(subject, _kernel, tile, step, _results):
        assert (tile, step) == (run.workgroup(KERNEL, ROWS), ROWS.plain.keys)
        return {found.id_of(each): words for each, words in found.wrong.items()}.get(subject, "")

    monkeypatch.setattr(distribute, "compile_all", compile_all)
    monkeypatch.setattr(
        distribute, "loaded", lambda _, made: {each.code: each.code.decode() for each in made}
    )
    monkeypatch.setattr(distribute, "executed", executed)
    monkeypatch.setattr(distribute, "read_resources", lambda *_, **__: {KERNEL.name: TAKEN})
    return found


def chosen_of(tuning, *wanted, own=frozenset()):
    """The changes that are in, and words about the others."""
    said = []
    found = distribute.choose(tuning, wanted, {TODAY, *own}, said.append)
    assert {*found} == {tuning.id_of(each.changes) for each in found.values()}
    return [each.changes for each in found.values()], [words.rpartition("left out: ")[2] for words in said]


def test_only_candidates_that_compile_and_are_right_are_in(tuning):
    tuning.wrong = {FIRST: "out: error 0.5"}
    tuning.refused = {SECOND: "kernel.hpp:3:7: error: no room", TWIN: "kernel.hpp:3:7: error: no room"}
    found = chosen_of(tuning, FIRST, SECOND, BEHIND, TWIN)
    assert found == ([BEHIND], ["out: error 0.5", "no room", "no room"])


def test_todays_rows_have_to_give_code_of_the_wheel(tuning):
    """Else other sources or another compiler made the wheel: its library may pass other arguments."""
    with pytest.raises(TuneError, match="the wheel has other code of fa_fwd_fp16_d64 than this") as caught:
        distribute.choose(tuning, [FIRST], {"1" * 64}, print)
    expected = f"expected one of its code objects from today's rows {ROWS.id_of(KERNEL)}"
    assert caught.value.problems == (f"{expected}, found {TODAY}",)
    assert "verify-provenance WHEEL` names it" in str(caught.value)


def test_todays_rows_that_do_not_compile_give_none(tuning):
    tuning.refused = {NONE: "kernel.hpp:3:7: error: no room"}
    with pytest.raises(TuneError, match="found no room"):
        distribute.choose(tuning, [FIRST], {"1" * 64}, print)


def test_code_of_the_wheel_is_no_candidate(tuning):
    own = {hashlib.sha256(tuning.id_of(FIRST).encode()).hexdigest()}
    assert chosen_of(tuning, FIRST, SECOND, own=own) == ([SECOND], ["the same code as other rows"])


def repository(folder, today, *changes):
    file = folder / file_of("gfx1100")
    file.parent.mkdir(parents=True)
    candidates = tuple(Wanted(each, "modelled 1.020") for each in changes)
    file.write_text(to_text("gfx1100", {KERNEL.name: Listed(today, candidates)}))
    return folder


def test_candidates_of_the_repository_are_built(tmp_path):
    root = repository(tmp_path, ROWS.id_of(KERNEL), "prefetch = 8", "prefetch = 9")
    found = distribute.current_for("gfx1100", root, print)
    assert found == {KERNEL: [(Change("prefetch", 8),), (Change("prefetch", 9),)]}


@pytest.mark.parametrize(("today", "changes"), [("00000000", ["prefetch = 9"]), (None, [])])
def test_candidates_of_older_rows_are_left_out_and_none_are_no_distribution(today, changes, tmp_path):
    said = []
    root = repository(tmp_path, today or ROWS.id_of(KERNEL), *changes)
    with pytest.raises(TuneError, match="there are no candidates to distribute") as caught:
        distribute.current_for("gfx1100", root, said.append)
    assert "candidates/gfx1100.toml has none for today's rows of gfx1100" in str(caught.value)
    assert caught.value.advice == "scripts/wheel-builder candidates --arch gfx1100 proposes some"
    left_out = "fa_fwd_fp16_d64: left out: its candidates change older rows than today's"
    assert [words.partition(";")[0] for words in said] == [left_out] * bool(changes)


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

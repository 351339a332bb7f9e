"""A search with stand-ins for compilers, models and emulator: batches, budget, interruption, execution."""

import tomllib
from types import SimpleNamespace

import pytest

from wheel_builder.base.errors import PerfError, TuneError
from wheel_builder.extras.tune import run, space
from wheel_builder.extras.tune.compiling import Compiled
from wheel_builder.extras.tune.measuring import Figures
from wheel_builder.extras.tune.rows import NONE, Change, Kernel, joined, rows_of
from wheel_builder.extras.tune.run import Tuning, Wishes, kernel_named, propose, reason_of, workgroup
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import Workgroup, known_tiles, workgroup_of

KERNEL = Kernel("gfx908", "fwd", "fp16", 64)
ROWS = rows_of(known_tiles(), arch_named("gfx908"), KERNEL)
BEST, SECOND = (joined([Change("prefetch", n)]) for n in (1, 2))
SPEED = {BEST: 1.3, SECOND: 1.2}


class Machinery:
    """Code is the row's id. ``refused`` candidates do not compile, ``wrong`` ones compute nonsense."""

    def __init__(self, monkeypatch):
        self.compiled, self.executed = [], []
        self.refused, self.wrong, self.stop_at = set(), set(), None
        self.speed = {run.changed(ROWS, changes).id_of(KERNEL): each for changes, each in SPEED.items()}
        monkeypatch.setattr(run, "compile_all", self.compile_all)
        monkeypatch.setattr(run, "subjects", lambda objects, _: [each.data.decode() for each in objects])
        monkeypatch.setattr(run, "figures_of", self.figures_of)
        monkeypatch.setattr(run, "executed", self.execute)

    def compile_all(self, kernel, rows, _by):
        ids = [each.id_of(kernel) for each in rows]
        self.compiled.append(ids)
        if len(self.compiled) == self.stop_at:
            raise KeyboardInterrupt
        return tuple(
            Compiled(words="kernel.hpp:3:7: error: no room")
            if each in self.refused
            else Compiled(each.encode())
            for each in ids
        )

    def figures_of(self, subject, _kernel, tile, _results):
        assert tile in {Workgroup(waves * step, waves * 64) for step in (32, 16) for waves in (1, 2, 4, 8)}
        return Figures({"fwd, schedule": 100 * self.speed.get(subject, 1.0)})

    def execute(self, subject, *_):
        self.executed.append(subject)
        return "out[0] is nan" if subject in self.wrong else ""


def id_of(changes):
    return run.changed(ROWS, changes).id_of(KERNEL)


@pytest.fixture
def machinery(monkeypatch):
    monkeypatch.setattr(space, "MOST_CHANGES", 1)
    return Machinery(monkeypatch)


@pytest.fixture
def tuned(machinery, tmp_path):
    """Runs a search. Returns the proposal and the lines of progress."""

    def search(minutes=1.0, **wishes):
        compilers = SimpleNamespace(image=SimpleNamespace(facts={"image_id": "clang"}))
        results = SimpleNamespace(models="0123")
        tuning = Tuning(KERNEL, ROWS, compilers, None, results, Wishes(minutes, **wishes))
        said = []
        try:
            propose(tuning, tmp_path, said.append)
        finally:
            file = tmp_path / "gfx908-fa_fwd_fp16_d64.toml"
            search.proposal = tomllib.loads(file.read_text()) if file.exists() else None
            search.said = said
        return search.proposal

    return search


def test_the_whole_neighbourhood_is_searched_in_batches(tuned, machinery):
    found = tuned()
    assert found["ended"] == "the neighbourhood is done"
    assert [len(each) for each in machinery.compiled[:-2]] == [run.BATCH] * (len(machinery.compiled) - 2)
    assert machinery.compiled[0][0] == found["today"]


def test_the_best_candidate_is_executed_and_proposed(tuned, machinery):
    found = tuned()
    assert found["proposed"] == id_of(BEST)
    assert machinery.executed == [id_of(BEST)]


def test_a_candidate_with_wrong_results_is_passed_over(tuned, machinery):
    machinery.wrong = {id_of(BEST)}
    found = tuned()
    assert machinery.executed == [id_of(BEST), id_of(SECOND)]
    assert found["proposed"] == id_of(SECOND)
    verdicts = {each["row"]: each["verdict"] for each in found["candidates"]}
    assert verdicts[id_of(BEST)] == "wrong results: out[0] is nan"


def test_a_refused_candidate_has_the_compilers_error(tuned, machinery):
    machinery.refused = {id_of(BEST)}
    found = tuned()
    assert found["proposed"] == id_of(SECOND)
    verdicts = {each["row"]: each["verdict"] for each in found["candidates"]}
    assert verdicts[id_of(BEST)] == "refused: no room"


def test_nothing_better_proposes_todays_rows(tuned, machinery):
    machinery.speed = {}
    found = tuned()
    assert found["proposed"] == found["today"]
    assert machinery.executed == []


def test_a_spent_budget_ends_after_the_batch_with_todays_rows(tuned, machinery):
    found = tuned(minutes=0)
    assert found["ended"] == "the budget is spent"
    assert len(found["candidates"]) == run.BATCH
    assert machinery.compiled[0][0] == found["today"]


def test_a_search_ends_after_as_many_candidates(tuned):
    found = tuned(most=run.BATCH + 1)
    assert found["ended"] == "as many candidates as asked for"
    assert len(found["candidates"]) == 2 * run.BATCH


def test_a_candidate_that_is_asked_for_is_tried_first_and_the_only_one_proposed(tuned, machinery):
    found = tuned(asked=SECOND)
    assert machinery.compiled[0] == [id_of(NONE), id_of(SECOND)]
    assert machinery.executed == [id_of(SECOND)]
    assert found["proposed"] == id_of(SECOND)


def test_an_asked_candidate_with_wrong_results_leaves_todays_rows(tuned, machinery):
    machinery.wrong = {id_of(SECOND)}
    found = tuned(asked=SECOND)
    assert found["proposed"] == found["today"]


def test_an_interrupted_search_writes_what_it_found(tuned, machinery):
    machinery.stop_at = 2
    with pytest.raises(KeyboardInterrupt):
        tuned()
    assert tuned.proposal["ended"] == "interrupted"
    assert len(tuned.proposal["candidates"]) == run.BATCH
    assert tuned.proposal["proposed"] == tuned.proposal["today"]


def test_interrupted_before_todays_rows_there_is_no_proposal(tuned, machinery):
    machinery.stop_at = 1
    with pytest.raises(KeyboardInterrupt):
        tuned()
    assert tuned.proposal is None


def test_todays_rows_have_to_compile(tuned, machinery):
    machinery.refused = {id_of(NONE)}
    with pytest.raises(
        TuneError, match="today's rows of fa_fwd_fp16_d64 cannot be modelled for gfx908"
    ) as caught:
        tuned()
    assert caught.value.problems == ("no room",)


def test_progress_is_a_line_for_each_batch(tuned, machinery):
    tuned()
    batches = [each for each in tuned.said if "min left" in each]
    assert len(batches) == len(machinery.compiled) - 1
    assert "best +30.0%: prefetch = 1" in batches[-1]
    assert all(each.startswith("[--------------------] ") for each in batches)


def test_the_bar_has_the_spent_part_of_the_budget(tuned):
    tuned(minutes=0.0)
    assert tuned.said[0].startswith("[####################] 8 candidates, ")
    tuned(most=16)
    assert tuned.said[0].startswith("[##########----------] 8 candidates, ")
    assert tuned.said[1].startswith("[####################] 16 candidates, ")


def test_rows_that_make_the_same_code_are_twins(tuned, machinery, monkeypatch):
    monkeypatch.setattr(run, "compile_all", lambda _kernel, rows, _by: (Compiled(b"same"),) * len(rows))
    found = tuned()
    verdicts = {each["verdict"] for each in found["candidates"]}
    assert verdicts == {"today's", f"the same code as {found['today']}"}


def test_a_kernel_that_the_models_refuse_is_a_refused_candidate(tuned, machinery, monkeypatch):
    def figures_of(subject, *_):
        if subject == id_of(BEST):
            return Figures({}, problem="it did not run to its end")
        return Figures({"fwd, schedule": 100.0})

    monkeypatch.setattr(run, "figures_of", figures_of)
    verdicts = {each["row"]: each["verdict"] for each in tuned()["candidates"]}
    assert verdicts[id_of(BEST)] == "refused: it did not run to its end"


def test_names_of_kernels():
    assert kernel_named("gfx908", "fa_fwd_bf16_d32") == Kernel("gfx908", "fwd", "bf16", 32)
    assert kernel_named("gfx942", "fa_fwd_tall_fp16_d128").op == "fwd_tall"
    assert kernel_named("gfx908", "fa_fwd_masked_bf16_d64").op == "fwd_masked"
    assert kernel_named("gfx908", "fa_bwd_dkdv_masked_fp16_d64").op == "bwd_dkdv_masked"
    assert kernel_named("gfx908", "fa_decode_8bit_fp16_d64").op == "decode_8bit"
    for name in ("fa_bwd_delta_fp16_d64", "fwd", ""):
        with pytest.raises(TuneError, match="expected the name of a forward or of a backward's kernel"):
            kernel_named("gfx908", name)
    for name in ("fa_mla_fp16_d576", "fa_fwd_fp8_bf16_d128"):
        with pytest.raises(TuneError, match="tune` times none of its calls"):
            kernel_named("gfx908", name)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("a does not compile:\n  | a.hpp:1:2: error: no tile\n  | more", "no tile"),
        ("fa_fwd may not spill, but has 14; lower", "fa_fwd may not spill, but has 14; lower"),
        ("", "no words"),
    ],
)
def test_the_reason_in_a_compilers_words(words, reason):
    assert reason_of(words) == reason


@pytest.mark.parametrize(
    ("arch", "op", "head_dim"),
    [
        ("gfx908", "fwd", 64),
        ("gfx908", "fwd_wide", 512),
        ("gfx942", "fwd_tall", 128),
        ("gfx908", "fwd_masked", 64),
        ("gfx908", "decode", 64),
        ("gfx1100", "decode", 128),
        ("gfx908", "decode_8bit", 64),
        ("gfx942", "decode_8bit", 64),
        ("gfx908", "bwd_dkdv", 32),
        ("gfx1201", "bwd_fused", 64),
        ("gfx908", "bwd_dq", 64),
    ],
)
def test_a_candidates_workgroup_is_the_hosts(arch, op, head_dim):
    kernel = Kernel(arch, op, "fp16", head_dim)
    rows = rows_of(known_tiles(), arch_named(arch), kernel)
    assert workgroup(kernel, rows) == workgroup_of(arch_named(arch), op, "fp16", head_dim)


def test_errors_of_models_are_reported_with_their_problems():
    """figures_of keeps a PerfError's message: title and problems."""
    assert "waves" in PerfError("a workgroup does not fit", ["16 waves with 128 VGPRs"]).message

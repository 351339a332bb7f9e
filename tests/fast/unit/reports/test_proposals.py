"""Candidates of all kernels of an arch, with stand-ins for compilers, models and emulator."""

from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import TuneError
from wheel_builder.extras.timings import proposals
from wheel_builder.extras.timings.distribution import MOST
from wheel_builder.extras.timings.proposals import (
    Budget,
    tunable,
    wanted_kernels,
    with_rows,
    without_candidates,
    write_proposals,
)
from wheel_builder.extras.timings.sharing import models_of
from wheel_builder.extras.timings.wanted import OfKernel, Wanted, file_of, read_wanted, to_text
from wheel_builder.extras.tune import run
from wheel_builder.extras.tune.compiling import Compiled
from wheel_builder.extras.tune.measuring import Figures
from wheel_builder.extras.tune.rows import Kernel, changed, changes_named, rows_of
from wheel_builder.extras.tune.run import Tuning, Wishes
from wheel_builder.tables.archs import arch_named, known_archs
from wheel_builder.tables.row_ids import todays_ids
from wheel_builder.tables.tiles import known_tiles

ARCH = "gfx908"
FP16, BF16 = (Kernel(ARCH, "fwd", dtype, 64) for dtype in ("fp16", "bf16"))
ALL = Budget()
MAINTAINERS = Wanted("keys = 64, waves = 2", "seen on a GPU")


class Machinery:
    """Code is the row's id, and its speed a number of the id. ``slow`` and ``wrong`` rows by id."""

    def __init__(self, monkeypatch):
        self.compiled, self.executed, self.modelled, self.stop_at = [], [], [], ""
        self.slow, self.wrong = set(), set()
        monkeypatch.setattr(run, "compile_all", self.compile_all)
        monkeypatch.setattr(run, "subjects", lambda objects, _: [each.data.decode() for each in objects])
        monkeypatch.setattr(run, "executed", self.execute)
        monkeypatch.setattr(proposals, "quick_figures_of", self.figures)

    def compile_all(self, kernel, rows, _by):
        if kernel.name == self.stop_at:
            raise KeyboardInterrupt
        if len(rows) > 1:  # one alone was compiled before: it is executed
            self.compiled.append((kernel.name, len(rows)))
        return tuple(Compiled(each.id_of(kernel).encode()) for each in rows)

    def figures(self, subject, kernel, *_):
        self.modelled.append((kernel.name, subject))
        if subject == rows_of(known_tiles(), arch_named(kernel.arch), kernel).id_of(kernel):
            return Figures({"fwd, schedule": 100.0})
        return Figures({"fwd, schedule": 50.0 if subject in self.slow else 95 + int(subject, 16) % 10})

    def execute(self, subject, *_):
        self.executed.append(subject)
        return "out[0] is nan" if subject in self.wrong else ""


def rows(kernel):
    return rows_of(known_tiles(), arch_named(ARCH), kernel)


def today(kernel):
    return rows(kernel).id_of(kernel)


def id_of(kernel, words):
    return changed(rows(kernel), changes_named(kernel.op, words)).id_of(kernel)


@pytest.fixture
def machinery(monkeypatch):
    return Machinery(monkeypatch)


def started(kernel):
    results = SimpleNamespace(models="0123")
    own = rows_of(known_tiles(), arch_named(kernel.arch), kernel)
    return Tuning(kernel, own, None, None, results, Wishes(0))


def proposed(root, *kernels, budget=ALL):
    said = []
    write_proposals(ARCH, kernels or (FP16,), started, root, budget, said.append)
    return read_wanted(root, ARCH), said


def committed(root, kernel, *candidates, of=""):
    (root / file_of(ARCH)).parent.mkdir(parents=True)
    (root / file_of(ARCH)).write_text(to_text(ARCH, {kernel.name: OfKernel(of or today(kernel), candidates)}))


def test_the_best_eight_that_are_right_are_written(machinery, tmp_path):
    found, said = proposed(tmp_path)
    own = found[FP16.name]
    assert own.today == today(FP16)
    assert len(own.candidates) == MOST == len(machinery.executed)
    speeds = [float(each.why.removeprefix("modelled ")) for each in own.candidates]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[0] > 1
    [first, more] = machinery.compiled
    assert (first, more) == ((FP16.name, 1 + proposals.SINGLE), (FP16.name, proposals.COMBINED))
    assert said == [f"[{'#' * run.BAR}] {FP16.name}: {MOST} candidates"]


def test_wrong_and_hopeless_ones_are_left_out(machinery, tmp_path):
    best, slow = (each.changes for each in proposed(tmp_path)[0][FP16.name].candidates[:2])
    machinery.wrong, machinery.slow = {id_of(FP16, best)}, {id_of(FP16, slow)}
    again = {each.changes for each in proposed(tmp_path)[0][FP16.name].candidates}
    assert not again & {best, slow}


def test_another_dtype_with_the_same_rows_takes_the_same_changes(machinery, tmp_path):
    both = [Kernel(ARCH, "bwd_dq", dtype, 128) for dtype in ("fp16", "bf16")]
    assert rows(both[0]) == rows(both[1])
    found, _ = proposed(tmp_path, *both)
    one, other = ({each.changes for each in found[kernel.name].candidates} for kernel in both)
    assert one == other
    assert machinery.compiled[-1] == (both[1].name, 1 + MOST)
    whose = {each.why.split(maxsplit=2)[2:] == ["with fp16"] for each in found[both[1].name].candidates}
    assert whose == {True}
    assert {kernel for kernel, _ in machinery.modelled} == {both[0].name}


def test_another_dtype_with_other_rows_has_its_own(machinery, tmp_path):
    assert rows(FP16) != rows(BF16)
    proposed(tmp_path, FP16, BF16)
    assert (BF16.name, 1 + proposals.SINGLE) in machinery.compiled


def elsewhere(root, arch, kernel, *candidates, of=None):
    """The other arch has candidates of the kernel that has its name."""
    own = Kernel(arch, kernel.op, kernel.dtype, kernel.head_dim)
    of = of or rows_of(known_tiles(), arch_named(arch), own).id_of(own)
    (root / file_of(arch)).parent.mkdir(parents=True, exist_ok=True)
    (root / file_of(arch)).write_text(to_text(arch, {own.name: OfKernel(of, candidates)}))


FOUR = [Wanted(f"query_steps = {steps}", f"modelled 1.00{steps}") for steps in (0, 1, 2, 3)]
RYZEN, RDNA3 = (Kernel(arch, "fwd", "fp16", 64) for arch in ("gfx1151", "gfx1100"))


def proposed_for(kernel, root):
    write_proposals(kernel.arch, [kernel], started, root, ALL, lambda _: None)
    return read_wanted(root, kernel.arch)[kernel.name].candidates


def test_an_arch_with_equal_rows_and_models_takes_candidates_and_figures(machinery, tmp_path):
    elsewhere(tmp_path, "gfx1100", RYZEN, *FOUR[:2], MAINTAINERS)
    found = proposed_for(RYZEN, tmp_path)
    assert [(each.changes, each.why) for each in found] == [
        (each.changes, f"{each.why} for gfx1100") for each in FOUR[:2]
    ]
    assert machinery.modelled == []
    assert machinery.compiled == [(RYZEN.name, 3)]
    assert len(machinery.executed) == 2


def test_an_arch_with_equal_rows_and_other_models_ranks_the_same_candidates(machinery, tmp_path):
    kernel = Kernel("gfx1201", "decode", "fp16", 64)
    elsewhere(tmp_path, "gfx1100", kernel, *FOUR)
    found = proposed_for(kernel, tmp_path)
    assert {each.changes for each in found} == {each.changes for each in FOUR}
    assert machinery.compiled == [(kernel.name, 5)]
    assert len(machinery.modelled) == 5
    assert not any("gfx1100" in each.why for each in found)


@pytest.mark.parametrize("words", ["for gfx1100", "with fp16 for gfx1101"])
def test_figures_that_another_arch_took_are_no_figures(machinery, tmp_path, words):
    elsewhere(tmp_path, "gfx1151", RDNA3, *FOUR, Wanted("prefetch = 2", f"modelled 1.000 {words}"))
    proposed_for(RDNA3, tmp_path)
    assert machinery.compiled[0] == (RDNA3.name, 1 + proposals.SINGLE)


def test_asked_for_again_a_kernel_has_a_search_of_its_own(machinery, tmp_path):
    elsewhere(tmp_path, "gfx1100", RYZEN, *FOUR)
    write_proposals(RYZEN.arch, [RYZEN], started, tmp_path, Budget(again=True), lambda _: None)
    assert machinery.compiled[0] == (RYZEN.name, 1 + proposals.SINGLE)


def test_of_two_dtypes_each_takes_its_own_figures_of_another_arch(machinery, tmp_path):
    both = [Kernel("gfx1151", "bwd_dq", dtype, 32) for dtype in ("fp16", "bf16")]
    changes = [Wanted("waves_per_simd = 1", f"modelled 1.00{number}") for number in range(2)]
    here = [Kernel("gfx1100", each.op, each.dtype, each.head_dim) for each in both]
    ids = [rows_of(known_tiles(), arch_named("gfx1100"), each).id_of(each) for each in here]
    listed = {
        each.name: OfKernel(today_of, (own,)) for each, today_of, own in zip(here, ids, changes, strict=True)
    }
    (tmp_path / file_of("gfx1100")).parent.mkdir(parents=True)
    (tmp_path / file_of("gfx1100")).write_text(to_text("gfx1100", listed))
    write_proposals("gfx1151", both, started, tmp_path, ALL, lambda _: None)
    found = read_wanted(tmp_path, "gfx1151")
    whys = [found[each.name].candidates[0].why for each in both]
    assert whys == ["modelled 1.000 for gfx1100", "modelled 1.001 for gfx1100"]


def test_a_decode_is_ranked_by_the_memory_of_its_own_gpu(machinery, tmp_path):
    kernel = Kernel("gfx1151", "decode", "fp16", 64)
    elsewhere(tmp_path, "gfx1100", kernel, *FOUR)
    assert not any("gfx1100" in each.why for each in proposed_for(kernel, tmp_path))
    assert len(machinery.modelled) == 5


def test_few_candidates_of_another_arch_are_no_neighbourhood(machinery, tmp_path):
    kernel = Kernel("gfx1201", "decode", "fp16", 64)
    elsewhere(tmp_path, "gfx1100", kernel, *FOUR[:3])
    proposed_for(kernel, tmp_path)
    assert machinery.compiled[0] == (kernel.name, 1 + proposals.SINGLE)


@pytest.mark.parametrize(
    ("kernel", "of"), [(RYZEN, "01234567"), (Kernel("gfx1030", "fwd", "fp16", 64), None)]
)
def test_candidates_of_other_rows_are_not_shared(machinery, tmp_path, kernel, of):
    elsewhere(tmp_path, "gfx1100", kernel, *FOUR, of=of)
    proposed_for(kernel, tmp_path)
    assert machinery.compiled[0] == (kernel.name, 1 + proposals.SINGLE)


def test_only_names_and_hazards_of_an_arch_are_in_no_model():
    alike = [
        each for each in known_archs() if models_of(arch_named(each)) == models_of(arch_named("gfx1100"))
    ]
    assert {"gfx1100", "gfx1151"} <= {*alike}
    assert not {"gfx1102", "gfx1030", "gfx1201"} & {*alike}
    assert models_of(arch_named("gfx90a")) != models_of(arch_named("gfx942"))


def test_a_maintainers_candidates_stay_and_modelled_ones_are_replaced(machinery, tmp_path):
    committed(tmp_path, FP16, Wanted("prefetch = 9", "modelled 1.000"), MAINTAINERS)
    first, *others = proposed(tmp_path)[0][FP16.name].candidates
    assert first == MAINTAINERS
    assert len(others) == MOST - 1
    assert "prefetch = 9" not in {each.changes for each in others}


def test_candidates_of_older_rows_are_replaced(machinery, tmp_path):
    committed(tmp_path, FP16, MAINTAINERS, of="01234567")
    found, said = proposed(tmp_path)
    own = found[FP16.name]
    assert own.today == today(FP16)
    assert MAINTAINERS not in own.candidates
    words, *dropped = said[-1].splitlines()
    assert words.startswith("fa_fwd_fp16_d64: these candidates of maintainers were dropped")
    assert "`git diff wheel_builder/extras/timings/candidates/gfx908.toml` shows them" in words
    assert dropped == ["  keys = 64, waves = 2  # seen on a GPU"]


def test_modelled_candidates_of_older_rows_are_no_loss(machinery, tmp_path):
    committed(tmp_path, FP16, Wanted("prefetch = 9", "modelled 1.000"), of="01234567")
    assert [line for line in proposed(tmp_path)[1] if "dropped" in line] == []


def test_an_interrupted_run_keeps_finished_kernels_and_the_next_one_goes_on(machinery, tmp_path):
    machinery.stop_at = BF16.name
    with pytest.raises(KeyboardInterrupt):
        proposed(tmp_path, FP16, BF16)
    listed = read_wanted(tmp_path, ARCH)
    assert [*listed] == [FP16.name]
    left = wanted_kernels(ARCH, Budget(), listed)
    assert BF16 in left
    assert FP16 not in left
    assert FP16 in wanted_kernels(ARCH, Budget(again=True), listed)


def test_what_was_written_for_another_kernel_during_a_search_stays(machinery, tmp_path):
    def begun(kernel):
        committed(tmp_path, BF16, MAINTAINERS)
        return started(kernel)

    write_proposals(ARCH, (FP16,), begun, tmp_path, ALL, print)
    assert {*read_wanted(tmp_path, ARCH)} == {FP16.name, BF16.name}


def test_kernels_with_a_maintainers_or_older_candidates_only_are_wanted():
    for own, done in (
        (OfKernel(today(FP16), (MAINTAINERS,)), False),
        (OfKernel("01234567", (Wanted("prefetch = 9", "modelled 1.000"),)), False),
        (OfKernel(today(FP16), (MAINTAINERS, Wanted("prefetch = 9", "modelled 1.000"))), True),
        (OfKernel(today(FP16), ()), True),
    ):
        assert (FP16 not in wanted_kernels(ARCH, Budget(), {FP16.name: own})) == done


def test_after_the_budget_no_kernel_begins(machinery, tmp_path):
    found, said = proposed(tmp_path, FP16, BF16, budget=Budget(minutes=-1))
    assert found == {}
    assert said == ["the budget is spent: 2 kernels are left, the same command goes on"]


def test_all_kernels_with_models_are_tunable():
    found = tunable(ARCH)
    assert {FP16, BF16, Kernel(ARCH, "bwd_fused", "fp16", 64)} <= {*found}
    assert [each.head_dim for each in found] == sorted(each.head_dim for each in found)
    assert found[0].dtype == "fp16"


def test_an_unknown_kernel_is_refused():
    with pytest.raises(TuneError, match="fa_append_fp16_d64 of gfx908 cannot be tuned") as caught:
        wanted_kernels(ARCH, Budget(kernels=("fa_append_fp16_d64",)), read_wanted(CHECKOUT, ARCH))
    assert "expected some of fa_" in str(caught.value)


@pytest.mark.parametrize("arch", known_archs())
def test_every_kernel_with_rows_has_candidates_or_a_reason(arch):
    words = [line.partition(":")[0].removeprefix("no candidates of fa_") for line in without_candidates(arch)]
    ops = {each["op"] for each in with_rows(arch)}
    assert {each.op for each in tunable(arch)} | {*words} == ops
    assert not {each.op for each in tunable(arch)} & {*words}


def test_an_arch_may_share_rows_of_kernels_that_it_does_not_have():
    """gfx1012 has the rows of gfx1030's decode over 8 bits, and no such kernel of bf16."""
    found = {each.name for each in tunable("gfx1012")}
    assert "fa_decode_8bit_fp16_d64" in found
    assert "fa_decode_8bit_bf16_d64" not in found
    assert "fa_decode_8bit_bf16_d64" in todays_ids(known_tiles(), arch_named("gfx1012"))


def test_reasons_are_told_by_both_commands():
    with pytest.raises(TuneError, match="fa_mla_fp16_d576 of gfx942 cannot be tuned") as caught:
        wanted_kernels("gfx942", Budget(kernels=("fa_mla_fp16_d576",)), {})
    [_, *reasons] = caught.value.problems
    assert reasons == without_candidates("gfx942")
    [latent] = [line for line in reasons if line.startswith("no candidates of fa_mla: ")]
    with pytest.raises(TuneError) as caught:
        run.kernel_named("gfx942", "fa_mla_fp16_d576")
    assert caught.value.problems == (latent.removeprefix("no candidates of fa_mla: "),)
    assert "the library replaces no kernel of latent attention" in latent

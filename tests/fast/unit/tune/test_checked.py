"""What is stored of a candidate's checks: a failed static check ends them before the emulator."""

from types import SimpleNamespace

import pytest

from wheel_builder.base.store import Store
from wheel_builder.extras.tune import measuring
from wheel_builder.extras.tune.measuring import Results, executed, quick_figures_of
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.machine_code.static_checks.findings import Finding
from wheel_builder.tables.tiles import Workgroup

KERNEL, TILE, STEP = Kernel("gfx908", "fwd", "fp16", 64), Workgroup(64, 128), 32
SUBJECT = SimpleNamespace(code=b"code", disassembly="")
WAIT = Finding("waits", KERNEL.arch, KERNEL.name, "a wait is missing")


@pytest.fixture
def checked(monkeypatch, tmp_path):
    """Runs the checks. Returns the words, and the number of executed calls so far."""
    calls = []

    def found(findings, *problems):
        def run(*_):
            calls.append(problems)
            yield from problems

        monkeypatch.setattr(measuring, "check_listing", lambda _: [SimpleNamespace(findings=findings)])
        monkeypatch.setattr(measuring, "works", lambda: {"fwd": SimpleNamespace(problems=run)})
        return executed(SUBJECT, KERNEL, TILE, STEP, Results(Store(tmp_path), "0123")), len(calls)

    return found


def test_a_failed_static_check_is_what_is_wrong(checked):
    assert checked([WAIT], "out[0] is nan") == ("a wait is missing", 0)


def test_wrong_results_are_what_is_wrong(checked):
    assert checked([], "out[0] is nan", "out[1] is nan") == ("out[0] is nan", 1)


def test_right_results_are_stored(checked):
    assert checked([]) == ("", 1)
    assert checked([], "out[0] is nan") == ("", 1)


def test_quick_figures_are_those_of_the_first_workload(monkeypatch, tmp_path):
    measured = []

    def measure(_subject, workload, *, only_figures, rounds):
        assert only_figures
        assert rounds == 1
        measured.append(workload)
        orders = [SimpleNamespace(schedule=SimpleNamespace(clocks_per_workgroup=c)) for c in (10, 20)]
        return SimpleNamespace(op="fwd", flop=400, charged=orders)

    work = SimpleNamespace(workloads=lambda *_: iter(["first", "second"]), bound_by_memory=False)
    monkeypatch.setattr(measuring, "works", lambda: {"fwd": work})
    monkeypatch.setattr(measuring, "measure", measure)
    found = quick_figures_of(SUBJECT, KERNEL, TILE, Results(Store(tmp_path), "0123"))
    assert found.lines == {"fwd, schedule": 20}, "under the worst order of LDS phases"
    assert measured == ["first"]


def test_quick_figures_of_a_decode_are_its_shares_of_bandwidth(monkeypatch, tmp_path):
    work = SimpleNamespace(launches=lambda *_: iter([("launch 1000 ns", 0.5)]), bound_by_memory=True)
    monkeypatch.setattr(measuring, "works", lambda: {"decode": work})
    kernel = Kernel("gfx908", "decode", "fp16", 64)
    found = quick_figures_of(SUBJECT, kernel, TILE, Results(Store(tmp_path), "0123"))
    assert found.lines == {"launch 1000 ns": 0.5}

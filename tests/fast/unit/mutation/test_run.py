"""A whole run with planted answers: one survivor of 24 fails it, and is named."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.tools.mutation import __main__ as run

ARCH, KERNEL, COUNT = "gfx1010", "fa_fwd_fp16_d64", 24
KILL = {"killed": ["suite", "test_x"], "seconds": 1}
SAME = {"same": 30, "calls": 30, "worse": "", "seconds": 1}
WORSE = {"same": 10, "calls": 30, "worse": "an element moves by two steps", "seconds": 1}


@pytest.fixture
def answered(monkeypatch, tmp_path, capsys):
    """``answered(planted)``: the exit code and the table of a run whose other mutants are killed."""

    def main(planted):
        mutants = [
            SimpleNamespace(name=f"{ARCH} 0x{n:x}", kernel=KERNEL, kind="operand", file="0")
            for n in range(COUNT)
        ]
        bench = SimpleNamespace(archs=(ARCH,), alone=lambda _: nullcontext())
        known = {
            "set_up": lambda _: bench,
            "listings_of": lambda *_: {"0": ""},
            "draw": lambda *_: mutants,
            "mutated_listing": lambda *_: "",
            "by_static_checks": lambda *_: None,
            "baseline": lambda *_: {},
            "lay_out": lambda *_: "",
            "those_launching": lambda *_: [],
            "judged": lambda _bench, _arch, tasks, **_: {
                task["id"]: planted.get(task["id"], KILL) for task in tasks
            },
        }
        for name, value in known.items():
            monkeypatch.setattr(run, name, value)
        wheel = ["--wheel", str(tmp_path / "x.whl"), "--json", str(tmp_path / "result.json")]
        monkeypatch.setattr(sys, "argv", ["mutation", *wheel, "--count", str(COUNT)])
        code = run.main()
        assert (tmp_path / "result.json").is_file()
        return code, capsys.readouterr().out

    return main


def test_a_planted_survivor_fails_the_run_and_is_named(answered):
    code, table = answered({7: WORSE})
    assert code == 1
    assert f"survived: {ARCH} 0x7 (10 of 30 random calls give the same; {WORSE['worse']})" in table
    assert "95.8%" in table


def test_without_one_it_passes(answered):
    code, table = answered({7: SAME})
    assert code == 0
    assert f"not judged: {ARCH} 0x7" in table

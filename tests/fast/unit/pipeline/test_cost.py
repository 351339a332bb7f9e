"""``cost``: accepted costs, their refusal, and accepting them again."""

from dataclasses import replace

import pytest

from tests.tools.made.checkouts import commit_all
from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.build.budget import COSTS, UPDATE, KernelCost, to_text
from wheel_builder.cli.main import main
from wheel_builder.extras.cost.measure import Measured, accept, accepted, accepted_at, refuse_over_budget

COST = KernelCost(code_bytes=1000, cpu_seconds=2.0, peak_mib=100)
BUDGETS = {arch: {"fa_fwd_fp16_d64": COST, "fa_fwd_bf16_d64": COST} for arch in ("gfx908", "gfx942")}
DOUBLED = {"gfx942": {**BUDGETS["gfx942"], "fa_fwd_fp16_d64": replace(COST, code_bytes=2000)}}


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / COSTS).parent.mkdir(parents=True)
    (tmp_path / COSTS).write_text(to_text(BUDGETS))
    return tmp_path


def test_a_doubled_kernel_is_refused_until_it_is_accepted(checkout):
    refuse_over_budget(Measured(BUDGETS, {}), checkout)
    with pytest.raises(DeviceCodeError) as failure:
        refuse_over_budget(Measured(DOUBLED, {}), checkout)
    assert failure.value.problems == (
        "fa_fwd_fp16_d64 for gfx942: machine code has 2000 bytes, expected about 1000 (2.0 times)",
    )
    assert failure.value.advice == UPDATE
    accept(Measured(DOUBLED, {}), checkout)
    refuse_over_budget(Measured(DOUBLED, {}), checkout)
    assert accepted(checkout) == {**BUDGETS, **DOUBLED}


def test_the_costs_of_another_commit(checkout):
    commit = commit_all(checkout)
    accept(Measured(DOUBLED, {}), checkout)
    assert accepted_at(checkout, commit) == BUDGETS


def test_a_commit_without_costs_is_named(checkout):
    commit_all(checkout)
    with pytest.raises(DeviceCodeError) as failure:
        accepted_at(checkout, "v0.0.9")
    assert "the costs of 'v0.0.9' cannot be read" in failure.value.message
    assert "releases up to 0.1.0 do not" in failure.value.advice


def test_the_command_shows_what_was_accepted(tmp_path, capsys):
    assert main(["cost", "--svg", str(tmp_path / "costs.svg")]) == 0
    out = capsys.readouterr().out
    assert "no kernel has changed against kernels/tables/costs.json" in out
    assert "gfx1100" in out
    assert (tmp_path / "costs.svg").read_text().startswith("<svg")

"""Some of upstream's own tests, at small sizes, on the implementation in PyTorch (see tests/upstream.py)."""

import pytest
import torch
import upstream

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
STEP = 23


def attend(function, *arguments, **options):
    return function(*arguments, **options)


@pytest.mark.parametrize("case", upstream.cases(full=False, step=STEP), ids=str)
def test_upstreams_cases(case):
    assert not upstream.run(case, torch.device("cpu"), attend).wrong


def test_the_rule_refuses_what_is_wrong():
    case = upstream.cases(full=True)[0]

    def attend_wrongly(function, *arguments, **options):
        out, *rest = function(*arguments, **options)
        return out * 1.05, *rest

    assert not case.dropout_p
    assert "out: error" in upstream.run(case, torch.device("cpu"), attend_wrongly).wrong


def test_every_option_is_met():
    every = upstream.cases(full=True)
    assert len(set(map(str, every))) <= len(every)
    for name in (
        "causal",
        "local",
        "alibi",
        "softcap",
        "dropout_p",
        "splits",
        "rotary",
        "page",
        "batch_idx",
        "leftpad",
    ):
        assert len({getattr(case, name) for case in every}) > 1, name
    few = upstream.cases(full=False)
    assert {case.function for case in few} == {case.function for case in every}
    assert {case.head_dim for case in few} == {case.head_dim for case in every}

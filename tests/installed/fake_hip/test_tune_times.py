"""``tune`` on the emulator: rows that the launch model favours, and times of PyTorch's attention."""

import json
from pathlib import Path

import pytest
from tune_made import FAST, FORWARD, SLOW, TIME, made_in, player, report_of


@pytest.fixture
def made(tmp_path, monkeypatch):
    return made_in(tmp_path, monkeypatch)


@pytest.fixture
def play(scenario, made):
    return player(scenario, made)


# Milliseconds by the launch model, written by tests/fast/unit/tune/test_modelled_clock.py. The emulator's
# short calls stand for long ones.
MODELLED = json.loads(Path(__file__).with_name("modelled.json").read_text())
STANDS_FOR = {40: 512, 48: 2048}
MODELS_CLOCK = """
from flash_attn_rocm.tuning import bins
bins.WIDTHS = (1,)
call_of, current = bins.call_of, []
def remembered_call(each, *rest):
    current[:] = [f"{STANDS_FOR[each.length]} {each.causal}"]
    return call_of(each, *rest)
bins.call_of = remembered_call
def clock(call, where):
    call()
    return 1e-3 * MODEL[in_use[0]][current[0]]
LENGTHS[:] = STANDS_FOR
tune()
"""
PLAYED = {  # the rows of the model that are the wheel's, FAST and SLOW
    ("twice", "plain", "tall"): FAST,
    ("twice", "tall", "plain"): SLOW,
    ("plain", "twice", "tall"): "",
    ("tall", "twice", "plain"): "",  # plain is slower in the longer causal calls
}


@pytest.mark.parametrize("roles", PLAYED, ids="-".join)
def test_the_row_that_the_launch_model_favours_is_found(play, made, tmp_path, roles):
    shipped = made.add(FORWARD, {FAST: "", SLOW: ""})
    model = {row: MODELLED[role] for row, role in zip(("", FAST, SLOW), roles, strict=True)}
    play(f"MODEL, STANDS_FOR = {model!r}, {STANDS_FOR!r}\n{MODELS_CLOCK}")
    assert report_of(tmp_path)["kernels"][FORWARD]["winner"] == (PLAYED[roles] or shipped)


def test_pytorchs_attention_is_timed_in_a_process_of_its_own(play, made, tmp_path):
    made.add(FORWARD, {FAST: ""})
    shown = play("tune(peer=Peer())")
    assert (shown["status"], [words for words in shown["told"] if "PyTorch" in words]) == (0, [])
    times = [each["sdpa_ms"] for each in report_of(tmp_path)["kernels"][FORWARD]["bins"]]
    assert len(times) == 4
    assert all(0 < ms < 1e3 for ms in times)
    assert 2.0 not in times, "the clock of this process"


BREAKS = {
    "kill -SEGV $$": "its process was ended by SIGSEGV",
    "exec sleep 600": "it did not end within 3 s",
}


@pytest.mark.parametrize("ends", BREAKS)
def test_an_attention_of_pytorch_that_breaks_is_told_and_the_run_goes_on(play, made, tmp_path, ends):
    made.add(FORWARD, {FAST: ""})
    command = (
        f"""while read -r line; do case $line in *'"causal": true'*) {ends};; esac; echo '{TIME}'; done"""
    )
    shown = play(f"tune(peer=Peer(('sh', '-c', {command!r}), longest=3))")
    assert shown["status"] == 0, shown["said"]
    found = report_of(tmp_path)["kernels"][FORWARD]
    assert found["winner"] == FAST
    assert [each["sdpa_ms"] for each in found["bins"]] == [2.0, None, 2.0, None]
    assert [words for words in shown["told"] if "PyTorch" in words] == [
        f"{FORWARD}, forward 40 causal{width}: PyTorch's attention has no time: {BREAKS[ends]}"
        for width in ("", " GQA 4")
    ]

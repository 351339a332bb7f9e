"""``tune`` without a GPU: the choice of a row, the driver's values, and words."""

import re
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from flash_attn_rocm.__main__ import main
from flash_attn_rocm.library.host import instances
from flash_attn_rocm.library.tuned import WORK
from flash_attn_rocm.machine.remembered import FP8
from flash_attn_rocm.tuning import bins, choice, clocks, peer_process, report, timing
from flash_attn_rocm.tuning.bins import Sizes
from flash_attn_rocm.tuning.peer import Peer

SHIPPED, ONE, TWO = "11111111", "22222222", "33333333"


def found(*bins):
    """Bins with the milliseconds of the shipped row and others."""
    return [{"times": {row: {"ms": ms} for row, ms in each.items()}} for each in bins]


@pytest.mark.parametrize(
    ("times", "winner"),
    [
        ([], SHIPPED),
        ([{SHIPPED: 1.0}], SHIPPED),
        ([{SHIPPED: 1.0, ONE: 0.9, TWO: 0.95}], ONE),
        ([{SHIPPED: 1.0, ONE: 0.985}], SHIPPED),
        ([{SHIPPED: 1.0, ONE: 0.97}, {SHIPPED: 1.0, ONE: 1.009}], SHIPPED),
        ([{SHIPPED: 1.0, ONE: 0.9}, {SHIPPED: 1.0, ONE: 1.009}], ONE),
        ([{SHIPPED: 1.0, ONE: 0.5}, {SHIPPED: 1.0, ONE: 1.011}], SHIPPED),
        ([{SHIPPED: 5.2, ONE: 2.6}, {SHIPPED: 5.2, ONE: 5.252}], SHIPPED),
        ([{SHIPPED: 6.3, ONE: 3.0}, {SHIPPED: 6.3, ONE: 6.363}], SHIPPED),
        ([{SHIPPED: 9.078, ONE: 8.9}] * 12, ONE),
        ([{SHIPPED: 9.078, ONE: 8.9}] * 11 + [{SHIPPED: 9.0779, ONE: 8.9}], SHIPPED),
        ([{SHIPPED: 1.0, ONE: 0.5, TWO: 0.9}, {SHIPPED: 1.0, ONE: 1.011, TWO: 0.9}], TWO),
        ([{SHIPPED: 1.0, ONE: 0.5}, {SHIPPED: 1.0}], SHIPPED),
    ],
)
def test_a_winner_gains_2_percent_and_loses_1_nowhere(times, winner):
    """By exact numbers: 5.252 is 1 % more than 5.2, and 9.078 2 % more than 8.9."""
    assert choice.winner(SHIPPED, found(*times)) == winner


def test_rows_are_timed_in_turn_after_warm_up():
    used, called = [], []

    def clock(call, where):
        call()
        return len(called) * 1e-3

    times = timing.compared(
        [SHIPPED, ONE], used.append, lambda: called.append(used[-1]), torch.device("cpu"), runs=4, clock=clock
    )
    assert used == [SHIPPED, ONE, ONE, SHIPPED] * 2
    assert called == [row for row in used for _ in range(timing.WARM + 1)]
    assert times[SHIPPED] == timing.Times(13.5, 3.0, 24.0, 4)


def test_a_sample_is_long_enough():
    called = []
    assert timing.sample(lambda: called.append(1), torch.device("cpu")) > 0
    assert len(called) == 1 + timing.MOST_CALLS


CALL = bins.Bin("forward", 64, causal=False, width=4, mask="", dtype="fp16", head_dim=64, batch=1, heads=4)
ONCE = "import os, sys; sys.stdin.readline(); "
BREAKS = {
    'print(\'words of a library\'); print(\'{"ms": 1.5, "words": ""}\')': (1.5, ""),
    'print(\'{"ms": null, "words": "no memory"}\')': (None, "no memory"),
    "os.kill(os.getpid(), 11)": (None, "its process was ended by SIGSEGV"),
    "os.kill(os.getpid(), 40)": (None, "its process was ended by signal 40"),
    "os._exit(3)": (None, "its process ended with status 3"),
    "import time; time.sleep(600)": (None, "it did not end within 2 s"),
    "print('{')": (None, "its process said '{'"),
}


@pytest.mark.parametrize("text", BREAKS)
def test_a_time_of_pytorchs_attention_or_why_there_is_none(text):
    peer = Peer((sys.executable, "-c", ONCE + text), longest=2)
    with closing(peer):
        assert peer.timed(CALL, "fwd", torch.device("cpu"), 1) == BREAKS[text]
    assert peer.process is None


def test_an_error_of_pytorchs_attention_without_words(monkeypatch):
    def fail(*_given):
        raise RuntimeError

    monkeypatch.setattr(bins, "sdpa_of", fail)
    given = {"bin": CALL._asdict(), "op": "fwd", "where": "cpu", "runs": 1}
    assert peer_process.answer(given) == {"ms": None, "words": "RuntimeError"}


def test_after_three_lost_processes_no_other_one_is_started(tmp_path):
    file = tmp_path / "started"
    peer = Peer((sys.executable, "-c", f"open({str(file)!r}, 'a').write('x')"))
    words = [peer.timed(CALL, "fwd", torch.device("cpu"), 1).words for _ in range(5)]
    assert words == [
        *["its process ended with status 0"] * 3,
        *["it ended 3 processes, and no other one is started"] * 2,
    ]
    assert file.read_text() == "xxx"


def test_a_process_that_cannot_be_started_is_said(tmp_path):
    peer = Peer((str(tmp_path / "none"),))
    words = peer.timed(CALL, "fwd", torch.device("cpu"), 1).words
    assert words == "its process cannot be started: No such file or directory"


def test_the_process_times_gradients_and_says_what_fails():
    with closing(Peer()) as peer:
        backward = peer.timed(CALL._replace(kind="backward"), "bwd_dq", torch.device("cpu"), 1)
        broken = peer.timed(CALL._replace(heads=7, width=2), "fwd", torch.device("cpu"), 1)
        again = peer.timed(CALL, "fwd", torch.device("cpu"), 1)
    assert (backward.words, broken.ms, again.words, peer.lost) == ("", None, "", 0)
    assert backward.ms > 0
    assert broken.words


def test_values_of_the_driver(tmp_path, monkeypatch):
    place = tmp_path / "sys/bus/pci/devices/0000:c3:00.0/hwmon/hwmon4"
    place.mkdir(parents=True)
    for name, text in {
        "freq1_input": "2500000000\n",
        "power1_input": "251000000\n",
        "temp1_input": "x",
    }.items():
        (place / name).write_text(text)
    properties = SimpleNamespace(pci_domain_id=0, pci_bus_id=0xC3, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    told = clocks.told(torch.device("cuda", 0), tmp_path)
    assert told == {"gpu_mhz": 2500.0, "memory_mhz": None, "watts": 251.0, "celsius": None}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace())
    assert set(clocks.told(torch.device("cuda", 0), tmp_path).values()) == {None}
    assert set(clocks.told(torch.device("cpu"), tmp_path).values()) == {None}


TIMED = {  # calls, and the last one of them
    "fa_fwd_fp16_d64": (12, ("forward", 8192, True, 4, "", "fp16", 64, 2, 16)),
    "fa_fwd_masked_bf16_d128": (12, ("forward", 8192, False, 4, "bias", "bf16", 128, 2, 16)),
    "fa_decode_fp16_d64": (6, ("decode", 8192, False, 4, "", "fp16", 64, 16, 16)),
    "fa_bwd_dq_fp16_d64": (12, ("backward", 8192, True, 4, "", "fp16", 64, 2, 16)),
}


@pytest.mark.parametrize("name", TIMED)
def test_the_calls_of_a_kernel_are_those_that_a_report_needs(name):
    """As in tests/fast/unit/reports/test_merge.py: without one of them a report is no evidence."""
    op, dtype, head_dim = re.fullmatch(r"fa_(.*)_(.*)_d(.*)", name).groups()
    every = bins.bins_of(SimpleNamespace(op=op, dtype=dtype, head_dim=int(head_dim)), Sizes())
    assert (len(every), every[-1]) == TIMED[name]


def test_kernels_with_bins_have_a_check():
    timed = {each.op for each in instances() if bins.bins_of(each, Sizes())}
    assert {"fwd", "fwd_masked", "decode", "decode_8bit", "bwd_dkdv", "bwd_dq"} <= timed <= WORK.keys()
    assert WORK["fwd_fp8"] == FP8  # the check of other forwards does not launch it
    assert not timed & {"append", "combine", "bwd_delta", "mla", "reference"}


@pytest.mark.needs_kernels("decode_8bit", "bf16")
def test_a_decode_over_8_bits_is_timed_with_codes_and_pytorchs_with_their_numbers(monkeypatch):
    kernel = next(each for each in instances() if each.op == "decode_8bit" and each.dtype == "bf16")
    several = bins.bins_of(kernel, Sizes((64,), 64, 4))
    assert [(each.kind, each.width, each.causal) for each in several] == [
        ("decode", 1, False), ("decode", 4, False),
    ]  # fmt: skip
    inputs, _ = bins._made(several[0], kernel.op, torch.device("cpu"))
    assert [x.dtype for x in inputs[:3]] == [torch.bfloat16, bins.CODES, bins.CODES]
    given = []
    monkeypatch.setattr(
        bins, "scaled_dot_product_attention", lambda *leaves, **_: given.extend(leaves) or leaves[0]
    )
    bins.sdpa_of(several[0], kernel.op, torch.device("cpu"))()
    assert [x.dtype for x in given] == [torch.bfloat16] * 3
    assert torch.equal(given[1], inputs.k.to(torch.bfloat16).transpose(1, 2))


def test_without_a_gpu_it_says_so(capsys, tmp_path):
    assert main(["tune", "--report", str(tmp_path / "report.json")]) == 1
    assert "tune needs an AMD GPU that PyTorch can use\n  next: python -m flash_attn_rocm doctor" in "".join(
        capsys.readouterr()
    )
    assert not [*Path(tmp_path).iterdir()]


def test_nothing_is_forgotten_without_a_gpu(capsys):
    assert main(["tune", "--forget"]) == 1
    assert "tune needs an AMD GPU that PyTorch can use" in "".join(capsys.readouterr())


def test_a_report_without_a_folder_is_said(tmp_path):
    (tmp_path / "file").touch()
    assert "cannot be written: " in report.write({}, tmp_path / "file" / "report.json")


def test_a_length_is_a_number(capsys):
    with pytest.raises(SystemExit):
        main(["tune", "--seqlen", "long"])
    assert "expected positive integers such as 512,1024, got long" in capsys.readouterr().err

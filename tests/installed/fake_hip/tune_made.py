"""Runs ``tune`` in a scenario, with candidates of ``candidates_made``."""

import json

from candidates_made import Made, path_text

FORWARD, SMALL, TALL = "fa_fwd_fp16_d64", "fa_fwd_fp16_d32", "fa_fwd_tall_fp16_d64"
CODED = "fa_decode_8bit_fp16_d128"
FAST, SLOW, WRONG, BROKEN = "aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"
TOLD = {"": 2.0, FAST: 1.0, SLOW: 3.0}
TIME = '{"ms": 2.0, "words": ""}'
PEER = ("sh", "-c", f"while read -r line; do echo '{TIME}'; done")
BEGIN = """
import argparse, json, os, errno, warnings
from row_clock import candidates, clock_of, in_use, timed
from flash_attn_rocm import explain
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.library import tuned
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.serving import support
from flash_attn_rocm.tuning import command, run, session
from flash_attn_rocm.tuning.peer import Peer
from wheel_builder.machine_code.fake_hip.control import HOST_MEMORY, kernels_on_host_memory
flash_attn_rocm.set_strict(None)
clock = clock_of(TOLD)
said, told, LENGTHS = [], [], [40]
command._told = told.append
def tune(*kernels, apply=False, forget=False, peer=None, seqlen=()):
    command.LENGTHS = tuple(LENGTHS)
    given = argparse.Namespace(
        report=Path(os.environ["REPORT"]), kernel=list(kernels), seqlen=seqlen, runs=2, apply=apply,
        forget=forget,
    )
    with kernels_on_host_memory(fake_hip):
        peer = peer or Peer(PEER)
        shown["status"] = command.main(given, said.append, clock=clock, peer=peer, tokens=40)
    shown["said"], shown["told"] = "\\n".join(said), told
def kernels():
    return [launch.kernel for launch in fake_hip.report().launches]
def called():
    HOST_MEMORY.checks_kernels = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attend()
        shown["fallbacks"] = [str(each.message) for each in caught]
        with kernels_on_host_memory(fake_hip):
            shown["row"] = explain(*qkv(), causal=True).row
    shown["launched"] = kernels()[-1:]
"""


def made_in(folder, monkeypatch):
    """A distribution of candidates, and a cache and a report of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("REPORT", str(folder / "report.json"))
    return Made(folder)


def player(scenario, made):
    """Runs a scenario's text. ``told``: the clock's milliseconds by row."""

    def run(text, told=TOLD):
        whole = "\n".join((path_text(made.site), f"TOLD, PEER = {told!r}, {PEER!r}", BEGIN, text))
        return scenario(whole, disassembly=str(made.disassembly))

    return run


def report_of(folder):
    return json.loads((folder / "report.json").read_text())

"""``tune`` on the emulator: candidates that are right, wrong, that fail and that end the process."""

import json
import os

import pytest
from candidates_made import ARCH, ROWS
from tune_made import BROKEN, CODED, FAST, FORWARD, SLOW, SMALL, TALL, WRONG, made_in, player, report_of

EXP = (r"v_exp_f32_e32 (v\d+), ", r"v_log_f32_e32 \1, ")
EVERY = {FAST: "", SLOW: "", WRONG: EXP, BROKEN: None}


@pytest.fixture
def made(tmp_path, monkeypatch):
    return made_in(tmp_path, monkeypatch)


@pytest.fixture
def play(scenario, made):
    return player(scenario, made)


def cached(tmp_path, folder):
    return {
        file.name: json.loads(file.read_text()) for file in (tmp_path / "cache").rglob(f"{folder}/*.json")
    }


def test_the_faster_row_wins_and_wrong_ones_are_out(play, made, tmp_path):
    shipped = made.add(FORWARD, EVERY)
    shown = play("tune(); shown['timed'] = timed; kernels(); called()")
    report = report_of(tmp_path)
    assert shown["status"] == 0, shown["said"]
    assert (report["format"], report["report"], report["complete"]) == (1, "tuning", True)
    assert report["how"] == "executed on an ISA emulator, not run on hardware"
    assert set(report["clocks"]["before"].values()) == {None}
    found = report["kernels"][FORWARD]
    assert (found["shipped"], found["winner"]) == (shipped, FAST)
    states = {row: each["state"] for row, each in found["candidates"].items()}
    assert states == {FAST: "timed", SLOW: "timed", WRONG: "wrong", BROKEN: "failed"}
    assert "differs by" in found["candidates"][WRONG]["words"]
    assert f"{FORWARD} with row {BROKEN} on device" in found["candidates"][BROKEN]["words"]
    assert [(each["causal"], each["width"]) for each in found["bins"]] == [
        (False, 1), (True, 1), (False, 4), (True, 4),
    ]  # fmt: skip
    for each in found["bins"]:
        assert {row: times["ms"] for row, times in each["times"].items()} == {
            shipped: 2.0,
            FAST: 1.0,
            SLOW: 3.0,
        }
        assert each["sdpa_ms"] == 2.0
        assert each["winner"] == FAST
    assert [*shown["timed"][:6]] == ["", FAST, SLOW, SLOW, FAST, ""], "A B B A"
    assert f"{FORWARD} {shipped} {FAST} +100.0%" in " ".join(shown["said"].split())
    assert "forward 40 causal GQA 4" in shown["said"]
    assert "Nothing was sent" in shown["said"]
    assert shown["fallbacks"] == []
    assert f"row {shipped}, modelled; measured by 0 reports" in shown["row"]
    assert "used instead" not in shown["row"], "nothing was applied"


def test_a_report_of_other_lengths_is_not_complete(play, made, tmp_path):
    """A row that wins in short calls may lose in long ones: no report of a part leads to another row."""
    made.add(FORWARD, {FAST: ""})
    shown = play("tune(seqlen=(40,))")
    assert (shown["status"], report_of(tmp_path)["complete"]) == (0, False)
    assert report_of(tmp_path)["kernels"][FORWARD]["winner"] == FAST, "for this machine"
    assert "the project accepts reports of all kernels and lengths, without --kernel" in shown["said"]


def test_a_decode_over_8_bits_is_timed_on_its_own_kernel(play, made, tmp_path):
    shipped = made.add(CODED, {FAST: "", WRONG: EXP}, waves=2, queries=ROWS)
    small = "from flash_attn_rocm.tuning import bins; bins.DECODE_BATCH = 1"
    shown = play(f"{small}; tune(); shown['launched'] = kernels()")
    found = report_of(tmp_path)["kernels"][CODED]
    assert shown["status"] == 0, shown["said"]
    assert {row: each["state"] for row, each in found["candidates"].items()} == {
        FAST: "timed",
        WRONG: "wrong",
    }
    assert (found["shipped"], found["winner"]) == (shipped, FAST)
    assert [(each["kind"], each["width"]) for each in found["bins"]] == [("decode", 1), ("decode", 4)]
    assert {name for name in shown["launched"] if "decode" in name} == {CODED}


def test_without_a_faster_row_the_wheels_stays(play, made, tmp_path):
    shipped = made.add(FORWARD, {FAST: ""})
    shown = play("tune(apply=True)", told={"": 2.0, FAST: 1.97})
    assert report_of(tmp_path)["kernels"][FORWARD]["winner"] == shipped
    assert "No candidate is faster by 2% in a regime: the wheel's own rows are used." in shown["said"]


def test_applied_rows_are_checked_at_first_use_and_used(play, made, tmp_path):
    made.add(FORWARD, EVERY)
    shown = play("tune(apply=True)")
    kept = f"{FORWARD} row {FAST}: short +100.0%, causal +100.0%, gqa +100.0%"
    assert f"Used from now on, after a check at first use:\n  {kept}\nRemove " in shown["said"]
    text = """
called()
shown["in_use"] = in_use[0]
"""
    shown = play(text)
    assert (shown["in_use"], shown["launched"], shown["fallbacks"]) == (FAST, [FORWARD], [])
    assert f"; row {FAST} is used instead of " in shown["row"]
    assert shown["row"].endswith(
        f", kept by python -m flash_attn_rocm tune --apply for causal calls on {ARCH} with 0 compute units"
    )
    assert cached(tmp_path, "canary") == {}, "nothing is said about the wheel's rows"
    assert play(text)["in_use"] == FAST
    shown = play("tune(forget=True); called(); shown['in_use'] = in_use[0]")
    assert (shown["in_use"], "instead" in shown["row"]) == ("", False)


# FAST is faster in causal calls, SLOW in those with shared heads. The others keep the wheel's row.
BY_REGIME = """
from flash_attn_rocm.tuning import bins
call_of, current = bins.call_of, []
def remembered_call(each, *rest):
    current[:] = [bins.regime_of(each)]
    return call_of(each, *rest)
bins.call_of = remembered_call
def clock(call, where):
    call()
    return 1e-3 if (current[0], in_use[0]) in (("causal", FAST), ("gqa", SLOW)) else 2e-3
tune(apply=True)
"""
# The row that serves each kind of call: a launch takes code and rows of its regime.
SERVED = """
placed = {}
_replace = candidates.REPLACE
def replaced(device, kernel, row, code, place, rows, threads, regime):
    _replace(device, kernel, row, code, place, rows, threads, regime)
    placed[regime] = row
candidates.REPLACE = replaced
called()
with kernels_on_host_memory(fake_hip):
    shown["rows"] = {}
    for name, heads_k, causal in (("causal", 4, True), ("gqa", 2, False), ("short", 4, False)):
        q, k = (torch.randn(1, 17, heads, 64).half() for heads in (4, heads_k))
        shown["rows"][name] = explain(q, k, k, causal=causal).row
shown["placed"] = placed
"""


def test_each_regime_keeps_its_own_row(play, made, tmp_path):
    made.add(FORWARD, {FAST: "", SLOW: ""})
    names = f"FAST, SLOW = {FAST!r}, {SLOW!r}\n"
    shown = play(names + BY_REGIME)
    assert f"{FORWARD} row {FAST}: causal +100.0%\n  {FORWARD} row {SLOW}: gqa +100.0%\n" in shown["said"]
    [file] = (tmp_path / "cache").rglob("rows-*.json")
    kept = json.loads(file.read_text())["kernels"][FORWARD]
    assert {regime: each["row"] for regime, each in kept.items()} == {"causal": FAST, "gqa": SLOW}
    shown = play(SERVED)
    assert shown["placed"] == {"": "", "causal": FAST, "gqa": SLOW}, "checked in all calls, then placed"
    assert f"; row {FAST} is used instead of " in shown["rows"]["causal"]
    assert f"; row {SLOW} is used instead of " in shown["rows"]["gqa"]
    assert "used instead" not in shown["rows"]["short"]


def test_each_regimes_row_is_checked_at_first_use(play, made):
    """The check has no call of many regimes, and has all kept rows in all of its calls."""
    made.add(FORWARD, {FAST: "", SLOW: ""})
    play(f"FAST, SLOW = {FAST!r}, {SLOW!r}\n" + BY_REGIME)
    made.change(FORWARD, SLOW, *EXP)
    shown = play(SERVED)
    assert shown["placed"] == {"": ""}
    assert "is not used: a check at first use found: " in shown["rows"]["causal"]
    assert shown["fallbacks"] == []


FAILURES = {
    "wrong": "made.change(FORWARD, FAST, *EXP)",
    "does not load": "made.forget_disassembly(FAST)",
    "gone": "made.package.rename(made.site / 'gone')",
    "another list": "made.listed['kernels'].pop(SMALL); made.write()",
}


@pytest.mark.parametrize("why", FAILURES)
def test_a_kept_row_that_fails_later_leaves_the_wheels_kernels(play, made, tmp_path, why):
    """Also in the next process: its failure is no finding about the wheel's kernels."""
    for kernel in (FORWARD, SMALL):
        made.add(kernel, {FAST: ""})
    play(f"tune({FORWARD!r}, apply=True)")
    exec(FAILURES[why])
    for _ in range(2):
        shown = play("called(); shown['in_use'] = in_use[0]")
        assert (shown["in_use"], shown["launched"], shown["fallbacks"]) == ("", [FORWARD], [])
        assert f"; row {FAST}, kept by python -m flash_attn_rocm tune --apply, is not used: " in shown["row"]
    assert {each["state"] for each in cached(tmp_path, "canary").values()} == {"passed"}


# Both kernels of a family, what is in the place of each, and what explain says of each.
FAMILY = """
placed = {}
_replace = candidates.REPLACE
def replaced(device, kernel, row, *rest):
    _replace(device, kernel, row, *rest)
    placed[kernel] = row
candidates.REPLACE = replaced
called()
with kernels_on_host_memory(fake_hip):
    where = torch.device("cpu")
    shown["rows"] = [support.row_words(where, path, "fp16", 64, "causal") for path in ("tiled", "tall")]
shown["placed"] = placed
"""


@pytest.mark.parametrize("wrong", [FORWARD, TALL])
def test_one_kept_row_that_fails_takes_all_of_its_family_out(play, made, tmp_path, wrong):
    made.add(FORWARD, {FAST: ""})
    made.add(TALL, {FAST: ""}, waves=8)
    play(f"tune({FORWARD!r}, {TALL!r}, apply=True)")
    shown = play(FAMILY)
    assert shown["placed"] == {FORWARD: FAST, TALL: FAST}
    assert all(f"; row {FAST} is used instead of " in each for each in shown["rows"])
    made.change(wrong, FAST, *EXP)
    for file in (tmp_path / "cache").rglob("tuned/*.json"):
        if not file.name.startswith("rows-"):
            file.unlink()  # what was found about the right rows
    for _ in range(2):
        shown = play(FAMILY)
        assert set(shown["placed"].values()) == {""}
        assert all("is not used: a check at first use found: " in each for each in shown["rows"])
        assert (shown["launched"], shown["fallbacks"]) == ([FORWARD], [])
    assert {each["state"] for each in cached(tmp_path, "canary").values()} == {"passed"}


def test_a_failure_of_an_earlier_process_excuses_no_kernel_of_the_wheel(play, made, tmp_path):
    made.add(FORWARD, {FAST: ""})
    play("tune(apply=True)")
    made.change(FORWARD, FAST, *EXP)
    play("called()")
    for file in (tmp_path / "cache").rglob("canary/*.json"):
        file.unlink()
    play('fake_hip.fail("hipModuleLaunchKernel=719"); called()')
    assert {each["state"] for each in cached(tmp_path, "canary").values()} == {"failed"}


@pytest.mark.parametrize("how", ["forget=True", "apply=True"])
def test_findings_about_kept_rows_end_with_them(play, made, tmp_path, how):
    made.add(FORWARD, {FAST: ""})
    play("tune(apply=True)")
    failing = """
tuned.candidates.use = lambda *_: (_ for _ in ()).throw(RuntimeError("busy"))
called()
"""
    assert "is not used: a check at first use found: busy" in play(failing)["row"]
    play(f"tune({how})")
    shown = play("tune(apply=True); called(); shown['in_use'] = in_use[0]")
    assert shown["in_use"] == FAST


GPU = """
def gpu(where, name="MI300X", units=304, arch="gfx942"):
    return tuned.Gpu(arch, name, units)
HOST_MEMORY.gpu = gpu
"""
OTHERS = {
    "": True,
    'name="MI325X"': False,
    "units=38": False,  # a part of the GPU
    'arch="gfx950"': False,
}


@pytest.mark.parametrize("other", OTHERS)
def test_rows_are_kept_for_the_measured_gpu_alone(play, made, other):
    """Other GPUs run the same machine code, and were not measured."""
    made.add(FORWARD, {FAST: ""})
    play(f"{GPU}\ntune(apply=True)")
    changed = f"HOST_MEMORY.gpu = lambda where: gpu(where, {other})"
    shown = play(f"{GPU}\n{changed}\ncalled(); shown['in_use'] = in_use[0]")
    assert (shown["in_use"] == FAST) == OTHERS[other]
    assert ("on MI300X with 304 compute units" in shown["row"]) == OTHERS[other]


def test_after_a_row_that_broke_the_gpu_nothing_is_kept_about_the_wheels(play, made, tmp_path):
    """The runtime fails every launch after the candidate's, as after a fault."""
    made.add(FORWARD, {FAST: ""})
    play("tune(apply=True)")
    shown = play('fake_hip.fail("hipModuleLaunchKernel=719"); called()')
    assert shown["launched"] == []
    assert "the PyTorch implementation answers" in shown["fallbacks"][0]
    assert cached(tmp_path, "canary") == {}
    shown = play("called(); shown['in_use'] = in_use[0]")
    assert (shown["in_use"], shown["launched"], shown["fallbacks"]) == ("", [FORWARD], [])


def test_a_candidate_that_ends_the_process_is_left_out_by_the_next(play, made, tmp_path):
    made.add(FORWARD, {FAST: "", SLOW: ""})
    with pytest.raises(AssertionError, match="its process died"):
        play("run._judged = lambda *_: os._exit(1)\ntune()")
    shown = play("tune()")
    states = report_of(tmp_path)["kernels"][FORWARD]["candidates"]
    assert {row: each["state"] for row, each in states.items()} == {FAST: "endless", SLOW: "timed"}
    assert "an earlier process did not end with it" in states[FAST]["words"]
    assert shown["status"] == 0


def test_after_a_lost_gpu_the_same_command_goes_on(play, made, tmp_path):
    made.add(FORWARD, {FAST: "", SLOW: ""})
    text = """
checked = run._checked
def lost(*given):
    if in_use[0]:
        fake_hip.fail("hipModuleLaunchKernel=719")
    return checked(*given)
run._checked = lost
tune()
"""
    shown = play(text)
    assert shown["status"] == 1
    assert f"after {FORWARD} row {FAST} the GPU does not run the wheel's own kernel" in shown["said"]
    assert "next: run the same command again" in shown["said"]
    assert play("tune()")["status"] == 0
    states = report_of(tmp_path)["kernels"][FORWARD]["candidates"]
    assert {row: each["state"] for row, each in states.items()} == {FAST: "failed", SLOW: "timed"}


TIMING = """
plain = clock
def clock(call, where):
    if in_use[0] == FAST:
        END
    return plain(call, where)
tune()
"""
ENDS = {
    "os._exit(1)": "endless",
    "raise RuntimeError('HIP error: an illegal memory access')": "failed",
    "os.kill(os.getpid(), 15)": "timed",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_candidate_that_ends_a_longer_call_is_left_out_by_the_next(play, made, tmp_path, end):
    """The check's calls are small. A process that is ended from outside says nothing about the row."""
    made.add(FORWARD, {FAST: "", SLOW: ""})
    text = TIMING.replace("FAST", repr(FAST)).replace("END", end)
    if "_exit" in end:
        with pytest.raises(AssertionError, match="its process died"):
            play(text)
    else:
        shown = play(text)
        assert shown["status"] == (1 if "raise" in end else 130)
        assert ("failed while it was timed: HIP error" in shown["said"]) == ("raise" in end)
    assert play("tune()")["status"] == 0
    states = report_of(tmp_path)["kernels"][FORWARD]["candidates"]
    assert {row: each["state"] for row, each in states.items()} == {FAST: ENDS[end], SLOW: "timed"}


HANG = (r"s_endpgm", "s_branch 65535")  # to itself
KILLED = r"""
import subprocess
running = "$XDG_CACHE_HOME/flash_attn_rocm/tuned/tune-*.json"
wait = f"until grep -qs '\"running\": .\"' {running}; do sleep 0.1; done; sleep 2; kill -9 {os.getpid()}"
subprocess.Popen(["sh", "-c", wait])
tune()
"""


def test_a_kernel_that_hangs_until_the_process_is_killed_is_left_out_by_the_next(play, made, tmp_path):
    """The emulator computes in the calling thread: as a launch that never returns."""
    made.add(FORWARD, {FAST: HANG, SLOW: ""})
    with pytest.raises(AssertionError, match="its process died"):
        play(KILLED)
    shown = play("tune()")
    states = report_of(tmp_path)["kernels"][FORWARD]["candidates"]
    assert {row: each["state"] for row, each in states.items()} == {FAST: "endless", SLOW: "timed"}
    assert "an earlier process did not end with it" in states[FAST]["words"]
    assert shown["status"] == 0


def test_a_candidate_that_hangs_ends_the_run(play, made, tmp_path):
    """It may run still, and times would wait for it."""
    made.add(FORWARD, {FAST: "", SLOW: ""})
    shown = play("run._judged = lambda *_: (session.ENDLESS, 'it did not end')\ntune()")
    assert shown["status"] == 1
    assert f"{FORWARD} row {FAST} did not end\n  next: run the same command again" in shown["said"]


def test_ctrl_c_keeps_what_is_done(play, made, tmp_path):
    for kernel in (FORWARD, SMALL):
        made.add(kernel, {FAST: ""})
    text = """
plain = clock
def clock(call, where):
    if len(timed) == 4 * 4:
        raise KeyboardInterrupt
    return plain(call, where)
tune()
"""
    assert play(text)["status"] == 130
    assert [*report_of(tmp_path)["kernels"]] == [FORWARD]
    assert not report_of(tmp_path)["complete"]
    shown = play("tune(); shown['timed'] = len(timed)")
    assert (shown["status"], shown["timed"]) == (0, 4 * 4), "the second kernel alone"
    assert [*report_of(tmp_path)["kernels"]] == [FORWARD, SMALL]


def test_a_second_process_is_refused(play, made, tmp_path):
    made.add(FORWARD, {FAST: ""})
    play("tune()")
    [progress] = (tmp_path / "cache").rglob("tune-*.json")
    lock = progress.with_suffix(".pid")
    lock.write_text(str(os.getpid()))
    shown = play("tune()")
    assert shown["status"] == 1
    assert f"process {os.getpid()} tunes this GPU already" in shown["said"]
    assert str(lock) in shown["said"]
    lock.write_text(str(2**22 + 1))  # no process has it
    assert play("tune()")["status"] == 0
    text = f"Path({str(lock)!r}).write_text(str(os.getpid())); tune()"
    assert play(text)["status"] == 0, "a new container may have the number of the last one"
    assert not lock.exists()


def test_a_full_disk_loses_nothing(play, made, tmp_path):
    made.add(FORWARD, {FAST: ""})
    text = """
def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")
Path.write_text = full
tune(apply=True)
"""
    shown = play(text)
    assert shown["status"] == 1
    assert not (tmp_path / "report.json").exists()
    assert "report.json cannot be written: No space left on device" in shown["said"]
    report = json.loads(shown["said"][shown["said"].index('{\n "format"') :].rpartition("\n}\n")[0] + "\n}")
    assert report["kernels"][FORWARD]["winner"] == FAST
    assert "rows-" in shown["said"]


def test_what_is_missing_is_said(play, made):
    shown = play("tune()")
    assert shown["status"] == 1
    assert f"flash-attn-rocm-tuning-{ARCH} is damaged" in shown["said"]
    made.package.rename(made.site / "elsewhere")
    shown = play("tune()")
    assert f"flash-attn-rocm-tuning-{ARCH} is not installed" in shown["said"]
    assert f"next: python -m pip install flash-attn-rocm-tuning-{ARCH}==" in shown["said"]
    assert f"its maintainer runs scripts/wheel-builder tuning-wheel --arch {ARCH}" in shown["said"]


LISTS = {
    "another wheel": (
        lambda every: every["wheel"].update(libraries=["0" * 64], version="0.0.1"),
        "belongs to another wheel, flash-attn-rocm 0.0.1: ",
    ),
    "format": (lambda every: every.update(format=2), "format: expected 1, got 2"),
    "arch": (lambda every: every.update(arch="gfx90a"), "arch: expected gfx942, got gfx90a"),
    "a key more": (
        lambda every: every.update(more=1),
        "the list: expected exactly format, arch, wheel, kernels",
    ),
    "no kernels": (lambda every: every.update(kernels={}), "kernels: expected 1 to 128"),
    "file": (
        lambda every: every["kernels"][FORWARD]["code"].update(file="../x"),
        "file: expected fa_fwd_fp16_d64.hipfb, got ../x",
    ),
    "a kernel without rows": (
        lambda every: every["kernels"].update(
            fa_more=every["kernels"][FORWARD]
            | {"shipped": "none", "code": every["kernels"][FORWARD]["code"] | {"file": "fa_more.hipfb"}}
        ),
        "fa_more: shipped: expected a kernel with rows, got none",
    ),
    "threads": (
        lambda every: every["kernels"][FORWARD]["candidates"][FAST].update(threads=True),
        "threads: expected a number from 1 to 1024, got True",
    ),
}


@pytest.mark.parametrize("what", LISTS)
def test_a_wrong_list_is_refused(play, made, what):
    made.add(FORWARD, {FAST: ""})
    change, words = LISTS[what]
    change(made.listed)
    made.write()
    shown = play("tune()")
    assert shown["status"] == 1
    assert words in shown["said"]


def test_changed_code_is_refused_and_the_wheels_kernel_stays(play, made, tmp_path):
    made.add(FORWARD, {FAST: ""})
    file = made.package / f"{FORWARD}.hipfb"
    file.write_bytes(file.read_bytes() + b" ")
    assert play("tune(); called()")["fallbacks"] == []
    state = report_of(tmp_path)["kernels"][FORWARD]["candidates"][FAST]
    assert state["state"] == "failed"
    assert "the candidates' code is damaged: " in state["words"]

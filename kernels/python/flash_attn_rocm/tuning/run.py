"""Checks and times every candidate of this machine's GPU, kernel by kernel."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import torch

from flash_attn_rocm.canary import calls
from flash_attn_rocm.launch import backward_pass, forward_pass
from flash_attn_rocm.library import candidates, host, tuned
from flash_attn_rocm.library.candidates import Candidate, Candidates
from flash_attn_rocm.library.tuned import Gpu
from flash_attn_rocm.machine.remembered import CODED, MASKED, Family
from flash_attn_rocm.serving import machine
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.suite.target import EMULATED, ON_HARDWARE
from flash_attn_rocm.tools import this_machine
from flash_attn_rocm.tuning import bins, choice, clocks, timing
from flash_attn_rocm.tuning.bins import Sizes
from flash_attn_rocm.tuning.peer import Peer
from flash_attn_rocm.tuning.session import (
    ENDLESS,
    FAILED,
    TIMED,
    WRONG,
    Session,
    alone,
    ended_as_by_ctrl_c,
    opened,
)
from flash_attn_rocm.values.bins import Bin

FORMAT, REPORT = 1, "tuning"
SIZES = Sizes()


class TuneError(RuntimeError):
    """Nothing can be tuned. The message says why, and what to do."""


@dataclass(frozen=True)
class Wishes:
    """``kernels``: only these. ``runs``: samples of a row in each bin."""

    kernels: tuple[str, ...] = ()
    sizes: Sizes = SIZES
    runs: int = timing.RUNS


@dataclass(frozen=True)
class Tuning:
    """A run: where, of what, and how it is timed."""

    where: torch.device
    device: Device
    found: Candidates
    session: Session
    wishes: Wishes
    clock: timing.Clock
    peer: Peer
    say: Callable[[str], None]

    @property
    def number(self) -> int:
        return candidates.index_of(self.where)


def run(
    wishes: Wishes, say: Callable[[str], None], *, peer: Peer, clock: timing.Clock = timing.sample
) -> dict[str, Any]:
    """The report of all candidates. After Ctrl-C, that of the finished kernels.

    Raises TuneError, SessionError and CandidatesError.
    """
    where, facts = here()
    found = candidates.find(host.code_of(facts["arch"]))
    names = _named(found, wishes)
    device, mine = machine.current().device(where), machine.current().gpu(where)
    with alone(mine), ended_as_by_ctrl_c(), closing(peer):
        key = {"candidates": found.digest, "runs": wishes.runs, "sizes": wishes.sizes}
        session = opened(mine, key)
        tuning = Tuning(where, device, found, session, wishes, clock, peer, say)
        begin, before = time.perf_counter(), clocks.told(where)
        complete = _all(tuning, names)
        return {
            "format": FORMAT,
            "report": REPORT,
            "how": ON_HARDWARE if where.type == "cuda" else EMULATED,
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": _machine(where),
            **facts,
            "candidates": found.digest,
            "complete": complete and not wishes.kernels,
            "seconds": round(time.perf_counter() - begin, 3),
            "clocks": {"before": before, "after": clocks.told(where)},
            "kernels": {name: session.kernels[name] for name in names if name in session.kernels},
        }


def here() -> tuple[torch.device, Mapping[str, Any]]:
    """The GPU, and its description. Raises TuneError without one."""
    where = this_machine.device()
    facts = this_machine.describe(where)
    if not facts["arch"]:
        message = "tune needs an AMD GPU that PyTorch can use\n  next: python -m flash_attn_rocm doctor"
        raise TuneError(message)
    return where, facts


def gpu() -> Gpu:
    """The GPU that rows are kept for. Raises TuneError without one."""
    where, _ = here()
    return machine.current().gpu(where)


def _named(found: Candidates, wishes: Wishes) -> tuple[str, ...]:
    if unknown := sorted(set(wishes.kernels) - found.kernels.keys()):
        message = f"there are no candidates for {unknown[0]}; there are some for {', '.join(found.kernels)}"
        raise TuneError(message)
    return wishes.kernels or tuple(found.kernels)


def _machine(where: torch.device) -> str:
    """Tells machines apart, and nothing else: a digest of the GPU's name and number. "" without a number."""
    if where.type != "cuda":
        return ""
    number = getattr(torch.cuda.get_device_properties(where), "uuid", "")
    what = f"flash_attn_rocm tuning\n{torch.cuda.get_device_name(where)}\n{number}"
    return hashlib.sha256(what.encode()).hexdigest()[:16] if number else ""


def _all(tuning: Tuning, names: Sequence[str]) -> bool:
    """Whether it ended by itself."""
    kernels = {each.name: each for each in host.instances()}
    try:
        for number, name in enumerate(names):
            if name not in tuning.session.kernels:
                tuning.say(f"{number}/{len(names)} {name}")
                if result := _kernel(tuning, kernels[name], tuning.found.kernels[name]):
                    tuning.session.finish(name, result)
                if tuning.session.problem:
                    tuning.say(
                        f"{tuning.session.problem}\n  next: make room, or what was found ends with this run"
                    )
    except KeyboardInterrupt:
        tuning.say("interrupted: the same command goes on with the rest")
        return False
    return True


def _kernel(tuning: Tuning, kernel: host.Instance, of: candidates.Kernel) -> dict[str, Any] | None:
    """The result of a kernel. None if its bins do not fit into memory, or it is not timed."""
    wanted = bins.bins_of(kernel, tuning.wishes.sizes)
    if not wanted:
        return None
    if words := _problem(tuning, kernel):
        tuning.say(f"{kernel.name} is left out: the wheel's own kernel fails the check: {words}")
        return None
    try:
        good = _right(tuning, kernel, of)
        found = [each for every in wanted if (each := _bin(tuning, kernel, of, every, good))]
    finally:
        candidates.give_back(kernel.name, tuning.number)
    if not found:
        return None
    refused = tuning.session.refused.get(kernel.name, {})
    states = {row: refused.get(row, {"state": TIMED, "words": ""}) for row in of.candidates}
    return {
        "shipped": of.shipped,
        "winner": choice.winner(of.shipped, found),
        "candidates": states,
        "bins": found,
    }


def _right(tuning: Tuning, kernel: host.Instance, of: candidates.Kernel) -> list[Candidate]:
    """The candidates with right results.

    Raises TuneError if the wheel's own kernel does not run after a candidate: the GPU lost this process.
    """
    good: list[Candidate] = []
    session, refused = tuning.session, tuning.session.refused.get(kernel.name, {})
    for row, candidate in of.candidates.items():
        if row in refused:
            continue
        session.begin(kernel.name, row)
        try:
            state, words = _judged(tuning, kernel, candidate)
        except KeyboardInterrupt:
            session.end()  # it is not to blame
            raise
        if not state:
            good.append(candidate)
            session.end()
            continue
        session.refuse(kernel.name, row, state, words)
        tuning.say(f"{kernel.name} row {row} is out, {state}: {words}")
        candidates.give_back(kernel.name, tuning.number)
        if state == ENDLESS:  # it may run still, and be waited for by every time
            raise TuneError(_again(f"{kernel.name} row {row} did not end"))
        if state != WRONG and (words := _problem(tuning, kernel)):
            what = f"after {kernel.name} row {row} the GPU does not run the wheel's own kernel: {words}"
            raise TuneError(_again(what))
    return good


def _again(what: str) -> str:
    return f"{what}\n  next: run the same command again: it leaves this row out and goes on"


def _judged(tuning: Tuning, kernel: host.Instance, candidate: Candidate) -> tuple[str, str]:
    """What is wrong with a candidate: its state and words, or twice ""."""
    try:
        candidates.use(tuning.found, candidate, tuning.number)
    except RuntimeError as error:
        return FAILED, str(error).splitlines()[0]
    try:
        words = _checked(tuning, kernel)
    except RuntimeError as error:
        return FAILED, str(error).splitlines()[0]
    if not words:
        return "", ""
    return (ENDLESS if calls.endless("") in words else WRONG), words


def _problem(tuning: Tuning, kernel: host.Instance) -> str:
    """Why the wheel's own kernel cannot be used, or ""."""
    try:
        return _checked(tuning, kernel)
    except RuntimeError as error:
        return str(error).splitlines()[0]


def _checked(tuning: Tuning, kernel: host.Instance) -> str:
    """The check at first use, of the kernel in place."""
    family = Family(tuning.device.arch, kernel.dtype, kernel.head_dim, tuned.WORK[kernel.op])
    with torch.no_grad(), torch.device("cpu"):
        if family.work in ("", MASKED, CODED):
            return calls.attention_problem(family, forward_pass.answer, tuning.device, tuning.where)
        return calls.gradients_problem(family, backward_pass.checked, tuning.where)


def _bin(
    tuning: Tuning, kernel: host.Instance, of: candidates.Kernel, each: Bin, good: Sequence[Candidate]
) -> Mapping[str, Any] | None:
    """Times of a bin. None if it does not fit into memory."""
    try:
        candidates.give_back(kernel.name, tuning.number)
        call = bins.call_of(each, kernel, tuning.where, tuning.device)
        times = _times(tuning, kernel, of, call, good)
        del call
    except torch.OutOfMemoryError:
        tuning.say(f"{kernel.name}, {each}: out of memory")
        return None
    finally:
        if tuning.where.type == "cuda":
            with suppress(RuntimeError):  # of a lost GPU, about which the first error says more
                torch.cuda.empty_cache()
    sdpa = tuning.peer.timed(each, kernel.op, tuning.where, tuning.wishes.runs)
    if sdpa.ms is None:
        tuning.say(f"{kernel.name}, {each}: PyTorch's attention has no time: {sdpa.words}")
    found = {row: each._asdict() for row, each in times.items()}
    best = min(times, key=lambda row: times[row].ms)
    return {**each._asdict(), "times": found, "sdpa_ms": sdpa.ms, "winner": best}


def _times(
    tuning: Tuning, kernel: host.Instance, of: candidates.Kernel, call: bins.Call, good: Sequence[Candidate]
) -> dict[str, timing.Times]:
    """Times of all rows. A candidate that fails or hangs in these longer calls is out, too.

    Raises TuneError for one that fails: the GPU may be lost.
    """
    rows, session = {candidate.row: candidate for candidate in good}, tuning.session

    def use(row: str) -> None:
        if row in rows:
            session.begin(kernel.name, row)
            candidates.use(tuning.found, rows[row], tuning.number)
        else:
            session.end()
            candidates.give_back(kernel.name, tuning.number)

    runs, clock = tuning.wishes.runs, tuning.clock
    try:
        with torch.no_grad():
            times = timing.compared([of.shipped, *rows], use, call, tuning.where, runs=runs, clock=clock)
    except (torch.OutOfMemoryError, KeyboardInterrupt):
        session.end()  # no row is to blame
        raise
    except RuntimeError as error:
        if not session.running:
            raise
        row, words = session.running[1], str(error).splitlines()[0]
        session.refuse(kernel.name, row, FAILED, words)
        raise TuneError(_again(f"{kernel.name} row {row} failed while it was timed: {words}")) from error
    session.end()
    return times

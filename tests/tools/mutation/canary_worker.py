"""Runs the check at first use on mutants, in the verify container and the numerics suite's folder.

    python -m mutation.canary_worker judge TASKS ANSWERS   a line of JSON for each mutant
    python -m mutation.canary_worker costs FILE [FAMILY...]  the cost of each check, default all

A task names a folder with a mutant's disassembly, its kernel, and a number that picks one of the families
that launch the kernel.  First comes the check of that family, as in the first call of a process.  Mutants
missed by it go through the corpus of that kernel and family, to find out whether they change a result.  Only
the bounds sanitizer is on, as it cannot be turned off. A mutant that leaves the tensors' memory is set aside,
because the hardware's behaviour is unknown there.
"""

import json
import os
import sys
import time
from pathlib import Path

import flash_attn_rocm
import torch
from flash_attn_rocm.canary import caches, reference, rows
from flash_attn_rocm.canary import calls as _canary_calls
from flash_attn_rocm.canary import fp8 as _canary_fp8
from flash_attn_rocm.canary import int8 as _canary_int8
from flash_attn_rocm.canary import latent as _canary_latent
from flash_attn_rocm.launch import append, backward_pass, forward_pass
from flash_attn_rocm.launch import fp8 as _fp8
from flash_attn_rocm.launch import int8 as _int8
from flash_attn_rocm.launch import latent as _latent
from flash_attn_rocm.library import plans
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.machine.remembered import Family
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.suite import backward_cases, forward_cases
from flash_attn_rocm.suite.caches.coded_append_cases import CODED_APPEND
from flash_attn_rocm.suite.caches.widen_cases import WIDENING
from flash_attn_rocm.suite.corpus import kernel_of
from flash_attn_rocm.suite.fuzz import draw, made
from flash_attn_rocm.suite.target import BACKWARD_OP, FUSED_OP, MASKED_BACKWARD_OP, UNEVEN_OP, arch
from flash_attn_rocm.values import kinds, paths

from mutation import calls
from mutation.forks import SHOWN, forked
from mutation.worker import warm_up

CPU = torch.device("cpu")
LATENT_OP, CODED_LATENT_OP, ROWS_OP, FP8_OP, INT8_OP = "mla", "mla_8bit", "mla_rows", "fwd_fp8", "fwd_int8"
PATHS = {BACKWARD_OP: paths.SEPARATE, UNEVEN_OP: paths.SEPARATE, FUSED_OP: paths.FUSED}
# A family's kind of work, by op.
WORK = {
    **PATHS, plans.MASKED: remembered.MASKED, MASKED_BACKWARD_OP: remembered.MASKED_GRADIENTS,
    LATENT_OP: remembered.LATENT, WIDENING: remembered.CODED, CODED_APPEND: remembered.CODED,
    FP8_OP: remembered.FP8, INT8_OP: remembered.INT8, CODED_LATENT_OP: remembered.CODED,
    ROWS_OP: remembered.ROWS,
}  # fmt: skip
WRITING = ("append", CODED_APPEND)
LATENT_OPS = (LATENT_OP, CODED_LATENT_OP, ROWS_OP)
GRADIENTS = (*PATHS.values(), remembered.MASKED_GRADIENTS)
# The launched kernels, by path of the plan.
OPS = {
    "matrix": {"fwd"}, "tiled": {"fwd"}, "split": {"decode", "combine"}, "reference": {"reference"},
    "tall": {"fwd_tall"}, "wide": {"fwd_wide", "combine"}, "uneven": {"fwd_uneven"},
    remembered.MASKED: {"fwd_masked", "mask_ranges"},
}  # fmt: skip
TABLES = (
    *((rows, name) for op, name in kinds.CANARY.items() if op not in (*LATENT_OPS, *WRITING)),
    (caches, "APPENDS"),
    (caches, "CODED_APPENDS"),
    (_canary_latent, "LATENT"),
    (_canary_latent, "CODED_LATENT"),
    (_canary_latent, "PACKED_LATENT"),
)
AGAINST_EXACT = "against float64"  # marks a failure beyond bits of equal elements
BOUNDS = ("out-of-bounds", "write-to-readonly")
SEEN, MISSED, FAR, BITS = "seen", "missed", "far", "last bits"
ASIDE, SAME = "set aside", "same"
REPEATS = 3  # of a measurement. The smallest counts


def family_of(case):
    """The family of kernels whose check comes before a call."""
    kernel, arch = case.kernel, os.environ["FA_FAKE_HIP_ARCH"]
    if kernel.op in WRITING:
        return Family(arch, kernel.dtype, 0, WORK.get(kernel.op, ""))
    if kernel.op in (*LATENT_OPS, FP8_OP, INT8_OP):
        return Family(arch, kernel.dtype, kernel.head_dim, WORK[kernel.op])
    op = plans.BACKWARD if kernel.op in PATHS else plans.FORWARD
    head_dim = plans.padded_head_dim(arch, kernel.dtype, case.head_dim, op)
    return Family(arch, kernel.dtype, head_dim, WORK.get(kernel.op, ""))


def families():
    """The families of the suite's calls."""
    return sorted({family_of(draw(*each)) for each in calls.corpus_of(arch())})


def picked(task):
    """One of the families that launch the kernel, and the suite's calls of both."""
    own = [(name, case, family_of(case)) for name, case in calls.corpus_for(task["kernel"])]
    able = sorted({family for *_, family in own})
    family = able[task["pick"] % len(able)]
    return family, [(name, case) for name, case, its in own if its == family]


def family_in_words(task):
    return str(picked(task)[0])


def problem(family, launching=lambda launch: launch):
    """The check's finding in words, or "".  ``launching`` makes the launcher from ours."""
    if family.head_dim == 0:
        return caches.append_problem(family, launching(append._by_kernel), CPU)
    if family.work in GRADIENTS:
        return _canary_calls.gradients_problem(family, launching(backward_pass.checked), CPU)
    device = Device(family.arch, 0)
    if family.work == remembered.LATENT:
        return _canary_latent.latent_problem(family, launching(_latent.answer), device, CPU)
    if family.work == remembered.CODED and family.head_dim == _latent.HEAD_DIM:
        return _canary_latent.coded_latent_problem(family, launching(_latent.answer), device, CPU)
    if family.work == remembered.ROWS:
        return _canary_latent.packed_latent_problem(family, launching(_latent.answer), device, CPU)
    if family.work == remembered.FP8:
        return _canary_fp8.fp8_problem(family, launching(_fp8.answer), device, CPU)
    if family.work == remembered.INT8:
        return _canary_int8.int8_problem(family, launching(_int8.answer), device, CPU)
    return _canary_calls.attention_problem(family, launching(forward_pass.answer), device, CPU)


def reaching(task, own):
    """Of the calls for attention, those that launch the kernel: others never run its mutant."""
    op = kernel_of(task["kernel"]).op
    for call in own:
        path = forward_pass.choose(
            call.inputs, call.options, Device(os.environ["FA_FAKE_HIP_ARCH"], 0)
        ).plan.path
        if call.inputs.attn_mask is not None:
            path = remembered.MASKED
        if op in OPS[call.path or path]:
            yield call


def leave_out(rows):
    """Leave rows out of the check, by their reasons."""
    for module, name in TABLES:
        setattr(module, name, tuple(row for row in getattr(module, name) if row.why not in rows))


def at_first_use(task):
    """A verdict and its words from the check at first use. None if it finds nothing."""
    leave_out(task["without"])
    attention_calls = _canary_calls.attention_calls
    _canary_calls.attention_calls = lambda family: reaching(task, attention_calls(family))
    with calls.on_emulator():
        try:
            words = problem(picked(task)[0])
        except RuntimeError as error:
            words = str(error)
            if any(each in words for each in BOUNDS):
                return [ASIDE, words[-SHOWN:]]
    return [SEEN, words[:SHOWN]] if words else None


def in_the_suite(task):
    """A verdict from the suite's calls: a changed result means a missed mutant."""
    with calls.on_emulator() as target:
        for (name, case), original in zip(suite_calls(task), task["digests"], strict=True):
            if calls.digest(target, case) == original:
                continue
            try:
                made(case, target.device).check(target, target.shown)
            except (AssertionError, RuntimeError) as error:
                if not any(each in str(error) for each in BOUNDS):
                    return [beyond(case, str(error)) or MISSED, f"{name}: {str(error)[:SHOWN]}"]
    return [SAME, "no result of the suite's calls changes"]


def suite_calls(task):
    """The suite's calls, ordered: last come those that show more than a small call.

    They have addresses more than 4 GiB apart, or bits of elements required to be equal.
    """
    return sorted(picked(task)[1], key=lambda pair: bool(beyond(pair[1])))


def digests(task):
    """A hash of the results of the suite's calls."""
    with calls.on_emulator() as target:
        return [calls.digest(target, case) for _, case in suite_calls(task)]


def beyond(case, words=""):
    """The part of a failure out of reach of small calls, "" if none. ``words`` are the failure's."""
    if getattr(case, "layout", "") in {forward_cases.FAR, backward_cases.ROWS_APART}:
        return FAR
    return BITS if case.values in backward_cases.ALIKE_CALLS and AGAINST_EXACT not in words else ""


class Judge:
    """Judges mutants. The original's results for a family's calls of a kernel are kept."""

    def __init__(self, original):
        self.original, self.digests = original, {}

    def verdict(self, task):
        """A verdict and words. The next process reports a crash or a hang of the check."""
        found = ended(at_first_use, task)
        if "ended" in found:
            return [SEEN, found["ended"]]
        if found["answer"]:
            return found["answer"]
        found = ended(in_the_suite, {**task, "digests": self.of_original(task)})
        return found.get("answer") or [MISSED, found["ended"]]

    def of_original(self, task):
        """Digests of the calls for judging a mutant."""
        key = (task["kernel"], task["family"])
        if key not in self.digests:
            self.digests[key] = ended(digests, {**task, "folder": self.original})["answer"]
        return self.digests[key]


def ended(work, task):
    """``forked``: a mutant may end its process, but an exception of ours is an error."""
    found = forked(work, task)
    if "raised" in found:
        message = f"{work.__name__} of {task['kernel']} in {task['folder']} raised {found['ended']}"
        raise RuntimeError(message)
    return found


def costs(names):
    """For each family its calls and launches, and the host's time besides the kernels, in ms of CPU."""
    return [cost(family) for family in families() if not names or str(family) in names]


def cost(family):
    """Measured with the kernels' results kept from a first time."""
    kept = []

    def noted(launch):
        return lambda *given, **path: kept.append(launch(*given, **path)) or kept[-1]

    with calls.on_emulator() as target:
        target.runtime.report()
        assert problem(family, noted) == ""
        launches = target.runtime.report().launches
        taken = min(replayed(family, kept) for _ in range(REPEATS))
    return {
        "family": str(family), "calls": len(kept), "launches": len(launches), "milliseconds": 1e3 * taken,
    }  # fmt: skip


def replayed(family, kept):
    reference.forget()
    results, begin = iter(kept), time.process_time()
    problem(family, lambda _: lambda *_, **_tall: next(results))
    return time.process_time() - begin


def main(what, *files):
    os.environ["FA_FAKE_HIP_CHECKS"] = ""
    flash_attn_rocm.set_strict(True)
    torch.set_num_threads(1)
    warm_up()
    if what == "costs":
        Path(files[0]).write_text(json.dumps(costs(files[1:])))
        return
    tasks, answers = (Path(file) for file in files)
    judge = Judge(os.environ["FA_FAKE_HIP_DISASSEMBLY"])
    for line in tasks.read_text().splitlines():
        task = json.loads(line)
        # In a process of its own: the runtime, once started here, would keep the code of the first task.
        task["family"] = ended(family_in_words, task)["answer"]
        verdict, words = judge.verdict(task)
        answer = {"id": task["id"], "verdict": verdict, "words": words, "family": task["family"]}
        with answers.open("a") as file:
            file.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

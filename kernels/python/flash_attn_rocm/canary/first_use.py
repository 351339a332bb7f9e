"""The check at first use: each machine tests its own kernels, as the project's CI has no GPU.

Before the first launch of a kernel family on a device, a few small calls are compared with the PyTorch
implementation (``canary.calls``). A wrong result, an exception or a hang disables the family. Separate
kernels then compute gradients in place of disabled fused ones. For all other disabled families the PyTorch
implementation answers. Later calls skip this module (``autograd.recall``) or cost one dictionary lookup.
"""

import threading
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import DEQUANTISED, DTYPES, Inputs, Options
from flash_attn_rocm.canary import caches, calls, fp8, int8, latent
from flash_attn_rocm.canary.caches import Append, Widened
from flash_attn_rocm.canary.calls import Answer, Backward
from flash_attn_rocm.canary.fp8 import Fp8
from flash_attn_rocm.canary.int8 import Int8
from flash_attn_rocm.canary.latent import Latent
from flash_attn_rocm.library import candidates, host, plans, tuned
from flash_attn_rocm.machine import environment, remembered
from flash_attn_rocm.machine.remembered import (
    CODED,
    FAILED,
    FP8,
    INT8,
    LATENT,
    MASKED,
    MASKED_GRADIENTS,
    PASSED,
    ROWS,
    RUNNING,
    Family,
)
from flash_attn_rocm.rewrite import dense_masks
from flash_attn_rocm.serving import capture, machine
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.serving.support import FAILURES, forget_reasons

OUT_OF_MEMORY = "failed: out of memory"  # of loads and launches, in HIP's words
_lock = threading.RLock()
_found: dict[tuple[torch.device, Family], str] = {}
_running: set[tuple[torch.device, Family]] = set()  # under the lock
# Where a kept row failed in this process: the wheel's kernels may fail after it, and are not to blame.
_shaken: set[torch.device] = set()


def failure(answer: Answer, inputs: Inputs, options: Options, device: Device) -> str | None:
    """Why the kernels for a call are disabled, or "". ``answer`` launches them.

    None, as of the functions below: not known yet, while a graph is captured or with too little memory.
    """
    dtype, where = DTYPES[inputs.q.dtype], inputs.q.device
    if inputs.coded and (found := codes_failure(answer, where, dtype, inputs.head_dim, device)) != "":
        return found
    masked = inputs.attn_mask is not None and dense_masks.is_read(inputs, options)
    op, work = (plans.MASKED, MASKED) if masked else (plans.FORWARD, "")
    head_dim = plans.padded_head_dim(device.arch, dtype, inputs.head_dim, op)
    family = Family(device.arch, dtype, head_dim, work)
    return _known(family, where, lambda where: calls.attention_problem(family, answer, device, where))


def codes_failure(
    answer: Answer, where: torch.device, dtype: str, head_dim: int, device: Device
) -> str | None:
    """Why the kernels that read codes of 8 bits are disabled, or "". ``answer`` launches them."""
    family = Family(device.arch, dtype, plans.padded_head_dim(device.arch, dtype, head_dim), CODED)
    return _known(family, where, lambda where: calls.attention_problem(family, answer, device, where))


def gradients_failure(
    backward: Backward, inputs: Inputs, options: Options, arch: str, path: str
) -> str | None:
    """Why the gradient kernels of a path are disabled, or "". ``backward`` launches them."""
    dtype, masked = DTYPES[inputs.q.dtype], dense_masks.is_read(inputs, options)
    op = plans.MASKED_BACKWARD if masked else plans.BACKWARD
    head_dim = plans.padded_head_dim(arch, dtype, inputs.head_dim, op)
    family = Family(arch, dtype, head_dim, MASKED_GRADIENTS if masked else path)
    return _known(family, inputs.q.device, lambda where: calls.gradients_problem(family, backward, where))


def append_failure(append: Append, inputs: Inputs, arch: str) -> str | None:
    """Why the kernels that write into such caches are disabled, or "". ``append`` launches one."""
    q = inputs.q
    family = Family(arch, DTYPES[q.dtype], 0, CODED if inputs.coded else "")
    return _known(family, q.device, lambda where: caches.append_problem(family, append, where))


def widening_failure(widened: Widened, q: Tensor, arch: str) -> str | None:
    """Why the kernels that widen caches of latent attention are disabled, or "". ``widened`` launches one."""
    family = Family(arch, DTYPES[q.dtype], q.shape[-1], CODED)
    return _known(family, q.device, lambda where: caches.widening_problem(family, widened, where))


def latent_failure(answer: Latent, q: Tensor, device: Device) -> str | None:
    """Why the kernels of latent attention are disabled, or "". ``answer`` launches them."""
    family = Family(device.arch, DTYPES[q.dtype], q.shape[-1], LATENT)
    return _known(family, q.device, lambda where: latent.latent_problem(family, answer, device, where))


def coded_latent_failure(answer: Latent, q: Tensor, device: Device) -> str | None:
    """Why those over caches of 8 bits are disabled, or "". ``answer`` launches them."""
    family = Family(device.arch, DTYPES[q.dtype], q.shape[-1], CODED)
    return _known(family, q.device, lambda where: latent.coded_latent_problem(family, answer, device, where))


def rows_failure(answer: Latent, q: Tensor, device: Device) -> str | None:
    """Why those over rows that hold their scales are disabled, or "". ``answer`` launches them."""
    family = Family(device.arch, DTYPES[q.dtype], q.shape[-1], ROWS)
    return _known(family, q.device, lambda where: latent.packed_latent_problem(family, answer, device, where))


def fp8_failure(answer: Fp8, q: Tensor, device: Device) -> str | None:
    """Why the kernels with products of fp8 are disabled, or "". ``answer`` launches one."""
    family = Family(device.arch, DTYPES[DEQUANTISED], q.shape[-1], FP8)
    return _known(family, q.device, lambda where: fp8.fp8_problem(family, answer, device, where))


def int8_failure(answer: Int8, q: Tensor, device: Device) -> str | None:
    """Why the kernels with products of int8 are disabled, or "". ``answer`` launches them."""
    family = Family(device.arch, DTYPES[q.dtype], q.shape[-1], INT8)
    return _known(family, q.device, lambda where: int8.int8_problem(family, answer, device, where))


def forget() -> None:
    """Check again."""
    _found.clear()
    _shaken.clear()
    tuned.REFUSED.clear()
    FAILURES.clear()
    forget_reasons()


def _known(family: Family, where: torch.device, problem: Callable[[torch.device], str]) -> str | None:
    """The words of a failure, "" for none, None if that is not known yet."""
    # Other threads may be compiling: torch.compiler.is_compiling() says so in all of them, and is not asked.
    key = (where, family)
    if (found := _found.get(key)) is not None:
        return found
    if not _wanted():
        return ""
    if capture.is_capturing(where):
        return None
    with _lock:  # other threads wait: a kept row may be in place that is not checked yet
        if key in _running:
            return ""  # the check's own launches come here too
        if key not in _found:
            _running.add(key)
            try:
                checked = _checked(family, where, problem)
            finally:
                _running.discard(key)
            if checked is None:
                return None
            _found[key] = checked
            if checked:
                FAILURES[family] = checked
                forget_reasons()
        return _found[key]


def _wanted() -> bool:
    return environment.switch(environment.CANARY, default=True) and machine.current().checks_kernels


def _checked(family: Family, where: torch.device, problem: Callable[[torch.device], str]) -> str | None:
    """The words of a failure, "" for a pass, None if the check could not decide."""
    if _kept_rows_pass(family, where, problem):
        return ""
    path = remembered.file_of(family, torch.version.hip or "")
    found = _judged(path, family, where, problem, keeps_failure=where not in _shaken)
    return remembered.in_words(family, found, path) if found else found


def _kept_rows_pass(family: Family, where: torch.device, problem: Callable[[torch.device], str]) -> bool:
    """Whether the rows kept by ``tune --apply`` are in use from now on. Else the wheel's are."""
    if not tuned.any_kept():
        return False
    gpu = machine.current().gpu(where)
    rows = tuned.rows_of(family, gpu)
    if not rows:
        return False
    kernels = dict.fromkeys(each.candidate.kernel for each in rows)
    path = remembered.file_of(family, torch.version.hip or "", sorted({each.candidate.row for each in rows}))
    passed, ran = False, remembered.read(path) is None
    try:
        found = _judged(path, family, where, lambda where: _problem_of(rows, where, problem))
        _give_back(kernels, where)
        passed = found == "" and not (found := _use(rows, where))
    finally:
        if not passed:
            _give_back(kernels, where)
    if passed:
        tuned.accept(gpu, kernels)
    else:
        if ran and found:
            _shaken.add(where)
        why = f"a check at first use found: {found}" if found else "too little memory to check it"
        tuned.refuse(gpu, kernels, f"{why} (kept in {path})")
    return passed


def _problem_of(
    rows: Iterable[tuned.Kept], where: torch.device, problem: Callable[[torch.device], str]
) -> str:
    """What is wrong with kept rows, in all calls: the check has calls of some regimes only."""
    own: dict[str, dict[str, tuned.Kept]] = {}
    for each in rows:
        own.setdefault(each.candidate.kernel, {})[each.candidate.row] = each._replace(regime="")
    for together in zip_longest(*(of.values() for of in own.values())):
        if found := _use(filter(None, together), where) or problem(where):
            return found
    return ""


def _use(rows: Iterable[tuned.Kept], where: torch.device) -> str:
    """Puts rows in the place of the wheel's, in their regimes. Why that failed, or ""."""
    try:
        found = candidates.find(host.code_of(machine.current().device(where).arch))
        for each in rows:
            candidates.use(found, each.candidate, candidates.index_of(where), each.regime)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def _give_back(kernels: Iterable[str], where: torch.device) -> None:
    for kernel in kernels:
        candidates.give_back(kernel, candidates.index_of(where))


def _judged(
    path: Path,
    family: Family,
    where: torch.device,
    problem: Callable[[torch.device], str],
    *,
    keeps_failure: bool = True,
) -> str | None:
    """The problem kept in ``path``, or found by the check and kept there. None if it could not decide."""
    kept = remembered.read(path)
    if kept is not None:
        return kept.words if kept.state == FAILED else ""
    if keeps_failure:
        remembered.write(path, family, RUNNING)
    try:
        with torch.no_grad(), torch.device("cpu"):  # for any default device
            found = problem(where)
    except RuntimeError as error:
        found = str(error).splitlines()[0]
        if isinstance(error, torch.OutOfMemoryError) or OUT_OF_MEMORY in found:
            remembered.forget(path)
            return None
    except BaseException:
        remembered.forget(path)
        raise
    if keeps_failure or not found:
        remembered.write(path, family, FAILED if found else PASSED, found)
    return found

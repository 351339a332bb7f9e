"""A check at first use: no GPU is in the project's CI, so each machine proves its own kernels.

Before the first launch of a family of kernels on a device a few small calls are compared with the PyTorch
implementation.  What is wrong, raises, or does not end switches the family off: the PyTorch implementation
answers from then on.  Later calls do not come here (``_recall``) or pay for one look into a dictionary.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from flash_attn_rocm import _capture, _ops, _plan, _remembered
from flash_attn_rocm._layout import Device
from flash_attn_rocm._options import DTYPES, Inputs, Options
from flash_attn_rocm._remembered import FAILED, PASSED, RUNNING, VARIABLE, Family
from flash_attn_rocm._support import FAILURES, Machine, forget_reasons

SECONDS = 30.0  # until calls that take milliseconds count as a hang
HALF_ULP = {"fp16": 2.0**-11, "bf16": 2.0**-8}
# Of out: kernels round the probabilities and their result, the PyTorch implementation rounds its result; and
# one more for scores that both round differently.  Each changes out by half a unit of v's largest at most.
ROUNDINGS = 4
# Log-sum-exps are sums in fp32, of scores below 16.
LSE_TOLERANCE = 2.0**-12
Answer = Callable[[Inputs, Options, Tensor | None, Device], tuple[Tensor, Tensor]]
_lock = threading.RLock()
_found: dict[tuple[torch.device, Family], str] = {}


def failure(answer: Answer, inputs: Inputs, device: Device) -> str:
    """Why the kernels for these inputs are switched off, or ""; ``answer`` launches them."""
    dtype = DTYPES[inputs.q.dtype]
    family = Family(device.arch, dtype, _plan.padded_head_dim(device.arch, dtype, inputs.q.shape[-1]))
    return _known(family, inputs.q.device, lambda where: _attention_problem(family, answer, device, where))


def append_failure(append: Callable[..., tuple[Tensor, ...]], q: Tensor, arch: str) -> str:
    """The same for the kernels that write into caches; ``append`` launches one."""
    family = Family(arch, DTYPES[q.dtype], 0)
    return _known(family, q.device, lambda where: _append_problem(family, append, where))


def forget() -> None:
    """Check again."""
    _found.clear()
    FAILURES.clear()
    forget_reasons()


def _known(family: Family, where: torch.device, problem: Callable[[torch.device], str]) -> str:
    key = (where, family)
    if (found := _found.get(key)) is not None:
        return found
    if not _wanted(where):
        return ""
    with _lock:
        if key not in _found:
            _found[key] = ""  # its own launches come here too
            if (checked := _checked(family, where, problem)) is None:
                del _found[key]
                return ""
            _found[key] = checked
            if checked:
                FAILURES[family.arch, family.dtype, family.head_dim] = checked
                forget_reasons()
        return _found[key]


def _wanted(where: torch.device) -> bool:
    if os.environ.get(VARIABLE, "") == "0" or torch.compiler.is_compiling() or _capture.is_capturing(where):
        return False
    return Machine.host_memory_arch is None or Machine.host_memory_canary


def _checked(family: Family, where: torch.device, problem: Callable[[torch.device], str]) -> str | None:
    """The words of a failure, "" when all is well, None when it could not be told."""
    path = _remembered.file_of(family, torch.version.hip or "")
    kept = _remembered.read(path)
    if kept is not None:
        return _remembered.in_words(family, kept.words, path) if kept.state == FAILED else ""
    _remembered.write(path, family, RUNNING)
    try:
        with torch.no_grad():
            found = problem(where)
    except torch.OutOfMemoryError:
        _remembered.forget(path)
        return None
    except RuntimeError as error:
        found = str(error).splitlines()[0]
    except BaseException:
        _remembered.forget(path)
        raise
    _remembered.write(path, family, FAILED if found else PASSED, found)
    return _remembered.in_words(family, found, path) if found else ""


def _attention_problem(family: Family, answer: Answer, device: Device, where: torch.device) -> str:
    for name, inputs, options in _calls(family):
        found = _ended(where, lambda: answer(_on(inputs, where), options, None, device))  # noqa: B023
        if found is None:
            return f"{name}: it did not end within {SECONDS:.0f} s"
        out, lse, _ = _ops.forward(inputs, options, None, want_probabilities=False)
        most = ROUNDINGS * HALF_ULP[family.dtype] * inputs.v.abs().max().item()
        wrong = _difference("out", found[0], out, most)
        if wrong := wrong or _difference("log-sum-exp", found[1], lse, LSE_TOLERANCE):
            return f"{name}: {wrong}"
    return ""


def _difference(what: str, found: Tensor, wanted: Tensor, most: float) -> str:
    error = (found.cpu().float() - wanted.float()).abs().max().item()
    if error <= most:  # which NaN is not
        return ""
    return f"{what} differs by {error:.3g} from the PyTorch implementation, and {most:.3g} is allowed"


def _calls(family: Family) -> Iterator[tuple[str, Inputs, Options]]:
    """Small calls that take the family's paths, on the CPU."""
    draw = torch.Generator().manual_seed(0)
    dtype = next(each for each, name in DTYPES.items() if name == family.dtype)

    def tensors(batch: int, rows: int, keys: int, wider: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        sizes = ((rows, 4), (keys, 2), (keys, 2))
        made = (torch.randn(batch, n, heads, family.head_dim + wider, generator=draw) for n, heads in sizes)
        q, k, v = (x.to(dtype)[..., : family.head_dim] for x in made)
        return q.contiguous(), k, v

    scale = family.head_dim**-0.5
    yield (
        "causal",
        Inputs(*tensors(1, 65, 129)),
        Options(scale, window_right=0, max_seqlen_q=65, max_seqlen_k=129),
    )
    windowed = Options(scale, 40, 8, softcap=5.0, max_seqlen_q=33, max_seqlen_k=70)
    yield "window, softcap, ALiBi", Inputs(*tensors(1, 33, 70), torch.tensor([0.5, 0.1, 0.02, 0.0])), windowed
    parts = Options(scale, max_seqlen_q=1, max_seqlen_k=257, num_splits=3)
    yield "decode in parts", Inputs(*tensors(1, 1, 257)), parts
    used = Inputs(*tensors(1, 5, 40, wider=1), seqused_k=torch.tensor([33], dtype=torch.int32))
    yield "unaligned cache", used, Options(scale, window_right=0, max_seqlen_q=5, max_seqlen_k=40)


def _on(inputs: Inputs, where: torch.device) -> Inputs:
    """On the device, with the strides that they have."""
    if where.type == "cpu":
        return inputs

    def moved(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        there = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=where)
        return there.copy_(x)

    return Inputs(*map(moved, inputs))


def _append_problem(family: Family, append: Callable[..., tuple[Tensor, ...]], where: torch.device) -> str:
    """What in-place appends with rotation do; they have the very bits of PyTorch's operators."""
    draw = torch.Generator().manual_seed(0)
    dtype = next(each for each, name in DTYPES.items() if name == family.dtype)
    sizes = ((2, 3, 4, 64), (2, 40, 2, 64), (2, 40, 2, 64), (2, 3, 2, 64), (2, 3, 2, 64), (48, 16), (48, 16))
    drawn = tuple(torch.randn(*each, generator=draw).to(dtype) for each in sizes)
    lengths, nothing = torch.tensor([0, 17], dtype=torch.int32), (None, None, None)
    for name, interleaved in (("append", False), ("append, interleaved", True)):
        ours, theirs = ([x.to(place, copy=True) for x in (*drawn, lengths)] for place in (where, "cpu"))
        results = _ended(where, lambda: append(*ours, interleaved))  # noqa: B023
        if results is None:
            return f"{name}: it did not end within {SECONDS:.0f} s"
        rotated = torch.ops.flash_attn_rocm.pytorch_append(*theirs, *nothing, interleaved, True)[0]  # noqa: FBT003
        pairs = {"q": (results[0], rotated), "k_cache": (ours[1], theirs[1]), "v_cache": (ours[2], theirs[2])}
        if wrong := [each for each, (one, other) in pairs.items() if not torch.equal(one.cpu(), other)]:
            return f"{name}: {', '.join(wrong)} differ from the PyTorch implementation"
    return ""


def _ended(where: torch.device, launch: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...] | None:
    """What a launch gives; None when the device does not end it in time."""
    if where.type != "cuda":
        return launch()
    # On a stream of its own, so that what does not end holds up nothing else.
    stream = torch.cuda.Stream(where)
    with torch.cuda.stream(stream):
        found = launch()
        event = torch.cuda.Event()
        event.record(stream)
    end = time.monotonic() + SECONDS
    while not event.query():
        if time.monotonic() > end:
            return None
        time.sleep(1e-4)
    return found

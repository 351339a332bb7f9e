"""Estimates of a launch's duration, and cuts of launches that are too long for Windows.

Windows resets a GPU after two seconds in one uninterruptible task (TDR, "timeout detection and recovery"),
and the process loses the GPU. WSL2 uses the driver of Windows, with the same reset. These are estimates
without measurements. They are cautious: launches are cut long before the limit.
"""

import math
import sys
from pathlib import Path
from typing import NamedTuple

from flash_attn_rocm.machine import driver
from flash_attn_rocm.machine.requirements import WINDOWS
from flash_attn_rocm.values import rates

# Windows allows two by default, and other programs' work may be in front of a launch.
LONGEST = 1.0  # seconds, by the estimate

# Share of a compute unit's peak FLOP, and of its part of the memory bandwidth. Measurements of other
# projects' attention on such GPUs: 6 % (RX 9060 XT, forward and backward) to 20 % (RX 7900 XTX, forward). Our
# model gives gfx1030's bf16 gradients a fifth of the peak. Laptops run at half of the nominal clocks.
SHARE = 0.05

# FLOP of the reference kernel per clock and compute unit. Each lane reads different rows, so a wave's load
# takes a clock per lane. Scores are computed three times. The cache holds only some of the rows that the
# lanes read side by side.
REFERENCE_FLOP = 0.25

# Why a call with dropout stays one launch.
OF_DROPOUT = "dropout's numbers depend on all heads of all sequences"
# per query, key and element: two products, and five in the longest gradient launch
FORWARD_FLOP, BACKWARD_FLOP = 4, 10


class Rate(NamedTuple):
    """The peak of a compute unit: fp16 product FLOP per clock, clocks per second, bytes per second.

    Clock and memory are those of the product that represents the arch in our model. Memory is a unit's share.
    """

    flop: int
    clock: int
    memory: int


RATES = {code: Rate(*found) for code, found in rates.RATES.items()}


class Work(NamedTuple):
    """The work of a call's longest launch.

    The call can be cut into ``batch`` sequences with ``heads`` heads of k each. Both are 1 if it must stay
    whole. ``whole`` has the reason. The whole call takes ``flop`` operations and moves ``memory`` bytes.
    """

    kind: str
    batch: int
    heads: int
    flop: int
    memory: int = 0
    reference: bool = False
    whole: str = ""


class Sizes(NamedTuple):
    """Sizes that determine a call's work.

    ``rows`` are rows of q: of all sequences if ``packed``, else of one.
    """

    batch: int
    rows: int
    max_seqlen_q: int
    max_seqlen_k: int
    nheads: int
    nheads_k: int
    head_dim: int
    window_left: int
    window_right: int
    packed: bool


def threaten(root: Path = Path("/")) -> bool:
    """Whether this machine resets busy GPUs. ``root`` contains /proc."""
    return sys.platform == WINDOWS or driver.is_wsl(root)


def forward(sizes: Sizes, *, reference: bool, splits: int, dropout: bool) -> Work:
    """The work of a forward call, at most: lengths in device tensors count as their maximum."""
    whole = OF_DROPOUT if dropout else ""
    if splits > 1:
        whole = "its keys are already split"
    keys = min(sizes.max_seqlen_k, _span(sizes))
    memory = 2 * 2 * sizes.batch * keys * sizes.nheads_k * sizes.head_dim
    kind = "forward by the slow kernel" if reference else "forward"
    return _work(kind, sizes, FORWARD_FLOP, whole)._replace(memory=memory, reference=reference)


def backward(sizes: Sizes, *, dropout: bool) -> Work:
    """The work of the longest gradient launch."""
    return _work("gradients", sizes, BACKWARD_FLOP, OF_DROPOUT if dropout else "")


def append(elements: int) -> Work:
    """The work of writing keys and values into a cache: reads and writes of ``elements`` each."""
    return Work("writing into a cache", 1, 1, 0, 2 * 2 * elements, whole="one launch writes all keys")


def seconds(work: Work, code: str, compute_units: int) -> float:
    """The longest estimated duration of a launch on a GPU that runs this arch's code, in seconds.

    0 if unknown: an unknown arch, or ``compute_units`` of 0 (host memory in tests).
    """
    if (rate := RATES.get(code)) is None or compute_units < 1:
        return 0.0
    flop = REFERENCE_FLOP if work.reference else rate.flop * SHARE
    return max(work.flop / (flop * rate.clock), work.memory / (rate.memory * SHARE)) / compute_units


def steps(work: Work, longest: float) -> tuple[int, int]:
    """Sequences and heads of k per launch, so that each launch takes at most LONGEST seconds.

    All sequences with all heads, several sequences with all heads, or some heads of one sequence. At least
    one head, even if it takes longer. ``longest``: the estimate for the whole call, in seconds.
    """
    if longest <= LONGEST:
        return work.batch, work.heads
    allowed = max(1, int(work.batch * work.heads * LONGEST / longest))
    if allowed >= work.heads:
        return _even(work.batch, allowed // work.heads), work.heads
    return 1, _even(work.heads, allowed)


def launches(work: Work, step: tuple[int, int]) -> int:
    """The number of launches."""
    return math.ceil(work.batch / step[0]) * math.ceil(work.heads / step[1])


def words(work: Work, code: str, compute_units: int) -> str:
    """For ``explain``: how long it may take, and whether it is cut."""
    longest = seconds(work, code, compute_units)
    step = steps(work, longest)
    count, part = launches(work, step), _part(work, step, longest)
    cut = "one launch" if count == 1 else f"divided into {count} launches, the longest"
    found = f"{cut} of at most {_shown(part)} by a cautious estimate"
    return f"{found}, and {_danger(work)}" if part > LONGEST else found


def warning(work: Work, code: str, compute_units: int) -> str:
    """The warning for a call with a launch above LONGEST seconds, or ""."""
    longest = seconds(work, code, compute_units)
    part = _part(work, steps(work, longest), longest)
    if part <= LONGEST:
        return ""
    return (
        f"{work.kind}: a launch may take up to {_shown(part)} on this GPU ({code}, {compute_units} "
        f"compute units; a cautious estimate, not a measurement), and {_danger(work)}. Split the batch or "
        "the heads over several calls, or raise TdrDelay in Windows' registry. This warning appears "
        "once for each kind of call."
    )


def pairs(rows: int, keys: int, left: int, right: int) -> int:
    """The most pairs of a query and a visible key in a window. -1 is no bound, causal is (-1, 0)."""
    found = rows * keys
    if left >= 0 and right >= 0:
        return min(found, rows * (left + right + 1))
    if right >= 0 and (more := rows - 1 - right) > 0:
        # Keys hidden by the right bound: 0 in the last rows, then one more for each earlier row.
        ramp = min(more, keys)
        found -= ramp * (ramp + 1) // 2 + (more - ramp) * keys
    return found


def _work(kind: str, sizes: Sizes, flop: int, whole: str) -> Work:
    each = pairs(sizes.max_seqlen_q, sizes.max_seqlen_k, sizes.window_left, sizes.window_right)
    all_pairs = sizes.batch * each
    if sizes.packed:
        # Sequences below the maximum length reduce the number of rows.
        all_pairs = min(all_pairs, -(-sizes.rows * each // max(sizes.max_seqlen_q, 1)))
    batch, heads = (1 if sizes.packed else sizes.batch, sizes.nheads_k) if not whole else (1, 1)
    return Work(kind, batch, heads, flop * sizes.head_dim * sizes.nheads * all_pairs, whole=whole)


def _span(sizes: Sizes) -> int:
    """The most keys that the queries of a sequence see in a window."""
    if sizes.window_left < 0 or sizes.window_right < 0:
        return sizes.max_seqlen_k
    return sizes.window_left + sizes.window_right + sizes.max_seqlen_q


THREATENED = threaten()  # once at import, so other machines pay nothing per call


def _part(work: Work, step: tuple[int, int], longest: float) -> float:
    return longest * step[0] * step[1] / max(work.batch * work.heads, 1)


def _danger(work: Work) -> str:
    why = f" (not divided, because {work.whole})" if work.whole else ""
    return f"Windows resets a GPU after two seconds{why}"


def _shown(found: float) -> str:
    return f"{found:.2g} s" if found < 100 else f"{found:.0f} s"


def _even(count: int, most: int) -> int:
    """A step of at most ``most``, for the fewest steps of about equal size."""
    return math.ceil(count / math.ceil(count / most))

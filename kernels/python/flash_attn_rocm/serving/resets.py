"""How long a launch may take, and where that is too long for Windows.

Windows resets a GPU that has been busy for two seconds with what it cannot interrupt (TDR, "timeout detection
and recovery"), and the process can use it no more.  In WSL2 the driver is that of Windows, and so is the
reset.  Nothing here was measured: estimates are cautious, so that launches are cut long before they have to
be.
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

# Of a compute unit's peak and of its share of the memory's bandwidth.  Attention of other projects that was
# measured on such GPUs has 6 % (RX 9060 XT, both directions) to 20 % (RX 7900 XTX, forward); gfx1030's bf16
# gradients have a fifth of the peak in our own model, and laptops run at half of the clocks on paper.
SHARE = 0.05

# FLOP of a clock and compute unit that the reference kernel gets done.  Each lane reads rows of its own, so
# that a load of a wave takes a clock for each lane; scores are computed three times; and rows that lanes walk
# through side by side do not all stay in the cache.
REFERENCE_FLOP = 0.25

# Why a call with dropout stays one launch.
OF_DROPOUT = "dropout's numbers depend on all heads of all sequences"
FORWARD_FLOP, BACKWARD_FLOP = 4, 10  # for each query, key and element: two products, and five of one launch


class Rate(NamedTuple):
    """The most that a compute unit does: FLOP of fp16 products in a clock, clocks and bytes in a second.

    Clock and memory are those of the product that the arch is modelled as, memory a unit's share.
    """

    flop: int
    clock: int
    memory: int


RATES = {code: Rate(*found) for code, found in rates.RATES.items()}


class Work(NamedTuple):
    """What the longest launch of a call does.

    ``batch`` sequences that may be launched apart, each with ``heads`` heads of k that may be, too; 1 and 1
    where ``whole`` says why not.  All together take ``flop`` operations and move ``memory`` bytes.
    """

    kind: str
    batch: int
    heads: int
    flop: int
    memory: int = 0
    reference: bool = False
    whole: str = ""


class Sizes(NamedTuple):
    """What a call's work follows from; ``rows`` are q's, of all sequences together where ``packed``."""

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
    """Whether this machine's GPUs are reset after a time; ``root`` is where its /proc begins."""
    return sys.platform == WINDOWS or driver.is_wsl(root)


def forward(sizes: Sizes, *, reference: bool, splits: int, dropout: bool) -> Work:
    """The work of a forward call; what cannot be told without its tensors' values is taken for the most."""
    whole = OF_DROPOUT if dropout else ""
    if splits > 1:
        whole = "its keys are already split"
    keys = min(sizes.max_seqlen_k, _span(sizes))
    memory = 2 * 2 * sizes.batch * keys * sizes.nheads_k * sizes.head_dim
    kind = "forward by the slow kernel" if reference else "forward"
    return _work(kind, sizes, FORWARD_FLOP, whole)._replace(memory=memory, reference=reference)


def backward(sizes: Sizes, *, dropout: bool) -> Work:
    """The same of gradients: of their longest launch."""
    return _work("gradients", sizes, BACKWARD_FLOP, OF_DROPOUT if dropout else "")


def append(elements: int) -> Work:
    """Of so many elements of new keys and values, which are read and written."""
    return Work("writing into a cache", 1, 1, 0, 2 * 2 * elements, whole="one launch writes all keys")


def seconds(work: Work, code: str, compute_units: int) -> float:
    """How long a launch may take on a GPU that runs the code of this arch.

    0 where there is nothing to go by: no such arch, or ``compute_units`` 0, as of host memory in tests.
    """
    if (rate := RATES.get(code)) is None or compute_units < 1:
        return 0.0
    flop = REFERENCE_FLOP if work.reference else rate.flop * SHARE
    return max(work.flop / (flop * rate.clock), work.memory / (rate.memory * SHARE)) / compute_units


def steps(work: Work, longest: float) -> tuple[int, int]:
    """Of how many sequences and heads of k one launch is, so that none takes longer than LONGEST.

    All sequences with all their heads, several with all, or some heads of one; one head where even that is
    too long.  ``longest`` is how long the whole work would take.
    """
    if longest <= LONGEST:
        return work.batch, work.heads
    allowed = max(1, int(work.batch * work.heads * LONGEST / longest))
    if allowed >= work.heads:
        return _even(work.batch, allowed // work.heads), work.heads
    return 1, _even(work.heads, allowed)


def launches(work: Work, step: tuple[int, int]) -> int:
    """How many launches that makes."""
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
    """What to tell of a call of which a launch may take longer than LONGEST; "" of any other."""
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
    """How many pairs of a query and a key a window leaves, at the most; -1 is no bound, causal is (-1, 0)."""
    found = rows * keys
    if left >= 0 and right >= 0:
        return min(found, rows * (left + right + 1))
    if right >= 0 and (more := rows - 1 - right) > 0:
        # Keys behind the diagonal and the window: of the last rows none, then one more a row.
        ramp = min(more, keys)
        found -= ramp * (ramp + 1) // 2 + (more - ramp) * keys
    return found


def _work(kind: str, sizes: Sizes, flop: int, whole: str) -> Work:
    each = pairs(sizes.max_seqlen_q, sizes.max_seqlen_k, sizes.window_left, sizes.window_right)
    all_pairs = sizes.batch * each
    if sizes.packed:
        # Sequences that are shorter than the longest have fewer rows together.
        all_pairs = min(all_pairs, -(-sizes.rows * each // max(sizes.max_seqlen_q, 1)))
    batch, heads = (1 if sizes.packed else sizes.batch, sizes.nheads_k) if not whole else (1, 1)
    return Work(kind, batch, heads, flop * sizes.head_dim * sizes.nheads * all_pairs, whole=whole)


def _span(sizes: Sizes) -> int:
    """How many keys the queries of a sequence see, of however many there are."""
    if sizes.window_left < 0 or sizes.window_right < 0:
        return sizes.max_seqlen_k
    return sizes.window_left + sizes.window_right + sizes.max_seqlen_q


THREATENED = threaten()  # asked once: where nothing is reset, no call pays for it


def _part(work: Work, step: tuple[int, int], longest: float) -> float:
    return longest * step[0] * step[1] / max(work.batch * work.heads, 1)


def _danger(work: Work) -> str:
    why = f" (not divided, because {work.whole})" if work.whole else ""
    return f"Windows resets a GPU after two seconds{why}"


def _shown(found: float) -> str:
    return f"{found:.2g} s" if found < 100 else f"{found:.0f} s"


def _even(count: int, most: int) -> int:
    """The step of as few steps as ``most`` allows, all of about one size."""
    return math.ceil(count / math.ceil(count / most))

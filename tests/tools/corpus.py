"""Picks fuzz cases by their executed instructions, and writes the corpus, suite/corpus.json of the package.

    python -m tests.tools.corpus [--count N] [--archs A,B] [--kernel fa_fwd_bf16] [WHEEL]

For each kernel it makes random calls (suite/fuzz.py) until they have every feature of the kernel and N in a
row execute nothing new.  From them it picks a set of low total cost in executed instructions. The set
executes every instruction and uses every feature covered by any call.  With a quarter of that total more, it
adds calls with the most outcomes of instructions (the emulator's core/run/outcomes.hpp).  WHEEL, by default
the newest in dist, is a release's, with its disassembly in the store.  With --kernel, the choice for other
kernels stays. So an arch with another's corpus can have calls of kernels missing from the other: --archs
gfx1201 --kernel fa_fwd_tall.
"""

import argparse
import functools
import itertools
import json
import operator
import os
import re
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.tools.built import BUILD, CHECKOUT, fake_hip_mounts, newest_wheel, verify_image
from wheel_builder.images.docker import Mount, run_in
from wheel_builder.machine_code.fake_hip.container import LIBRARY_INSIDE, PYTHON
from wheel_builder.tables.archs import known_archs

MORE = 0.25  # keeps the suite's time as it was before outcomes were known
SCORING = frozenset(
    {"window on the left", "window on the right", "causal", "softcap", "ALiBi", "dropout", "parts"}
)
# A tensor's beginning may depend on the other given tensors.
PLACED = frozenset({"several sequences"})
CORPUS = CHECKOUT / "kernels/python/flash_attn_rocm/suite/corpus.json"
RUN = """
python -m pip install --no-index --no-deps --quiet /wheel/*.whl
LD_PRELOAD=$PRELOAD python /tests/candidates.py $COUNT /out/candidates.json "$KERNEL"
"""


def choose(calls):
    """The calls to run: together they cover everything covered by any call.

    A call covers its features, their pairs by ``combined`` and, in each launched kernel, its executed
    instructions.  MORE of their time goes to calls with the most additional outcomes.
    """
    taken = []
    for kernel in dict.fromkeys(call["kernel"] for call in calls):
        own = [call for call in calls if call["kernel"] == kernel]
        costs, covered, outcomes = [call["executed"] for call in own], masks(own), outcome_masks(own)
        first = once(covered, costs)
        numbers = with_more(first, outcomes, costs, MORE * sum(costs[number] for number in first))
        taken += (own[number] for number in numbers)
    return sorted(taken, key=lambda call: (call["kernel"], call["number"]))


def with_more(taken, outcomes, costs, most):
    """``taken`` and the calls with the most additional outcomes, at a further cost of ``most``."""
    taken, spent = list(taken), 0
    missing = functools.reduce(operator.or_, outcomes, 0) & ~functools.reduce(
        operator.or_, (outcomes[number] for number in taken), 0
    )
    while missing:
        able = [n for n, cost in enumerate(costs) if spent + cost <= most and outcomes[n] & missing]
        if not able:
            break
        best = max(able, key=lambda n: (outcomes[n] & missing).bit_count() / max(costs[n], 1))
        taken.append(best)
        missing &= ~outcomes[best]
        spent += costs[best]
    return taken


def outcome_masks(calls):
    """For each call, its outcomes of instructions as bits of a number."""
    return joined([call.get("outcomes", {}) for call in calls])


def joined(rows):
    """Numbers by kernel as one number, for each row."""
    widths = defaultdict(int)
    for row in rows:
        for kernel, digits in row.items():
            widths[kernel] = max(widths[kernel], int(digits, 16).bit_length())
    return [
        functools.reduce(
            lambda bits, kernel, row=row: bits << widths[kernel] | int(row.get(kernel, "0"), 16),
            sorted(widths), 0,
        )
        for row in rows
    ]  # fmt: skip


def masks(calls):
    """For each call, its coverage as bits of a number."""
    combinations = [combined(call["features"]) for call in calls]
    features = sorted(set().union(*combinations))
    executed = joined([call["ran"] for call in calls])
    own = [sum(1 << n for n, feature in enumerate(features) if feature in each) for each in combinations]
    return [bits << len(features) | each for bits, each in zip(executed, own, strict=True)]


def combined(features):
    """``features``, and each pair of those that work on scores.

    Both ways of a branch may lead through the same instructions. A wrong way shows only where two features
    meet, such as a window's edge in a tile with ALiBi.  A read through the wrong pointer shows only if the
    others are given and the right one is absent.
    """
    scoring = sorted(SCORING.intersection(features))
    pairs = [*itertools.combinations(scoring, 2), *itertools.product(PLACED.intersection(features), scoring)]
    return {*features, *(f"{one} with {other}" for one, other in pairs)}


def once(shows, costs):
    """Numbers of calls that together cover all of ``shows``, at low cost."""
    missing = functools.reduce(operator.or_, shows, 0)
    taken = []
    while missing:
        best = max(range(len(shows)), key=lambda n: (shows[n] & missing).bit_count() / max(costs[n], 1))
        taken.append(best)
        missing &= ~shows[best]
    return without_needless(taken, shows)


def without_needless(taken, shows):
    """``taken`` without redundant calls. Calls taken last are examined first."""
    kept = list(taken)
    for number in reversed(taken):
        others = functools.reduce(operator.or_, (shows[each] for each in kept if each != number), 0)
        if not shows[number] & ~others:
            kept.remove(number)
    return kept


def candidates(wheel, arch, count, kernel, out):
    """Run ``candidates.py`` in the verify container. Returns its findings."""
    env = {
        "FA_FAKE_HIP_ARCH": known_archs()[arch].device_name, "FA_FAKE_HIP_DISASSEMBLY": "/disassembly",
        "FA_FAKE_HIP_THREADS": str(os.cpu_count()), "PYTHONPATH": PYTHON, "PRELOAD": LIBRARY_INSIDE,
        "COUNT": str(count), "KERNEL": kernel, "FA_FAKE_HIP_OUTCOMES": "1", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    mounts = (
        *fake_hip_mounts(wheel),
        Mount(CHECKOUT / "tests/installed/numerics", "/tests"),
        Mount(out, "/out", writable=True),
    )
    log = BUILD / "logs" / f"candidates-{arch}.log"
    run_in(verify_image(), ["sh", "-euc", RUN], mounts=mounts, env=env, log=log)
    return json.loads((out / "candidates.json").read_text())


def report(found, taken):
    """The executed share of each kernel under the corpus, and the calls with a wrong answer."""
    ran = defaultdict(int)
    for call in taken:
        for kernel, digits in call["ran"].items():
            ran[kernel] |= int(digits, 16)
    for kernel, size in found["kernels"].items():
        yield f"{found['arch']} {kernel}: {ran[kernel].bit_count()} of {size} instructions"
    for call in found["calls"]:
        if call["failure"]:
            yield f"WRONG {call['kernel']} {call['number']}: {call['failure']}"


def by_kernel(taken):
    numbers = defaultdict(list)
    for call in taken:
        numbers[call["kernel"]].append(call["number"])
    return dict(numbers)


def merged(before, found):
    """Adds the findings for some kernels. An arch with another's corpus gets a separate entry."""
    if isinstance(before, str):
        return {"like": before, "kernels": found}
    return {**before, "kernels": {**before["kernels"], **found}} if "like" in before else {**before, **found}


def to_text(numbers):
    """The file's text: each kernel's cases are a line."""
    text = json.dumps(numbers, indent=1, sort_keys=True)
    return re.sub(r"\[[\d,\s]+\]", lambda match: json.dumps(json.loads(match[0])), text) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--kernel", default="", help="only kernels whose name has this in it")
    parser.add_argument("--archs", help="default: those that share no other's corpus")
    args = parser.parse_args()
    wheel = args.wheel or newest_wheel()
    numbers = json.loads(CORPUS.read_text()) if CORPUS.exists() else {}
    shared = {arch for arch, each in numbers.items() if isinstance(each, str) or "like" in each}
    own = [arch for arch in known_archs() if arch not in shared]
    for arch in args.archs.split(",") if args.archs else own:
        with tempfile.TemporaryDirectory() as name:
            out = Path(name)
            out.chmod(0o777)
            found = candidates(wheel, arch, args.count, args.kernel, out)
        taken = choose(found["calls"])
        print(*report(found, taken), sep="\n")  # noqa: T201
        numbers[arch] = merged(numbers.get(arch, {}), by_kernel(taken)) if args.kernel else by_kernel(taken)
        CORPUS.write_text(to_text(numbers))


if __name__ == "__main__":
    main()

"""python -m tests.tools.mutation.canary [--wheel WHEEL] [--arch gfx942] [--kernel fa_fwd] [--seed 0]
    [--count 24]

The share of mutants caught by the check at first use (canary/first_use.py), of those that change a result of
the numerics suite's calls.  Prints a table by arch and op, the cost of the check, and each missed mutant.
The exit code is 1 if an arch has less than 98 %. It is also 1 for an op with less, if so many mutants were
judged that one is less than 2 %.

The check's findings are beyond its tolerances, so the suite judges only the mutants missed by it.  The score
leaves out changes invisible in small calls: those that matter only where a tensor spans more than 4 GiB
("far"), and those of the last bits of elements known to be equal ("last bits"). The last column counts them
as missed.  Both leave out mutants without an effect, and those that leave the tensors' memory, because the
hardware's behaviour is unknown there ("set aside").
"""

import json
import shutil
import sys
from collections import Counter, defaultdict

from tests.tools.built import newest_wheel
from tests.tools.mutation.bench import say, set_up
from tests.tools.mutation.containers import judged, lay_out, work
from tests.tools.mutation.mutants import KINDS, mutated_listing, name_of
from tests.tools.mutation.options import archs_of, parser_of
from tests.tools.mutation.sample import draw, listings_of

LEAST = 0.98
LIMIT = 300  # seconds for one mutant
WORKER = "mutation.canary_worker"
VERDICTS = ("seen", "missed", "far", "last bits", "set aside", "same")
SEEN, MISSED, FAR, BITS, _, SAME = VERDICTS
ALL = "all"
ENOUGH = 50  # of an op: with fewer, one missed mutant is more than 2 %
# About a fifth of all mutants changes nothing. More of an arch run the original's code.
MOST_SAME, OF_AT_LEAST = 0.75, 20
# On the emulator loads arrive at once, so missing waits change nothing.
CHANGING = [kind for kind in KINDS if kind != "wait"]
SCORES = "{:<8} {:<12} {:>7} {:>6} {:>6} {:>4} {:>9} {:>9} {:>5} {:>7} {:>7}"
COSTS = "{:<8} {:<48} {:>5} {:>8} {:>12}"


def main():
    options = parsed()
    wheel = options.wheel or newest_wheel()
    bench, rows, costs = set_up(wheel.resolve()), [], []
    options.kind = options.kind or CHANGING
    for arch in archs_of(options, bench.archs):
        with bench.alone(arch):
            own = run_arch(bench, arch, options)
            costs += costs_of(bench, arch, sorted({row["family"] for row in own}))
        refuse_blind(arch, own)
        rows += own
        options.json.parent.mkdir(parents=True, exist_ok=True)
        found = {"seed": options.seed, "mutants": rows, "costs": costs}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(as_text(rows), costs_as_text(costs), sep="\n\n")  # noqa: T201
    return 1 if below(rows, LEAST) else 0


def parsed():
    parser = parser_of("python -m tests.tools.mutation.canary", __doc__, "canary.json")
    parser.add_argument("--count", type=int, default=24, help="mutants of each op of each arch")
    parser.add_argument(
        "--without", action="append", default=[], metavar="ROW",
        help="leave out a call of the check (canary/rows.py), to see that it is needed",
    )  # fmt: skip
    return parser.parse_args()


def run_arch(bench, arch, options):
    """A row for each mutant: its change, its verdict, and the words of the finding."""
    listings, mutants = listings_of(bench, arch, options.kernel), []
    for own in by_op(listings).values():
        mutants += draw(bench, arch, own, options)
    say(f"{arch}: {len(mutants)} mutants of {len({mutant.file for mutant in mutants})} kernels")
    tasks = [
        {
            "id": number, "kernel": mutant.kernel, "limit": LIMIT, "pick": mutant.line,
            "without": options.without,
            "folder": lay_out(bench, number, mutant, mutated_listing(listings[mutant.file], mutant)),
        }
        for number, mutant in enumerate(mutants)
    ]  # fmt: skip
    answers = judged(bench, arch, tasks, jobs=options.jobs, worker=WORKER)
    return [
        {
            "name": mutant.name,
            "arch": arch,
            "op": op_of(mutant.kernel),
            "kind": mutant.kind,
            **answers[number],
        }
        for number, mutant in enumerate(mutants)
    ]


def refuse_blind(arch, rows):
    """Whether mutants ran at all: one without an effect looks like one that was not loaded."""
    same = counts(rows)[SAME]
    if len(rows) >= OF_AT_LEAST and same > MOST_SAME * len(rows):
        message = f"{arch}: {same} of {len(rows)} mutants change no result: did the worker load their code?"
        raise SystemExit(message)


def by_op(listings):
    found = defaultdict(dict)
    for file, text in listings.items():
        found[op_of(name_of(text))][file] = text
    return found


def op_of(kernel):
    """fwd of fa_fwd_fp16_d64."""
    return kernel.removeprefix("fa_").split("_fp16")[0].split("_bf16")[0]


def costs_of(bench, arch, families):
    """The cost of these families' checks."""
    out = bench.folder / f"canary-costs-{arch}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    work(bench, arch, [WORKER, "costs", "/out/costs.json", *families], out)
    return [{"arch": arch, **each} for each in json.loads((out / "costs.json").read_text())]


def counts(rows):
    """The number of each verdict."""
    return Counter(row["verdict"] for row in rows)


def judged_of(rows, *more):
    """The number that change a result within reach of a small call, and those with ``more`` verdicts."""
    return sum(counts(rows)[verdict] for verdict in (SEEN, MISSED, *more))


def score(rows, *more):
    """The share of caught mutants among the judged ones. 1 if none was judged."""
    return counts(rows)[SEEN] / judged_of(rows, *more) if judged_of(rows, *more) else 1.0


def groups(rows):
    """The rows of each arch and op, and of each arch."""
    found = defaultdict(list)
    for op in ("op", None):
        for row in rows:
            found[row["arch"], row[op] if op else ALL].append(row)
    return found


def below(rows, least):
    """The archs, and the ops with enough judged mutants, whose score is below ``least``."""
    return [
        (arch, op)
        for (arch, op), own in groups(rows).items()
        if score(own) < least and (op == ALL or judged_of(own) >= ENOUGH)
    ]


def as_text(rows):
    """The scores, and each missed mutant."""
    lines = [SCORES.format("arch", "op", "mutants", *VERDICTS, "score", "of all")]
    for (arch, op), own in groups(rows).items():
        each = [counts(own)[verdict] for verdict in VERDICTS]
        lines.append(
            SCORES.format(arch, op, len(own), *each, f"{score(own):.1%}", f"{score(own, FAR, BITS):.1%}")
        )
    for verdict in (MISSED, FAR, BITS):
        missed = [row for row in rows if row["verdict"] == verdict]
        lines += [f"{verdict}: {row['name']} ({row['family']}; {row['words']})" for row in missed]
    return "\n".join(lines)


def costs_as_text(costs):
    """The cost of each family's check. Milliseconds are of CPU, without the kernels."""
    lines = [COSTS.format("arch", "check of", "calls", "launches", "ms of host")]
    for each in costs:
        numbers = (each["calls"], each["launches"], f"{each['milliseconds']:.0f}")
        lines.append(COSTS.format(each["arch"], each["family"], *numbers))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

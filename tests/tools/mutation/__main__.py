"""python -m tests.tools.mutation [--wheel WHEEL] [--arch gfx942] [--kernel fa_fwd] [--seed 0] [--count 40]

Prints a table by arch and kind, then each mutant that was not killed.  The exit code is 1 if an arch's score
is below 98 %.
"""

import json
import sys

from tests.tools.built import newest_wheel
from tests.tools.mutation.bench import CHECKOUT, say, set_up
from tests.tools.mutation.containers import baseline, judged, lay_out
from tests.tools.mutation.mutants import mutated_listing
from tests.tools.mutation.options import archs_of, parser_of
from tests.tools.mutation.sample import draw, listings_of
from tests.tools.mutation.table import AS_EXACT, KILLED, NOT_JUDGED, SURVIVED, as_text, below
from wheel_builder.base.errors import WheelBuilderError
from wheel_builder.machine_code.disassembly.listing import Listing
from wheel_builder.machine_code.static_checks.check import check_listings
from wheel_builder.machine_code.static_checks.golden import GOLDEN, parse_golden

LEAST = 0.98  # the score of an arch
# Of one mutant, in seconds. The calls of an unchanged kernel take some.
LIMIT = 300


def main():
    options = parsed()
    wheel = options.wheel or newest_wheel()
    bench = set_up(wheel.resolve())
    rows = []
    for arch in archs_of(options, bench.archs):
        with bench.alone(arch):
            rows += run_arch(bench, arch, options)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"seed": options.seed, "mutants": rows}, indent=1) + "\n")
    print(as_text(rows))  # noqa: T201
    return 1 if below(rows, LEAST) else 0


def parsed():
    parser = parser_of("python -m tests.tools.mutation", __doc__, "result.json")
    parser.add_argument("--count", type=int, default=40, help="mutants of each arch")
    parser.add_argument(
        "--calls", type=int, default=100, help="random calls that tell a survivor from the original"
    )
    return parser.parse_args()


def run_arch(bench, arch, options):
    """A row for each mutant: its change, its verdict, and the check that killed it."""
    listings = listings_of(bench, arch, options.kernel)
    mutants = draw(bench, arch, listings, options)
    say(f"{arch}: {len(mutants)} mutants of {len({mutant.file for mutant in mutants})} kernels")
    rows = [
        {"name": mutant.name, "arch": arch, "kernel": mutant.kernel, "kind": mutant.kind, "verdict": ""}
        for mutant in mutants
    ]
    texts = [mutated_listing(listings[mutant.file], mutant) for mutant in mutants]
    # The cheapest check comes first: the suite finds no wait mutant, but most others, within a second.
    by_static_checks(bench, rows, texts, [n for n, row in enumerate(rows) if row["kind"] == "wait"])
    left = alive(rows)
    by_calls(bench, arch, rows, {n: lay_out(bench, n, mutants[n], texts[n]) for n in left}, options)
    by_static_checks(bench, rows, texts, [n for n in alive(rows) if rows[n]["kind"] != "wait"])
    return rows


def alive(rows):
    """Numbers of the surviving rows."""
    return [number for number, row in enumerate(rows) if row["verdict"] != KILLED]


def by_static_checks(bench, rows, texts, numbers):
    rocm = bench.rocm
    reviewed = parse_golden((CHECKOUT / GOLDEN).read_text()).get(rocm, {})
    codes = bench.codes
    for row, text in ((rows[number], texts[number]) for number in numbers):
        arch, kernel = row["arch"], row["kernel"]
        known = {arch: {kernel: reviewed[arch][kernel]}} if kernel in reviewed.get(arch, {}) else {}
        try:
            report = check_listings([Listing(arch, text, codes[arch, kernel])], rocm=rocm, reviewed=known)
        except WheelBuilderError as error:
            kill(row, "static: refused", str(error).splitlines()[0])
            continue
        if report.failures:
            kill(row, f"static: {report.failures[0].check}", str(report.failures[0]))


def by_calls(bench, arch, rows, folders, options):
    """Runs the mutants in ``folders``, by number of the row."""
    tests = baseline(bench, arch)
    common = {"limit": LIMIT, "seed": options.seed, "calls": options.calls}
    tasks = [
        {
            **common,
            "id": number,
            "kernel": rows[number]["kernel"],
            "folder": folder,
            "nodes": those_launching(tests, rows[number]["kernel"]),
        }
        for number, folder in folders.items()
    ]
    for number, answer in judged(bench, arch, tasks, jobs=options.jobs).items():
        rows[number]["seconds"] = answer["seconds"]
        if killed := answer.get("killed"):
            kill(rows[number], *killed)
        else:
            rows[number].update(passed(answer))


def passed(answer):
    """Verdict and words of a mutant that no test finds, by its random calls."""
    words = f"{answer['same']} of {answer['calls']} random calls give the same"
    if answer["same"] == answer["calls"]:
        return {"verdict": NOT_JUDGED, "words": words}
    if answer["worse"]:
        return {"verdict": SURVIVED, "words": f"{words}; {answer['worse']}"}
    return {"verdict": AS_EXACT, "words": words}


def those_launching(tests, kernel):
    """The tests that launch a kernel, the fastest first."""
    own = {name: each["seconds"] for name, each in tests.items() if kernel in each["kernels"]}
    return sorted(own, key=own.get)


def kill(row, by, words):
    row.update(verdict=KILLED, by=by, words=words)


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.mutation [--wheel WHEEL] [--arch gfx942] [--kernel fa_fwd_fp16_d64] [--seed 0] [--count 40]

Prints a table by arch and kind, then each survivor and each mutant that was not judged.  The exit code is 1
where an arch's score is below 98 %.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from tests.built import newest_wheel
from tests.mutation.assembler import encodings
from tests.mutation.bench import CHECKOUT, set_up
from tests.mutation.containers import baseline, judged, lay_out
from tests.mutation.mutants import KINDS, assembled, drawn, mutated_listing, name_of, places_of
from tests.mutation.table import KILLED, NOT_JUDGED, SURVIVED, as_text, below
from wheel_builder.base.errors import WheelBuilderError
from wheel_builder.images.listing import Listing
from wheel_builder.static_checks.check import check_listing
from wheel_builder.static_checks.golden import GOLDEN, differences, parse_golden

LEAST = 0.98  # the score of an arch
# Of one mutant, in seconds; the calls of a kernel that is no mutant take some.
LIMIT = 300
# Mutants that do not fit in place of the original are replaced: so many more are drawn.
SPARE = 3


def main():
    options = parsed()
    wheel = options.wheel or newest_wheel()
    bench = set_up(wheel.resolve())
    archs, rows = options.arch or bench.archs, []
    if options.of_the_day:
        archs, options.seed = of_the_day(datetime.now(UTC).date(), archs)
    for arch in archs:
        rows += run_arch(bench, arch, options)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"seed": options.seed, "mutants": rows}, indent=1) + "\n")
    print(as_text(rows))  # noqa: T201
    return 1 if below(rows, LEAST) else 0


def parsed():
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--wheel", type=Path, help="default: the newest in dist")
    parser.add_argument(
        "--arch", action="append", help="may be given several times; default: all of the wheel"
    )
    parser.add_argument("--kernel", default="", help="only kernels whose name has this in it")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all, in turn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--of-the-day", action="store_true", help="one arch and the seed by the date")
    parser.add_argument("--count", type=int, default=40, help="mutants of each arch")
    parser.add_argument("--jobs", type=int, default=2, help="containers side by side")
    parser.add_argument(
        "--calls", type=int, default=100, help="random calls that tell a survivor from the original"
    )
    parser.add_argument("--json", type=Path, default=CHECKOUT / "build" / "mutation" / "result.json")
    return parser.parse_args()


def of_the_day(date, archs):
    """One of ``archs`` and a seed; archs take turns."""
    day = date.toordinal()
    return [archs[day % len(archs)]], day


def run_arch(bench, arch, options):
    """A row for each mutant: what it is, its verdict, and what killed it."""
    listings = {
        file.stem: text
        for file in sorted(bench.disassembly.path.glob(f"{arch}-*.s"))
        if options.kernel in name_of(text := file.read_text())
    }
    if not listings:
        message = f"{bench.wheel.name} has no kernel {options.kernel!r} for {arch}"
        raise SystemExit(message)
    mutants = draw(bench, arch, listings, options)
    say(f"{arch}: {len(mutants)} mutants of {len({mutant.file for mutant in mutants})} kernels")
    rows = [
        {"name": mutant.name, "arch": arch, "kernel": mutant.kernel, "kind": mutant.kind, "verdict": ""}
        for mutant in mutants
    ]
    texts = [mutated_listing(listings[mutant.file], mutant) for mutant in mutants]
    # What takes least comes first: of waits the suite sees nothing, of others most, within a second.
    by_static_checks(bench, rows, texts, [n for n, row in enumerate(rows) if row["kind"] == "wait"])
    left = alive(rows)
    by_calls(bench, arch, rows, {n: lay_out(bench, n, mutants[n], texts[n]) for n in left}, options)
    by_static_checks(bench, rows, texts, [n for n in alive(rows) if rows[n]["kind"] != "wait"])
    return rows


def draw(bench, arch, listings, options):
    """As many mutants as asked for, of kinds in turn and kernels that the seed draws, which the assembler
    takes; those of a kernel are neighbours."""
    rng, kinds = random.Random(f"{options.seed} {arch}"), options.kind or KINDS
    wanted = -(-options.count // len(kinds))
    files = {kind: Counter(rng.choices(sorted(listings), k=SPARE * wanted)) for kind in kinds}
    parsed = {file: places_of(listings[file]) for file in sorted(set().union(*files.values()))}
    found = [
        mutant
        for kind in kinds
        for file, count in sorted(files[kind].items())
        for mutant in drawn(arch, file, *parsed[file], kind, count, rng)
    ]
    dwords = {file: {place.line: place.dwords for place in places} for file, (_, places) in parsed.items()}
    words = encodings(bench.builder.facts["ref"], arch, [mutant.after for mutant in found])
    fitting = [assembled(m, dwords[m.file][m.line], each) for m, each in zip(found, words, strict=True)]
    of_kind = {kind: [m for m in fitting if m and m.kind == kind] for kind in kinds}
    kept = [mutant for each in of_kind.values() for mutant in rng.sample(each, min(wanted, len(each)))]
    return sorted(kept, key=lambda mutant: (mutant.kernel, mutant.line))


def alive(rows):
    """Numbers of the rows that nothing has killed yet."""
    return [number for number, row in enumerate(rows) if row["verdict"] != KILLED]


def by_static_checks(bench, rows, texts, numbers):
    rocm = bench.wheel.name.split("+rocm")[1].split("-")[0]
    reviewed = parse_golden((CHECKOUT / GOLDEN).read_text()).get(rocm, {})
    notes = bench.notes
    for row, text in ((rows[number], texts[number]) for number in numbers):
        arch, kernel = row["arch"], row["kernel"]
        try:
            (checked,) = check_listing(Listing(arch, text, notes[arch, kernel]), reviewed=reviewed)
        except WheelBuilderError as error:
            kill(row, "static: refused", str(error).splitlines()[0])
            continue
        known = {arch: {kernel: reviewed[arch][kernel]}} if kernel in reviewed.get(arch, {}) else {}
        found = [*checked.findings, *differences(known, {arch: {kernel: checked.entry}})]
        if failures := [finding for finding in found if finding.fails]:
            kill(row, f"static: {failures[0].check}", str(failures[0]))


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
            same, calls = answer["same"], answer["calls"]
            rows[number]["verdict"] = NOT_JUDGED if same == calls else SURVIVED
            rows[number]["words"] = f"{same} of {calls} random calls give the same"


def those_launching(tests, kernel):
    """The tests that launch a kernel, those that take least first."""
    own = {name: each["seconds"] for name, each in tests.items() if kernel in each["kernels"]}
    return sorted(own, key=own.get)


def kill(row, by, words):
    row.update(verdict=KILLED, by=by, words=words)


def say(words):
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())

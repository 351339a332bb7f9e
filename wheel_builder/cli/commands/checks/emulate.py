"""One kernel on the ISA emulator."""

import argparse

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import existing_file, names, release_options, run_options
from wheel_builder.cli.runs import run_context
from wheel_builder.cli.selected import read_matrix
from wheel_builder.machine_code.emulator.attention import Case
from wheel_builder.machine_code.emulator.command import emulate, report
from wheel_builder.machine_code.emulator.formats import DTYPES
from wheel_builder.machine_code.emulator.machine import ALL_CHECKS
from wheel_builder.machine_code.emulator.machine import Options as RunOptions
from wheel_builder.pipeline.verification import emulator_workshop


def run(args: argparse.Namespace) -> None:
    case = Case(
        args.dtype, args.head_dim, args.seqlen_q, args.seqlen_k, batch=args.batch, nheads=args.heads,
        nheads_k=args.heads_k or args.heads, causal=args.causal, seed=args.seed,
    )  # fmt: skip
    how = RunOptions(checks=tuple(args.checks), seed=args.seed, threads=args.jobs)
    if args.dry_run:
        print(f"would run {case.kernel} of {args.source} for {args.arch}")
        return
    workshop = emulator_workshop(args.source, read_matrix(), run_context(args), plain=args.verbose or None)
    emulated = emulate(args.source, args.arch, case, how, workshop)
    print(report(emulated))
    emulated.raise_unless_passed()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        type=existing_file,
        metavar="FILE",
        help="a wheel, a host library, an offload bundle or a code object",
    )
    group = parser.add_argument_group("kernel and call")
    group.add_argument("--arch", required=True, metavar="GFX", help="for example gfx1100")
    group.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help=f"default: {DTYPES[0]}")
    for name, default in (("head-dim", 64), ("seqlen-q", 128), ("seqlen-k", 128), ("batch", 1), ("heads", 1)):
        group.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default: {default}")
    group.add_argument("--heads-k", type=int, metavar="N", help="heads of k and v (default: --heads)")
    group.add_argument(
        "--causal", action="store_true", help="row i attends to keys up to i + seqlen_k - seqlen_q"
    )
    group = parser.add_argument_group("emulation")
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the tensors and of the execution order"
    )
    group.add_argument(
        "--checks",
        type=sanitizers,
        default=ALL_CHECKS,
        metavar="A[,B]",
        help=f"{', '.join(ALL_CHECKS)}, or none (default: all); bounds checks always run",
    )


def sanitizers(text: str) -> list[str]:
    chosen = [] if text == "none" else names(text)
    if unknown := [name for name in chosen if name not in ALL_CHECKS]:
        message = f"expected some of {', '.join(ALL_CHECKS)}, or none; found {', '.join(unknown)}"
        raise argparse.ArgumentTypeError(message)
    return chosen


COMMAND = Command(
    "emulate",
    "run one kernel on the ISA emulator: errors, instruction counts, findings",
    run,
    (options, run_options, release_options),
)

"""Compile the instances of one arch to code objects, and report each kernel's cost.

    PYTHONPATH=. python3 kernels/build/instances/build.py --arch gfx942 --out DIR [--llvm BIN] [--table FILE]
                                                 [--jobs N] [--memory MiB] [--cache DIR | --phases]

Runs inside the builder image, and needs only Python, clang and kernels/. DIR gets <name>.hsaco per instance
of the arch in the table, and resources.json: {"arch", "cpu_seconds", "kernels": {name: {"code_bytes"}},
"costs": {name: Cost}}. Prints a line for each finished instance. Equal sources and compilers give equal
bytes.

With --cache, ccache keeps code objects in DIR, and resources.json has "cache": {"hits", "misses"}. Machines
may share DIR. CCACHE_COMPILERCHECK tells compilers apart. Anybody with write access to DIR controls the
shipped code.

The common includes of an operation's kernels are compiled once, to a precompiled header. The kernels'
compilers read it instead of the text. Code objects keep their bytes.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from costs import load_peaks, peak_mib
from generate import OPS, TABLE, Instance, TableError, check_arch, include, load_table, served, write_sources
from kernels.build.jobs import Task, run_all
from kernels.build.machine import usable_memory
from toolchain import DEFAULT_LLVM, BuildError

KERNELS = Path(__file__).parents[2]
# For Python, the sources and the kernel's file cache.
RESERVED_MIB = 64
SHOWN_LINES = 25
# Making a precompiled header takes about as long as two kernels save by it, and this much memory.
KERNELS_OF_A_HEADER, HEADER_MIB = 3, 256
COMPILE = (
    "-c", "-x", "hip", "-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror",
    "--offload-device-only", "--no-gpu-bundle-output",
    "-nogpuinc", "-nogpulib",  # the kernels are independent of HIP headers and device libraries
    "-fuse-cuid=none",  # the default hashes a temporary path into the code object
    # Arrays of accumulators must reach the register allocator as separate vectors. Joined into one vector
    # they are copied as a whole, and kernels of one arch take up to 40 registers more.
    "-mllvm", "-disable-promote-alloca-to-vector",
)  # fmt: skip


@dataclass
class Cost:
    """The cost of compiling one instance: CPU-seconds, and the memory of its largest process.

    ``phases`` are wall-clock seconds by compiler phase, with --phases.
    """

    cpu_seconds: float = 0.0
    peak_mib: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Built:
    """A finished instance: the bytes of its machine code, or its errors."""

    name: str
    made: int | str
    cost: Cost


# Their names in clang's trace.
PHASES = {
    "frontend": "Total Frontend",
    "optimiser": "Total Optimizer",
    "code generation": "Total CodeGenPasses",
}
# Read from LLVM's text, because kernels import no reader of code objects from wheel_builder.
FORBIDDEN = ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")
# Of larger head dims some compilers keep a few registers in memory:
# wheel_builder/machine_code/static_checks/golden.toml.
LARGEST_WITHOUT_SPILLS = 128


def compile_command(
    llvm: Path, arch: str, src: Path, out: Path, precompiled: Path | None = None
) -> list[str]:
    """The compiler's argument list for one instance and arch."""
    return [*_compiler(llvm, arch, src), *_included(precompiled), str(src), "-o", str(out)]


def precompile_command(llvm: Path, arch: str, src: Path, out: Path) -> list[str]:
    """The compiler's argument list for the header included by ``src``."""
    # The driver does not support HIP headers. So it is told to write a file for no linker, and the compiler
    # to write the precompiled header. Without file times equal text gives equal bytes, and ccache recognises
    # the header.
    asked = ["-emit-llvm", "-Xclang", "-emit-pch", "-Xclang", "-fno-pch-timestamp"]
    return [*_compiler(llvm, arch, src), *asked, str(src), "-o", str(out)]


def _compiler(llvm: Path, arch: str, src: Path) -> list[str]:
    maps = [f"-ffile-prefix-map={src.parent}=.", f"-ffile-prefix-map={KERNELS}=kernels"]
    return [str(llvm / "clang++"), *COMPILE, f"--offload-arch={arch}", f"-I{KERNELS}", *maps]


def _included(precompiled: Path | None) -> list[str]:
    return ["-Xclang", "-include-pch", "-Xclang", str(precompiled)] if precompiled else []


@dataclass(frozen=True)
class Ccache:
    """ccache with everything in a shared folder. Its counters are in ``own``, so they cover this run only."""

    folder: Path
    own: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "CCACHE_DIR": str(self.own),
            "CCACHE_REMOTE_STORAGE": f"file:{self.folder}",
            "CCACHE_REMOTE_ONLY": "true",
            # Otherwise ccache skips compilations with a precompiled header. Kernels use no time macros, and
            # have their header's macros.
            "CCACHE_SLOPPINESS": "pch_defines,time_macros",
        }

    def hit_rate(self) -> Mapping[str, int]:
        """How many compilations the cache had, and how many it lacked."""
        printed = _run(["ccache", "--print-stats"], self.env)
        if printed.returncode != 0:
            message = f"ccache does not say what it did: {printed.stderr.strip()}"
            raise BuildError(message)
        counts = {
            name: int(value) for name, value in re.findall(r"^(\w+)\t(\d+)$", printed.stdout, re.MULTILINE)
        }
        hits = counts["direct_cache_hit"] + counts["preprocessed_cache_hit"]
        return {"hits": hits, "misses": counts["cache_miss"]}


@dataclass(frozen=True)
class How:
    """The number of parallel compilers and their memory, whether phases are timed, and the cache."""

    jobs: int
    mib: int
    phases: bool = False
    cache: Path | None = None


def build(arch: str, out: Path, *, llvm: Path, table: Path, how: How) -> None:
    """Compile the table's instances for ``arch`` into ``out``, with ccache if there is a cache.

    Raises ``TableError`` (unknown arch, bad table) or ``BuildError`` with all failed instances.
    """
    check_arch(arch)
    instances = served(load_table(table), [arch])
    if not instances:
        message = f"{table.name} has no instance for {arch}: nothing to compile"
        raise BuildError(message)
    out.mkdir(parents=True, exist_ok=True)
    before = _cpu_seconds()
    with scratch_in(out) as scratch:
        ccache = Ccache(how.cache, scratch / "ccache") if how.cache else None
        sources = write_sources(instances, scratch)
        told = Told(arch, len(instances))
        peaks = load_peaks()
        jobs = [Task(pair, peak_mib(peaks, pair[0].op)) for pair in zip(instances, sources, strict=True)]
        headers = precompile_headers(llvm, arch, instances, scratch, how)

        def work(pair: tuple[Instance, Path]) -> Built:
            instance, src = pair
            with told.of(src.stem) as cost:
                precompiled = headers.get(OPS[instance.op].shared)
                command = compile_command(llvm, arch, src, src.with_suffix(".hsaco"), precompiled)
                made = compile_instance(
                    llvm, arch, instance, src, command, Compiler(ccache, cost, how.phases)
                )
            return Built(src.stem, made, cost)

        results = run_all(jobs, work, most=how.jobs, mib=how.mib - RESERVED_MIB)
        if failures := [one.made for one in results if isinstance(one.made, str)]:
            raise BuildError("\n".join(failures))
        for src in sources:
            src.with_suffix(".hsaco").replace(out / f"{src.stem}.hsaco")
        hit_rate = {"cache": ccache.hit_rate()} if ccache else {}
    kernels = {one.name: {"code_bytes": one.made} for one in results}
    costs = {one.name: asdict(one.cost) for one in results}
    seconds = round(_cpu_seconds() - before, 2)
    _write_report(out, {"arch": arch, "cpu_seconds": seconds, **hit_rate, "kernels": kernels, "costs": costs})


def precompile_headers(
    llvm: Path, arch: str, instances: Sequence[Instance], scratch: Path, how: How
) -> Mapping[str, Path]:
    """The headers shared by enough kernels, precompiled.

    After a failure it prints a message, and kernels are compiled from the text, each with its own errors.
    """
    users = Counter(OPS[instance.op].shared for instance in instances)
    shared = [header for header, kernels in users.items() if kernels >= KERNELS_OF_A_HEADER]

    def work(header: str) -> Path | None:
        src = scratch / Path(header).with_suffix(".hip").name
        src.write_text(include(header), encoding="utf-8")
        out = src.with_suffix(".pch")
        done = _run(precompile_command(llvm, arch, src, out))
        if done.returncode == 0:
            return out
        sys.stdout.write(_failure(f"{header} for {arch} is not precompiled", done.stderr) + "\n")
        return None

    jobs = [Task(header, HEADER_MIB) for header in shared]
    made = run_all(jobs, work, most=how.jobs, mib=how.mib - RESERVED_MIB)
    return {header: path for header, path in zip(shared, made, strict=True) if path}


@contextmanager
def scratch_in(out: Path) -> Iterator[Path]:
    """A folder below ``out`` with a fixed name, because ccache hashes the sources' paths."""
    scratch = out / ".sources"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


def _write_report(out: Path, report: dict[str, object]) -> None:
    partial = out / "resources.json.part"
    partial.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    partial.replace(out / "resources.json")


@dataclass(frozen=True)
class Compiler:
    """Runs the compiler, through ccache if there is one, and records the cost."""

    ccache: Ccache | None
    cost: Cost
    phases: bool

    def run(self, command: Sequence[str], src: Path) -> subprocess.CompletedProcess[str]:
        if self.ccache:
            return _measured(["ccache", *command], self.cost, self.ccache.env)
        if not self.phases:
            return _measured(command, self.cost)
        trace = src.with_suffix(".trace.json")
        done = _measured([*command, "-Xclang", f"-ftime-trace={trace}"], self.cost)
        if done.returncode == 0:
            self.cost.phases = parse_trace(trace.read_text(encoding="utf-8"))
        return done


class Told:
    """Prints a line for each finished instance: progress and cost."""

    def __init__(self, arch: str, total: int) -> None:
        self._arch, self._total = arch, total
        self._done = 0
        self._begin = time.monotonic()
        self._lock = threading.Lock()

    @contextmanager
    def of(self, name: str) -> Iterator[Cost]:
        """The cost of the enclosed work."""
        cost, begin = Cost(), time.monotonic() - self._begin
        yield cost
        end = time.monotonic() - self._begin
        with self._lock:
            self._done += 1
            sys.stdout.write(
                f"[{self._done}/{self._total}] {name} for {self._arch}: {cost.cpu_seconds:.2f} CPU-seconds, "
                f"{cost.peak_mib} MiB, from {begin:.2f} s to {end:.2f} s\n"
            )
            sys.stdout.flush()


def compile_instance(
    llvm: Path, arch: str, instance: Instance, src: Path, command: Sequence[str], compiler: Compiler
) -> int | str:
    """Compile one instance. Returns the bytes of its machine code, or its errors."""
    code_object = src.with_suffix(".hsaco")
    done = compiler.run(command, src)
    if done.returncode != 0:
        return _failure(f"{src.stem} for {arch} does not compile", done.stderr)
    notes = _run([str(llvm / "llvm-readelf"), "--notes", "--symbols", "--wide", str(code_object)])
    if notes.returncode != 0:
        return _failure(f"{src.stem} for {arch}: llvm-readelf cannot read the code object", notes.stderr)
    kernels = re.findall(r"^\s*(?:- )?\.symbol:\s+'?([\w.]+)'?$", notes.stdout, re.MULTILINE)
    if kernels != [f"{src.stem}.kd"]:
        return f"{src.stem} for {arch}: the code object holds {kernels}, expected exactly that kernel"
    wrong = [f"{key} = {value}" for key, value in spills(notes.stdout).items() if value]
    if wrong and instance.head_dim <= LARGEST_WITHOUT_SPILLS:
        advice = "lower its tile or waves_per_simd in kernels/tables/tiles.toml"
        return f"{src.stem} for {arch} may not spill, but has {', '.join(wrong)}; {advice}"
    return code_bytes(src.stem, notes.stdout)


def parse_trace(text: str) -> Mapping[str, float]:
    """Seconds by phase, from the output of ``-ftime-trace``."""
    seconds = {
        event["name"]: event["dur"] / 1e6 for event in json.loads(text)["traceEvents"] if "dur" in event
    }
    return {phase: round(seconds.get(name, 0.0), 3) for phase, name in PHASES.items()}


def spills(text: str) -> Mapping[str, int]:
    """Spilled registers and bytes of scratch, from ``llvm-readelf --notes`` of an object with one kernel."""
    values = dict(re.findall(r"^\s*(?:- )?\.(\w+):\s+(\d+)$", text, re.MULTILINE))
    return {key: int(values[key]) for key in FORBIDDEN}


def code_bytes(name: str, text: str) -> int:
    """The size of the function ``name``, from ``llvm-readelf --symbols``."""
    size = re.search(rf"^\s*\d+:\s+[0-9a-f]+\s+(\d+)\s+FUNC\s.*\s{re.escape(name)}$", text, re.MULTILINE)
    if size is None:
        message = f"{name}: no function of that name in the code object"
        raise BuildError(message)
    return int(size.group(1))


def _failure(title: str, output: str) -> str:
    """The title, and the compiler's output from its first error on."""
    lines = output.rstrip().splitlines()
    first = next((number for number, line in enumerate(lines) if "error:" in line), 0)
    return "\n".join([f"{title}:", *(f"  | {line}" for line in lines[first : first + SHOWN_LINES])])


def _measured(
    argv: Sequence[str], cost: Cost, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program and record its cost. ``wait4`` measures one child, the standard library all children."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        try:
            child = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=stderr)
        except FileNotFoundError as error:
            raise _no_program(argv[0]) from error
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        stderr.seek(0)
        cost.cpu_seconds = round(used.ru_utime + used.ru_stime, 2)
        cost.peak_mib = used.ru_maxrss // 1024
        return subprocess.CompletedProcess(argv, child.returncode, "", stderr.read())


def _no_program(name: str) -> BuildError:
    return BuildError(f"{name}: no such program; --llvm names the folder of clang++ and llvm-readelf")


def _run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, env=env, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError as error:
        raise _no_program(argv[0]) from error


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, build, and print the problems. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Compile the instances of one gfx arch.")
    parser.add_argument("--arch", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--llvm", type=Path, default=Path(os.environ.get("FA_LLVM", DEFAULT_LLVM)))
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--memory", type=int, default=usable_memory() >> 20, metavar="MiB")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--cache", type=Path)
    group.add_argument("--phases", action="store_true", help="time the compiler's phases")
    args = parser.parse_args(argv)
    try:
        how = How(args.jobs, args.memory, args.phases, args.cache)
        build(args.arch, args.out, llvm=args.llvm, table=args.table, how=how)
    except (TableError, BuildError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The worker in verify containers: the suite's baseline, and judging mutants side by side."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.tools.mutation.bench import CHECKOUT
from wheel_builder.base.store import key_of, sha256_file, sha256_tree
from wheel_builder.images.docker import Mount, open_to_all, run_in
from wheel_builder.machine_code.fake_hip.container import CONTROL, LIBRARY_INSIDE, PYTHON, shared_mounts
from wheel_builder.tables.archs import arch_named
from wheel_builder.verify.numerics import CHECKS, SEED, TESTS

WORKER = """
python -m pip install --no-index --no-deps --quiet /wheel/*.whl
cd /tests
LD_PRELOAD=$PRELOAD exec python -m "$@"
"""
ORIGINAL = "/disassembly"
MUTANTS = "/mutants"
SUITE = "mutation.worker"
LAUNCH_LIMIT = "20"  # seconds. Without a mutant every launch of the suite takes less than one


def baseline(bench, arch):
    """Seconds and launched kernels of each test of the unchanged suite. Kept for the next run."""
    inputs = {
        "wheel": sha256_file(bench.wheel), "fake_hip": bench.fake_hip.key, "arch": arch,
        "tests": sha256_tree(CHECKOUT, [CHECKOUT / TESTS]),
    }  # fmt: skip
    out = bench.folder / f"baseline-{arch}-{key_of(inputs)}"
    file = out / "baseline.json"
    if not file.is_file():
        out.mkdir(parents=True, exist_ok=True)
        work(bench, arch, [SUITE, "baseline", "/out/baseline.json"], out)
    found = json.loads(file.read_text())
    if found["killed"]:
        file.unlink()
        message = f"the suite of {arch} fails without a mutant: {found['killed']}"
        raise SystemExit(message)
    return found["tests"]


def judged(bench, arch, tasks, *, jobs, worker=SUITE):
    """The worker's answer to each task, by its id. Tasks are shared out among ``jobs`` containers."""
    if not tasks:
        return {}
    # Neighbours stay together: the worker runs the original of a kernel once.
    size = -(-len(tasks) // min(jobs, len(tasks)))
    shares = [tasks[begin : begin + size] for begin in range(0, len(tasks), size)]
    with ThreadPoolExecutor(len(shares)) as pool:
        answers = pool.map(lambda numbered: _judge(bench, arch, worker, *numbered), enumerate(shares))
        return {answer["id"]: answer for share in answers for answer in share}


def _judge(bench, arch, worker, number, tasks):
    out = bench.folder / f"judge-{arch}-{number}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    work(bench, arch, [worker, "judge", "/out/tasks.jsonl", "/out/answers.jsonl"], out)
    return [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]


def work(bench, arch, arguments, out):
    """Run a worker, with its arguments, in a container. ``out`` is its /out."""
    mutants = bench.mutants(arch)
    mutants.mkdir(parents=True, exist_ok=True)
    mounts = [
        Mount(bench.wheel, f"/wheel/{bench.wheel.name}"),
        Mount(CHECKOUT / TESTS, "/tests"),
        Mount(bench.fake_hip.path, "/fake_hip"),
        Mount(bench.disassembly.path, ORIGINAL),
        Mount(CHECKOUT / CONTROL, f"{PYTHON}/{CONTROL}"),
        Mount(CHECKOUT / "tests/tools/mutation", f"{PYTHON}/mutation"),
        *shared_mounts(CHECKOUT),
        Mount(mutants, MUTANTS),
        Mount(out, "/out", writable=True),
    ]
    env = {**settings(arch), "PYTHONPATH": PYTHON, "PRELOAD": LIBRARY_INSIDE}
    argv = ["sh", "-euc", WORKER, "sh", *arguments]
    with open_to_all(out):
        image, log = bench.tester.facts["ref"], bench.context.log(f"mutation-{arch}")
        run_in(image, argv, mounts=mounts, env=env, log=log)


def settings(arch):
    """``verify``'s settings, except for one thread, as containers run side by side, and the time limit."""
    return {
        "FA_FAKE_HIP_ARCH": arch_named(arch).device_name, "FA_FAKE_HIP_CHECKS": CHECKS,
        "FA_FAKE_HIP_SEED": SEED, "FA_FAKE_HIP_THREADS": "1", "FA_FAKE_HIP_TIME_LIMIT": LAUNCH_LIMIT,
        "FA_FAKE_HIP_DISASSEMBLY": ORIGINAL, "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def lay_out(bench, number, mutant, listing):
    """A folder with the mutant's disassembly and links to all other files.

    Returns its path in the container.
    """
    folder = bench.mutants(mutant.arch) / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in bench.disassembly.path.glob(f"{mutant.arch}-*"):
        if file.name != f"{mutant.file}.s":
            (folder / file.name).symlink_to(Path(ORIGINAL) / file.name)
    (folder / f"{mutant.file}.s").write_text(listing)
    return f"{MUTANTS}/{number}"

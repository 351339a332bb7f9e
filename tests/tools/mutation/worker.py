"""Finds the check that kills a mutant, in the verify container and the numerics suite's folder.

    python -m mutation.worker baseline FILE        the launched kernels and the time of each test
    python -m mutation.worker judge TASKS ANSWERS  a line of JSON for each task, as soon as it is known

Each mutant runs in a process forked from one that has imported torch and the package, under a time limit.  A
task names a folder with the mutant's disassembly, for the emulator, and the unchanged code objects.  First
come the kernel's cases of the corpus, then the other tests that launch it.  Mutants that pass are compared
with the original on random calls, and with float64 on those that differ.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import flash_attn_rocm
import pytest
import torch
from flash_attn_rocm.suite.fuzz import made

from mutation import calls, measured
from mutation.forks import SHOWN, forked, way

QUIET = ["-p", "no:cacheprovider", "--strict-markers", "-W", "error", "-q", "--no-header", "--tb=line"]
CORPUS = "test_corpus.py"  # these calls are made directly, without pytest
FINDING = "[fake HIP runtime: "  # in an error of a launch ended by a sanitizer


class Watch:
    """Each test's launches and outcome. Stops a session at the first failure or finding."""

    def __init__(self):
        self.tests, self.killed = {}, None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        begin, shown = time.monotonic(), item.funcargs.get("shown")
        before = dict(shown.kernels) if shown else {}
        try:
            result = yield
        except BaseException as error:
            self.killed = self.killed or killed_by(shown, item.name, error)
            item.session.shouldstop = "killed"
            raise
        if shown and shown.findings:
            self.killed = killed_by(shown, item.name)
            item.session.shouldstop = "killed"
        after = dict(shown.kernels) if shown else {}
        launched = {name: n - before.get(name, 0) for name, n in after.items() if n > before.get(name, 0)}
        self.tests[item.nodeid] = {"seconds": time.monotonic() - begin, "kernels": launched}
        return result


def killed_by(shown, name, error=""):
    """The check that found it, and its words."""
    found, words = (shown.findings if shown else []), str(error).strip()
    if found or FINDING in words:
        words = str(found[0]) if found else words.partition(FINDING)[2]
        return ["sanitizer", f"{name}: {words[:SHOWN]}"]
    return ["numerics", f"{name}: {words[:SHOWN]}"]


def suite(arguments):
    watch = Watch()
    code = pytest.main([*QUIET, *arguments], plugins=[watch])
    if watch.killed is None and code != 0:
        watch.killed = ["numerics", f"pytest ended with {code}"]
    return watch


def baseline():
    """All tests have to pass. Those of the corpus are left out: mutants run them without pytest."""
    watch = suite([".", "--ignore", CORPUS])
    return {"killed": watch.killed, "tests": watch.tests}


def killer(task):
    """The check that kills the mutant, or None."""
    with calls.on_emulator() as target:
        for name, case in calls.corpus_for(task["kernel"]):
            try:
                made(case, target.device).check(target, target.shown)
            except (AssertionError, RuntimeError) as error:
                return killed_by(target.shown, name, error)
            if target.shown.findings:
                return killed_by(target.shown, name)
    return suite(task["nodes"]).killed if task["nodes"] else None


def digests(task):
    """A hash of the results of each random call of the kernel. The slow sanitizers are off."""
    os.environ["FA_FAKE_HIP_CHECKS"] = ""
    with calls.on_emulator() as target:
        cases = calls.random_for(task["kernel"], task["seed"], task["calls"])
        return [calls.digest(target, case) for case in cases]


class Worker:
    """Judges tasks one after the other. The original's results for a kernel's random calls are kept."""

    def __init__(self, original):
        self.original, self.digests = original, {}

    def judge(self, task):
        """``killed`` with check and words, or ``same`` and ``calls``, the number of random calls.

        If some differ, ``worse`` says why the mutant is less exact, without words if it is not.
        """
        found = forked(killer, task)
        if "ended" in found:
            return {"killed": [way(found), found["ended"]]}
        if found["answer"]:
            return {"killed": found["answer"]}
        theirs, found = self.of_original(task), forked(digests, task)
        if "ended" in found:
            return {"same": 0, "calls": len(theirs), "worse": f"random calls: {found['ended']}"}
        mine = found["answer"]
        numbers = [n for n, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one != other]
        answer = {"same": len(theirs) - len(numbers), "calls": len(theirs)}
        return {**answer, "worse": self.worse({**task, "numbers": numbers})} if numbers else answer

    def worse(self, task):
        """Why the calls in ``numbers`` are less exact than the original's, or no words."""
        with tempfile.TemporaryDirectory() as folder:
            task = {**task, "original": f"{folder}/results"}
            for work, code in ((measured.kept, self.original), (measured.compared, task["folder"])):
                found = forked(work, {**task, "folder": code})
                if "ended" in found:
                    return f"not compared with float64: {found['ended']}"
        return found["answer"]

    def of_original(self, task):
        kernel = task["kernel"]
        if kernel not in self.digests:
            found = forked(digests, {**task, "folder": self.original})
            if "answer" not in found:
                message = f"random calls of {kernel} do not run: {found['ended']}"
                raise RuntimeError(message)
            self.digests[kernel] = found["answer"]
        return self.digests[kernel]


def warm_up():
    """The first gradient imports for more than a second: once here, instead of in each mutant's process."""
    one = torch.ones(1, requires_grad=True)
    torch.autograd.grad(one * one, one, torch.ones(1))


def main(what, *files):
    flash_attn_rocm.set_strict(True)
    torch.set_num_threads(1)
    warm_up()
    if what == "baseline":
        Path(files[0]).write_text(json.dumps(baseline()))
        return
    tasks, answers = (Path(file) for file in files)
    worker = Worker(os.environ["FA_FAKE_HIP_DISASSEMBLY"])
    for line in tasks.read_text().splitlines():
        task, begin = json.loads(line), time.monotonic()
        answer = {"id": task["id"], **worker.judge(task), "seconds": time.monotonic() - begin}
        with answers.open("a") as file:
            file.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The worker in the verify container: the tests that it excludes, what belongs to one call, processes."""

import os
import signal
import time
from types import SimpleNamespace

from tests.conftest import CHECKOUT
from tests.tools.mutation.forks import forked, way
from tests.tools.mutation.launches import answered, flat
from wheel_builder.build.source import constant
from wheel_builder.verify.numerics import TESTS


def test_the_file_that_a_worker_leaves_out_is_there():
    """After its renaming, each mutant's baseline would have run the corpus twice."""
    assert (CHECKOUT / TESTS / constant(CHECKOUT / "tests/tools/mutation/worker.py", "CORPUS")).is_file()


class Target:
    """A runtime with a finding in each launch's report, and a record that takes them from reports."""

    def __init__(self):
        self.waiting, self.runtime, self.shown = [], self, self
        self.findings = []

    def report(self):
        launches, self.waiting = self.waiting, []
        return SimpleNamespace(launches=launches)

    def launched(self, launches):
        self.findings += launches

    def call(self, name, error=None):
        """As ``suite.target.Target.attend``: a launch that fails leaves its report."""
        self.waiting.append(f"finding of {name}")
        if error:
            raise RuntimeError(error)
        self.launched(self.report().launches)
        return [name]


def test_a_failed_launch_leaves_its_report_to_no_other_call():
    """The next call's hash held it: a mutant then differed where its results are equal."""
    target = Target()
    failed = answered(target, lambda: target.call("one", "a launch ended"))
    assert failed == (["a launch ended"], ["finding of one"])
    assert answered(target, lambda: target.call("two")) == (["two"], ["finding of two"])


def test_a_pair_of_results_counts_as_two():
    """Calls of fp8 have one for each sequence. No mutant of their kernels was judged."""
    assert [*flat([(1, 2), (3, 4)])] == [*flat([1, 2, 3, 4])] == [1, 2, 3, 4]


def in_a_process(work, limit=60):
    return forked(work, {"folder": "a mutant", "limit": limit})


def test_a_process_answers_with_the_code_of_its_task():
    assert in_a_process(lambda _: os.environ["FA_FAKE_HIP_DISASSEMBLY"]) == {"answer": "a mutant"}


def test_an_exception_in_a_process_keeps_its_words():
    """It read "crash, status 0", so nobody learned why a survivor was not compared with float64."""
    found = in_a_process(lambda _: 1 / 0)
    assert found == {"ended": "ZeroDivisionError: division by zero", "raised": True}
    assert way(found) == "exception"


def test_an_answer_that_json_refuses_is_an_exception():
    assert in_a_process(lambda _: {1, 2})["ended"].startswith("TypeError: ")


def test_a_crash_and_a_hang_are_no_exceptions():
    crashed = in_a_process(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    hung = in_a_process(lambda _: time.sleep(60), limit=0.2)
    assert crashed == {"ended": "crash, status 9"}
    assert hung == {"ended": "time limit of 0 s"}
    assert (way(crashed), way(hung)) == ("crash", "time limit")


def test_a_runtime_error_is_no_time_limit():
    """Its name has the letters of "time": a table counted it so."""
    assert way({"ended": "RuntimeError: no kernel", "raised": True}) == "exception"

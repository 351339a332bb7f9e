"""The worker in the verify container excludes the suite's tests that it runs itself."""

from tests.conftest import CHECKOUT
from wheel_builder.build.source import constant
from wheel_builder.verify.numerics import TESTS


def test_the_file_that_a_worker_leaves_out_is_there():
    """After its renaming, each mutant's baseline would have run the corpus twice."""
    assert (CHECKOUT / TESTS / constant(CHECKOUT / "tests/tools/mutation/worker.py", "CORPUS")).is_file()

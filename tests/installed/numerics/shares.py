"""Which of the tests that archs divide an arch runs.

Archs that share fuzz cases (corpus.json) run nearly the same kernels.  Each of them runs the whole corpus,
which meets every instruction of its own machine code, and they divide tests with the mark ``divided``.
"""

import os
import random

FULL = os.environ.get("FA_FULL", "") not in {"", "0"}


def share_of(tests, place, shares):
    """Those of the ``tests`` that the one at ``place`` among ``shares`` runs: at least one, drawn so that its
    share has some of each kind."""
    drawn = random.Random(0).sample(range(len(tests)), len(tests))[place % len(tests) :: shares]
    return [tests[number] for number in sorted(drawn)]


def without_others(items, place, shares):
    """Pytest's ``items`` without the other archs' shares."""
    divided = {}
    for item in items:
        if item.get_closest_marker("divided"):
            divided.setdefault(item.function, []).append(item)
    own = {item for tests in divided.values() for item in share_of(tests, place, shares)}
    return [item for item in items if item in own or not item.get_closest_marker("divided")]

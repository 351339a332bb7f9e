"""Which of the tests that archs divide an arch runs.

Archs that share fuzz cases (corpus.json) run nearly the same kernels.  Each of them runs the whole corpus,
which meets every instruction of its own machine code, and they divide tests with the mark ``divided``.

The quick suite, with FA_QUICK=1, has of the corpus the calls in quick.json, which execute every instruction
that the corpus executes (``python -m tests.corpus --quick``), a tenth of divided tests, and none that are
``long``.
"""

import os
import random

FULL, QUICK = (os.environ.get(name, "") not in {"", "0"} for name in ("FA_FULL", "FA_QUICK"))
QUICK_SHARES = 10


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

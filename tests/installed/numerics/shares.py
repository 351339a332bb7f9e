"""The share of an arch in the tests divided among archs.

Archs with common fuzz cases (corpus.json) run nearly equal kernels.  Each of them runs the whole corpus, and
so every instruction of its machine code. They divide tests with the mark ``divided``.
"""

import os
import random

FULL = os.environ.get("FA_FULL", "") not in {"", "0"}


def share_of(tests, place, shares):
    """The share of ``tests`` at ``place`` among ``shares``: at least one, drawn with some of each kind."""
    drawn = random.Random(0).sample(range(len(tests)), len(tests))[place % len(tests) :: shares]
    return [tests[number] for number in sorted(drawn)]


def without_others(items, place, shares):
    """Pytest's ``items``, except the other archs' shares."""
    divided = {}
    for item in items:
        if item.get_closest_marker("divided"):
            divided.setdefault(item.function, []).append(item)
    own = {item for tests in divided.values() for item in share_of(tests, place, shares)}
    return [item for item in items if item in own or not item.get_closest_marker("divided")]

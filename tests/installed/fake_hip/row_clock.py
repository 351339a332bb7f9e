"""A clock for ``tune`` that tells the row in use: it runs a call once, and its time is from a table.

Its import watches the rows that this process puts in the place of the wheel's.
"""

from flash_attn_rocm.library import candidates

in_use, timed = [""], []
_use, _back = candidates.use, candidates.give_back


def _used(found, candidate, device, regime=""):
    _use(found, candidate, device, regime)
    in_use[0] = candidate.row


def _given_back(kernel, device):
    _back(kernel, device)
    in_use[0] = ""


candidates.use, candidates.give_back = _used, _given_back


def clock_of(milliseconds):
    """A clock by row, "" for the wheel's own and all others."""

    def clock(call, _where):
        call()
        timed.append(in_use[0])
        return 1e-3 * milliseconds.get(in_use[0], milliseconds[""])

    return clock

"""Publishers to kill, or with a full disk: run with killer.c preloaded, one child per order.

An order is a line of JSON on standard input: ``do``, its arguments, ``kill_at``, ``full_at`` and ``trace``.
The answer is the child's exit status.
"""

import ctypes
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.base.errors import PublishError
from wheel_builder.index.folder import yank
from wheel_builder.index.publish import publish

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def do_publish(root, wheels, rocm, variants=False):
    publish([Path(wheel) for wheel in wheels], root, rocm, catalogue=CATALOGUE, now=NOW, variants=variants)


def do_release(root, wheels, rocm, variants=False):
    """Into a local index, where a changed wheel replaces the earlier one."""
    files = [Path(wheel) for wheel in wheels]
    publish(files, root, rocm, catalogue=CATALOGUE, now=NOW, to_others=False, variants=variants)


def do_yank(root, file, rocm):
    yank(root, rocm, file, "broken", catalogue=CATALOGUE, now=NOW)


def outcome(wheel, root):
    """The outcome of publishing ``wheel``, in words."""
    try:
        do_publish(root, [wheel], "7.2")
    except PublishError as error:
        return error.message
    return "published"


def child(order):
    killer = ctypes.CDLL(None)
    action, root = globals()[f"do_{order.pop('do')}"], Path(order.pop("root"))
    trace = os.open(order.pop("trace"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for name in ("kill_at", "full_at"):
        ctypes.c_long.in_dll(killer, name).value = order.pop(name)
    ctypes.c_int.in_dll(killer, "trace").value = trace
    try:
        action(root, **order)
    except PublishError:
        return PublishError.exit_code
    return 0


def main():
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = child(json.loads(line))
            finally:
                os._exit(status)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

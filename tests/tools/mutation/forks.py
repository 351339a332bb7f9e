"""Work in a process of its own: a mutant may end or hang it.

Without PyTorch, so that tests/fast/unit runs it.
"""

import json
import os
import select
import signal
import time
from pathlib import Path

SHOWN = 200  # characters of a failure
TIME_LIMIT = "time limit"


def forked(work, task):
    """``answer``: the result of ``work`` in a separate process. Else ``ended``: how the process ended.

    With ``raised`` it has the words of an exception.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.environ["FA_FAKE_HIP_DISASSEMBLY"] = task["folder"]
        try:
            _silence()
            os.write(send, _answered(work, task).encode())
        finally:
            os._exit(0)
    os.close(send)
    text = _read_until(receive, time.monotonic() + task["limit"])
    os.close(receive)
    if text is None:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if text is None:
        return {"ended": f"{TIME_LIMIT} of {task['limit']:.0f} s"}
    return json.loads(text) if text else {"ended": f"crash, status {status}"}


def way(found):
    """How a process ended, in the words of tables. ``found``: what ``forked`` says without an answer."""
    if "raised" in found:
        return "exception"
    return TIME_LIMIT if found["ended"].startswith(TIME_LIMIT) else "crash"


def _silence():
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)


def _answered(work, task):
    try:
        return json.dumps({"answer": work(task)})
    except BaseException as error:  # noqa: BLE001 - the process that waits judges all of them
        return json.dumps({"ended": f"{type(error).__name__}: {error}"[:SHOWN], "raised": True})


def _read_until(receive, end):
    """All bytes until the other end is closed. None after the time limit."""
    text = b""
    while True:
        if not select.select([receive], [], [], max(0.0, end - time.monotonic()))[0]:
            return None
        part = os.read(receive, 1 << 16)
        if not part:
            return text.decode()
        text += part

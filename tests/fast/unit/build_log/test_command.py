"""Calls of ``explain-log``: files, standard input, a growing log, and files other than logs."""

import io
import json
import sys
import threading
import time
from pathlib import Path

import pytest

from wheel_builder.base.errors import LogError
from wheel_builder.cli.commands.extras import explain_log
from wheel_builder.cli.main import main

LOGS = Path(__file__).parent / "logs"


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def test_a_failed_build_on_the_terminal(narrow, capsys):
    assert main(["explain-log", str(LOGS / "one-arch.txt")]) == 0
    out = capsys.readouterr().out
    assert "state     failed" in out
    assert "cause: mul is used without a declaration in the pass for gfx1030" in out
    assert "next: if only one arch fails" in out
    assert "--offload-arch=gfx942" in out


def test_our_own_build(narrow, capsys):
    assert main(["explain-log", str(LOGS / "ours-gfx942.txt")]) == 0
    out = capsys.readouterr().out
    assert "progress  30 of 30 steps done, 0 left" in out
    assert "jobs      2.0 jobs ran on average, 2 at most" in out
    assert "forward of few queries, keys split, bf16, head dim 128, 135 MiB" in out


def test_our_own_build_that_ran_out_of_memory(narrow, capsys):
    assert main(["explain-log", str(LOGS / "ours-memory.txt")]) == 0
    assert "cause: a compiler was killed because memory ran out" in capsys.readouterr().out


def test_no_control_character_reaches_the_terminal(tmp_path, narrow, capsys):
    log = tmp_path / "build.log"
    log.write_bytes(
        b"[1/9] hipcc -c x -o x\x1b]0;a\x07.o\nx: fatal error: 'a\x9b31m\x07\xe2\x80\xae' file not found\n"
    )
    assert main(["explain-log", str(log)]) == 0
    out = capsys.readouterr().out
    assert not {char for char in out if ord(char) < 32 and char != "\n"} | ({"\x9b", "\u202e"} & set(out))


def test_standard_input_as_json(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((LOGS / "disk-full.txt").read_bytes())))
    assert main(["explain-log", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["causes"][0]["key"] == "disk full"


def test_a_page_is_written_with_ninjas_times(tmp_path, capsys):
    page = tmp_path / "log.html"
    times = str(LOGS / "ck-interrupted.ninja_log.txt")
    argv = ["explain-log", str(LOGS / "ck-interrupted.txt"), "--ninja-log", times, "--html", str(page)]
    assert main(argv) == 0
    assert "<svg" in page.read_text()
    assert capsys.readouterr().err == f"written to {page}\n"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "is empty: expected the output of a build"),
        (
            ["--ninja-log", str(LOGS / "triton.txt")],
            "is not a log of ninja: it does not begin with '# ninja log v'",
        ),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, more, words, capsys):
    (tmp_path / "empty.log").touch()
    assert main(["explain-log", str(tmp_path / "empty.log"), *more]) == LogError.exit_code
    assert words in capsys.readouterr().err


def test_a_growing_log_is_followed_to_its_end(tmp_path, monkeypatch, narrow, capsys):
    monkeypatch.setattr(explain_log, "SECONDS", 0.05)
    log = tmp_path / "build.log"
    log.write_bytes(b"[1/3] hipcc -c a.hip -o a.o\n")

    def write():
        for at in (2, 3):
            time.sleep(0.2)
            with log.open("ab") as stream:
                stream.write(b"[%d/3] hipcc -c a.hip -o a%d.o\n" % (at, at))

    writer = threading.Thread(target=write)
    writer.start()
    assert main(["explain-log", "--follow", str(log)]) == 0
    writer.join()
    assert "progress  3 of 3 steps done, 0 left" in capsys.readouterr().out

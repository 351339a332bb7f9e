"""``process.run`` with this Python: the only unit test that starts programs."""

import sys

import pytest

from wheel_builder.base.errors import CommandFailedError, ToolMissingError
from wheel_builder.base.process import run


def python(code):
    return [sys.executable, "-c", code]


def test_output_is_returned():
    assert run(python("print('hello')")).stdout == "hello\n"


def test_a_failure_shows_command_status_and_last_lines():
    with pytest.raises(CommandFailedError) as caught:
        run(python("import sys; print('why', file=sys.stderr); sys.exit(3)"), advice="mend it")
    text = str(caught.value)
    assert "ended with status 3" in text
    assert "| why" in text
    assert "next: mend it" in text


def test_a_log_holds_command_and_output_and_is_named(tmp_path):
    log = tmp_path / "logs" / "step.log"
    run(python("print('one')"), log=log)
    with pytest.raises(CommandFailedError, match=str(log)):
        run(python("print('two'); raise SystemExit(1)"), log=log)
    text = log.read_text()
    assert text.count("+ ") == 2
    assert text.index("one") < text.index("two")


def test_only_this_commands_output_comes_from_a_shared_log(tmp_path):
    log = tmp_path / "step.log"
    run(python("print('one')"), log=log)
    assert run(python("print('two')"), log=log).stdout == "two\n"


def test_a_missing_program_is_said():
    with pytest.raises(ToolMissingError, match="no-such-program-here: no such program"):
        run(["no-such-program-here"])


def test_a_status_can_be_asked_for():
    assert run(python("raise SystemExit(7)"), check=False).returncode == 7


def test_a_program_cannot_wait_for_input():
    assert run(python("import sys; print(repr(sys.stdin.read()))")).stdout == "''\n"

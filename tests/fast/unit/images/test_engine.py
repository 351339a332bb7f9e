"""Finding, installing and starting a container engine, on machines given as values."""

from dataclasses import replace
from pathlib import Path

import pytest

from wheel_builder.base.errors import EngineError
from wheel_builder.images.engine import (
    PATIENCE,
    Engine,
    Facts,
    Step,
    ensure_engine,
    install_command,
    next_step,
    parse_version,
    running_daemon,
    uses_apt,
)

BARE = Facts(root=True, apt=True, system="Debian GNU/Linux 12 (bookworm)")
INSTALLED = replace(BARE, client="20.10.24", daemon=True, mmdebstrap=True)
RUNNING = replace(INSTALLED, server="20.10.24+dfsg1")


class FakeMachine:
    """A machine that changes as ``acts`` says and counts the actions on it."""

    def __init__(self, facts, **acts):
        self.facts, self.acts, self.done, self.pauses = facts, acts, [], 0

    def look(self):
        return self.facts

    def install(self):
        self._act("install")

    def start_service(self):
        self._act("start_service")

    def start_daemon(self):
        self._act("start_daemon")

    def pause(self):
        self.pauses += 1
        self._act("pause", noted=False)

    def _act(self, name, noted=True):
        if noted:
            self.done.append(name)
        self.facts = self.acts.get(name, self.facts)


def ensure(machine, install=True):
    return ensure_engine(install=install, log=Path("logs/engine.log"), machine=machine)


def refusal(facts, install=True):
    with pytest.raises(EngineError) as caught:
        next_step(facts, install=install)
    return str(caught.value)


def test_an_engine_that_answers_is_used():
    assert ensure(FakeMachine(RUNNING), install=False) == Engine("20.10.24+dfsg1", "20.10.24")


def test_a_bare_debian_gets_packages_and_a_daemon_and_waits_for_it():
    starting = replace(INSTALLED, daemon_pid=7)
    machine = FakeMachine(BARE, install=INSTALLED, start_daemon=starting, pause=RUNNING)
    assert ensure(machine).version == "20.10.24+dfsg1"
    assert machine.done == ["install", "start_daemon"]
    assert machine.pauses == 1


def test_with_systemd_the_service_is_started():
    down = replace(INSTALLED, systemd=True)
    machine = FakeMachine(down, start_service=replace(RUNNING, systemd=True))
    ensure(machine)
    assert machine.done == ["start_service"]


def test_a_daemon_that_runs_but_does_not_answer_is_waited_for_and_never_doubled():
    machine = FakeMachine(replace(INSTALLED, daemon_pid=4711))
    with pytest.raises(EngineError, match=r"dockerd \(process 4711\) runs, and did not answer for 60 s"):
        ensure(machine)
    assert machine.done == []
    assert machine.pauses == PATIENCE


def test_a_daemon_that_ends_at_once_is_started_once_and_its_log_is_named():
    machine = FakeMachine(INSTALLED)
    with pytest.raises(EngineError, match=r"was started, and is not there any more\n.*logs/dockerd\.log"):
        ensure(machine)
    assert machine.done == ["start_daemon"]


def test_packages_that_do_not_help_are_installed_once():
    machine = FakeMachine(BARE)
    with pytest.raises(EngineError, match="were installed, and something of it is still not found"):
        ensure(machine)
    assert machine.done == ["install"]


def test_mmdebstrap_is_installed_beside_an_engine_that_was_there():
    without = replace(RUNNING, mmdebstrap=False)
    machine = FakeMachine(without, install=RUNNING)
    ensure(machine)
    assert machine.done == ["install"]
    assert next_step(without, install=False) is Step.USE
    assert next_step(replace(without, apt=False), install=True) is Step.USE


def test_without_root_the_one_command_is_named():
    text = refusal(replace(BARE, root=False))
    assert "no container engine: docker and dockerd not found on Debian GNU/Linux 12 (bookworm)" in text
    assert f"next: {install_command()}" in text
    assert install_command().startswith("sudo apt-get install docker.io mmdebstrap")


def test_without_the_wish_to_install_nothing_is_installed():
    assert install_command() in refusal(BARE, install=False)


def test_an_unknown_distribution_is_told_what_is_needed():
    text = refusal(replace(BARE, apt=False, system="Plan 9"))
    assert "not found on Plan 9" in text
    assert "install docker 20.10 or newer and mmdebstrap" in text


def test_a_missing_daemon_alone_is_named_alone():
    text = refusal(replace(INSTALLED, daemon=False, root=False))
    assert "no container engine: dockerd not found" in text


def test_an_engine_that_is_too_old_is_refused_with_both_versions():
    text = refusal(replace(RUNNING, server="19.03.15"))
    assert "too old: found 19.03.15, required 20.10 or newer" in text


def test_an_engine_elsewhere_is_not_replaced_by_one_here():
    text = refusal(replace(INSTALLED, remote="tcp://builder:2375"))
    assert "no container engine answers at DOCKER_HOST=tcp://builder:2375" in text


def test_a_user_outside_the_docker_group_is_told_so():
    text = refusal(replace(INSTALLED, root=False, refused=True, daemon_pid=7))
    assert "this user may not use it" in text
    assert 'sudo usermod --append --groups docker "$USER"' in text


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        (replace(INSTALLED, root=False, systemd=True), "sudo systemctl start docker"),
        (replace(INSTALLED, root=False), "as root: scripts/release"),
    ],
)
def test_an_engine_that_is_down_is_started_by_root_only(facts, command):
    text = refusal(facts)
    assert "installed but does not run" in text
    assert command in text


def test_versions_of_distributions_are_understood():
    assert parse_version("20.10.24+dfsg1") == (20, 10, 24)
    assert parse_version("28.5.2") > parse_version("20.10")
    assert parse_version("unknown") == ()


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("ID=debian\n", True),
        ('NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\n', True),
        ("ID=fedora\nID_LIKE=rhel\n", False),
        ("", False),
    ],
)
def test_distributions_with_apt_are_known_by_their_ids(release, expected):
    assert uses_apt(release) is expected


def test_a_dead_daemon_that_nobody_reaped_does_not_count(tmp_path):
    for pid, stat in {"12": "12 (dockerd) Z 1 1", "13": "13 (bash) S 1 1"}.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(stat)
    assert running_daemon(tmp_path) == 0
    (tmp_path / "13" / "stat").write_text("13 (dockerd) S 1 1")
    assert running_daemon(tmp_path) == 13

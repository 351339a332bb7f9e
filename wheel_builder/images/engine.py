"""A working container engine: found, or installed from the distribution's packages and started.

``Machine`` looks and acts, ``next_step`` decides, ``ensure_engine`` repeats both until the engine answers.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from wheel_builder.base.errors import EngineError
from wheel_builder.base.machine import os_release
from wheel_builder.base.process import Runner, run

# The first with docker run --pull. Debian 11 ships it.
MIN_ENGINE = (20, 10)
PACKAGES = ("docker.io", "mmdebstrap", "debian-archive-keyring")
# A separate package in newer distributions, part of docker.io in older ones.
CLIENT_PACKAGE = "docker-cli"
PAUSE_SECONDS = 0.5
PATIENCE = 120  # pauses while waiting for a running daemon to answer
GRACE = 10  # pauses while waiting for the last action to show an effect
DAEMON_LOG = "dockerd.log"
PID_FILE = Path("/run/docker.pid")
SOCKET = Path("/run/docker.sock")
APT = ("apt-get", "-y", "-o", "Acquire::Check-Valid-Until=false")


@dataclass(frozen=True)
class Engine:
    """A container engine that answers."""

    version: str
    client: str


@dataclass(frozen=True)
class Facts:
    """The findings on this machine.

    ``server``: the answering engine's version, empty if none answers. ``daemon_pid``: a running dockerd, or
    0.
    ``remote``: the value of DOCKER_HOST. ``refused``: this user may not use the engine's socket.
    """

    client: str = ""
    server: str = ""
    remote: str = ""
    refused: bool = False
    daemon: bool = False
    daemon_pid: int = 0
    systemd: bool = False
    root: bool = False
    apt: bool = False
    mmdebstrap: bool = False
    system: str = "this system"


class Step(Enum):
    """The next action."""

    USE = auto()
    INSTALL = auto()
    START_SERVICE = auto()
    START_DAEMON = auto()
    WAIT = auto()


class Machine(Protocol):
    """This machine, or a test's."""

    def look(self) -> Facts: ...

    def install(self) -> None: ...

    def start_service(self) -> None: ...

    def start_daemon(self) -> None: ...

    def pause(self) -> None: ...


def ensure_engine(*, install: bool, log: Path, run: Runner = run, machine: Machine | None = None) -> Engine:
    """Return the engine. With ``install``, install and start one if none answers.

    Raises ``EngineError`` with the missing part, and the command that provides it.
    """
    machine = machine or ThisMachine(log, run)
    acts: dict[Step, Callable[[], None]] = {
        Step.INSTALL: machine.install,
        Step.START_SERVICE: machine.start_service,
        Step.START_DAEMON: machine.start_daemon,
    }
    waited = 0
    while (step := next_step(facts := machine.look(), install=install)) is not Step.USE:
        if act := acts.pop(step, None):
            act()
            waited = 0
        elif waited < (PATIENCE if step is Step.WAIT else GRACE):
            waited += 1
            machine.pause()
        else:
            advice = f"its own words are in {log.with_name(DAEMON_LOG)} or the journal"
            raise EngineError(_silent(facts, step), advice=advice)
    return Engine(facts.server, facts.client)


def next_step(facts: Facts, *, install: bool) -> Step:
    """Decide from the findings. Raises ``EngineError`` if only the user can help."""
    may_install = install and facts.root and facts.apt
    if facts.server:
        _check_version(facts.server)
        return Step.INSTALL if may_install and not facts.mmdebstrap else Step.USE
    if facts.remote:
        message = f"no container engine answers at DOCKER_HOST={facts.remote}"
        raise EngineError(message, advice="start it there, or unset DOCKER_HOST to use one on this machine")
    if not (facts.client and facts.daemon):
        if may_install:
            return Step.INSTALL
        raise _missing(facts)
    if facts.refused:
        message = "a container engine runs, but this user may not use it"
        raise EngineError(message, advice='sudo usermod --append --groups docker "$USER", then log in again')
    if facts.daemon_pid:
        return Step.WAIT
    if not (install and facts.root):
        message = "the container engine is installed but does not run"
        raise EngineError(message, advice=_start_advice(facts))
    return Step.START_SERVICE if facts.systemd else Step.START_DAEMON


def install_command() -> str:
    """The shell command with the effect of ``Machine.install``."""
    return f"sudo apt-get install {' '.join(PACKAGES)}"


def parse_version(text: str) -> tuple[int, ...]:
    """``20.10.24+dfsg1`` -> (20, 10, 24)."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def uses_apt(release: str) -> bool:
    """Whether an os-release file is Debian's or of a distribution made from it."""
    fields = os_release(release)
    return bool({"debian", "ubuntu"} & {fields.get("ID", ""), *fields.get("ID_LIKE", "").split()})


class ThisMachine:
    """The real ``Machine``. Commands are logged to ``log``, the daemon's output to a file next to it."""

    def __init__(self, log: Path, run: Runner = run) -> None:
        self.log = log
        self.run = run
        self.daemon_log = log.with_name(DAEMON_LOG)

    def look(self) -> Facts:
        client, server = self._versions()
        release = Path("/etc/os-release")
        text = release.read_text(encoding="utf-8") if release.is_file() else ""
        name = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE)
        return Facts(
            client=client,
            server=server,
            remote=os.environ.get("DOCKER_HOST", ""),
            refused=SOCKET.exists() and not os.access(SOCKET, os.W_OK),
            daemon=_found("dockerd"),
            daemon_pid=running_daemon(),
            systemd=Path("/run/systemd/system").is_dir(),
            root=os.geteuid() == 0,
            apt=uses_apt(text) and _found("apt-get"),
            mmdebstrap=_found("mmdebstrap"),
            system=name[1] if name else "this system",
        )

    def install(self) -> None:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
        self.run([*APT, "update"], log=self.log, env=env, advice="apt has to reach its archive")
        known = self.run(["apt-cache", "show", CLIENT_PACKAGE], log=self.log, check=False).returncode == 0
        packages = [*PACKAGES, CLIENT_PACKAGE] if known else PACKAGES
        self.run([*APT, "install", *packages], log=self.log, env=env, advice=f"by hand: {install_command()}")

    def start_service(self) -> None:
        self.run(
            ["systemctl", "start", "docker"], log=self.log, advice="journalctl --unit docker has the reason"
        )

    def start_daemon(self) -> None:
        # A killed daemon leaves its process id file. With it the next one refuses to start.
        PID_FILE.unlink(missing_ok=True)
        # In a session of its own, so that it survives Ctrl-C here.
        self.run(["setsid", "--fork", "dockerd"], log=self.daemon_log, cwd=Path("/"))

    def pause(self) -> None:
        time.sleep(PAUSE_SECONDS)

    def _versions(self) -> tuple[str, str]:
        """The client's and the answering engine's versions, empty where missing."""
        if not _found("docker"):
            return "", ""
        said = self.run(["docker", "version", "--format", "{{json .}}"], check=False).stdout
        versions = json.loads(said) if said.strip() else {}
        client, server = versions.get("Client") or {}, versions.get("Server") or {}
        return client.get("Version", "unknown"), server.get("Version", "")


def running_daemon(proc: Path = Path("/proc")) -> int:
    """The process id of a dockerd on this machine, or 0.  Two of them would fight over the network."""
    for stat in proc.glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # the process ended meanwhile
        if re.match(r"\d+ \(dockerd\) [^ZX]", text):
            return int(stat.parent.name)
    return 0


def _found(program: str) -> bool:
    path = os.environ.get("PATH", os.defpath)
    # Daemons live in folders outside some users' PATH.
    return shutil.which(program, path=f"{path}:/usr/sbin:/sbin") is not None


def _check_version(server: str) -> None:
    if parse_version(server) < MIN_ENGINE:
        wanted = ".".join(map(str, MIN_ENGINE))
        message = f"the container engine is too old: found {server}, required {wanted} or newer"
        raise EngineError(message, advice="install a newer docker.io from your distribution")


def _missing(facts: Facts) -> EngineError:
    needed = (("docker", facts.client), ("dockerd", facts.daemon))
    missing = " and ".join(name for name, there in needed if not there)
    message = f"no container engine: {missing} not found on {facts.system}"
    if facts.apt:
        return EngineError(message, advice=install_command())
    advice = "install docker 20.10 or newer and mmdebstrap with the system's own packages, and start docker"
    return EngineError(message, advice=advice)


def _start_advice(facts: Facts) -> str:
    return "sudo systemctl start docker" if facts.systemd else "as root: scripts/release, which starts it"


def _silent(facts: Facts, step: Step) -> str:
    if step is Step.WAIT:
        seconds = f"{PATIENCE * PAUSE_SECONDS:.0f} s"
        return f"dockerd (process {facts.daemon_pid}) runs, and did not answer for {seconds}"
    if step is Step.INSTALL:
        return "the container engine's packages were installed, and something of it is still not found"
    return "the container engine was started, and is not there any more"

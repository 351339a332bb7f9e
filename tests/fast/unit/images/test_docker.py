"""The container engine's verbs, with a fake in place of ``process.run``."""

import json
import os
from pathlib import Path

import pytest

from wheel_builder.base.errors import CommandFailedError, ImageError
from wheel_builder.base.process import Completed
from wheel_builder.images import docker
from wheel_builder.images.docker import Mount


class FakeRun:
    """Notes each command. Answers by the first word after ``docker``."""

    def __init__(self, **answers):
        self.commands, self.envs, self.answers = [], [], answers

    def __call__(self, argv, *, log=None, env=None, cwd=None, check=True, advice=""):
        argv = [str(part) for part in argv]
        self.commands.append(argv)
        self.envs.append(env)
        answer = self.answers.get(next((a for a in argv[1:] if a in self.answers), ""), "")
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, Completed) else Completed(answer, 0)

    @property
    def last(self):
        return self.commands[-1]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def value(argv, flag):
    return argv[argv.index(flag) + 1]


def test_a_container_has_no_network_no_rights_and_is_never_pulled():
    run = FakeRun(run="hello")
    done = docker.run_in("image", ["echo", "hello"], run=run)
    [argv] = run.commands
    assert done.stdout == "hello"
    assert value(argv, "--network") == "none"
    assert value(argv, "--cap-drop") == "ALL"
    assert value(argv, "--security-opt") == "no-new-privileges"
    assert {"--rm", "--init", "--pull=never"} <= set(argv)
    assert argv[-3:] == ["image", "echo", "hello"]
    assert "--user" not in argv
    assert value(argv, "--label") == f"{docker.OWNER_LABEL}={os.getpid()}-{docker._start_time(os.getpid())}"


def test_mounts_are_read_only_unless_asked_otherwise(tmp_path):
    run = FakeRun()
    mounts = [Mount(tmp_path, "/src"), Mount(tmp_path, "/out", writable=True)]
    docker.run_in("image", ["true"], mounts=mounts, env={"A": "1"}, user="7:7", workdir="/src", run=run)
    flags = [run.last[n + 1] for n, part in enumerate(run.last) if part == "--mount"]
    assert flags == [
        f"type=bind,source={tmp_path},target=/src,readonly",
        f"type=bind,source={tmp_path},target=/out",
    ]
    assert (value(run.last, "--env"), value(run.last, "--user"), value(run.last, "--workdir")) == (
        "A=1",
        "7:7",
        "/src",
    )


def test_a_path_that_docker_cannot_mount_is_refused_in_words():
    with pytest.raises(ImageError, match=r"a comma in the path.*\n.*move the checkout"):
        docker.run_in("image", ["true"], mounts=[Mount(Path("/a,b"), "/src")], run=FakeRun())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CommandFailedError("status 1")])
def test_an_interrupted_or_failed_container_is_removed(error):
    run = FakeRun(run=error)
    with pytest.raises(type(error)):
        docker.run_in("image", ["sleep", "100"], run=run)
    started, removed = run.commands
    assert removed == ["docker", "rm", "--force", "--volumes", value(started, "--name")]


def test_proxies_go_to_containers_with_a_network_by_name_only(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy:3128")
    run = FakeRun()
    docker.run_in("image", ["true"], network="bridge", run=run)
    assert value(run.last, "--env") == "https_proxy"
    docker.run_in("image", ["true"], run=run)
    assert "--env" not in run.last
    assert "secret" not in str(run.commands)


def test_a_build_is_a_classic_build_with_sorted_facts():
    run = FakeRun()
    docker.build(
        Path("/ctx"), "a.Dockerfile", "tag:1", args={"BASE": "sid"}, labels={"k": "v"}, target="system",
        fresh=True, log=Path("log"), run=run,
    )  # fmt: skip
    assert run.last == [
        "docker", "build", "--force-rm", "--tag", "tag:1", "--file", "/ctx/a.Dockerfile",
        "--build-arg", "BASE=sid", "--label", "k=v", "--target", "system", "--no-cache", "/ctx",
    ]  # fmt: skip
    assert run.envs[0]["DOCKER_BUILDKIT"] == "0"
    assert run.envs[0]["PATH"] == os.environ["PATH"]


def test_an_image_is_described_or_none():
    found = {
        "Id": "sha256:1", "RepoDigests": None, "Config": {"Labels": None}, "Created": "2026-01-01T00:00:00Z",
        "Size": 7,
    }  # fmt: skip
    info = docker.inspect_image("a:1", run=FakeRun(images="sha256:1\n", inspect=json.dumps(found)))
    assert info == docker.ImageInfo("sha256:1", (), {}, "2026-01-01T00:00:00Z", 7)
    assert docker.inspect_image("a:1", run=FakeRun(images="")) is None


def test_an_engine_that_fails_is_not_a_missing_image():
    with pytest.raises(CommandFailedError):
        docker.inspect_image("a:1", run=FakeRun(images=CommandFailedError("Cannot connect")))


def test_a_registry_that_does_not_answer_is_not_an_error():
    run = FakeRun(pull=Completed("no such host", 1))
    assert docker.try_pull("debian:sid-slim", log=Path("log"), seconds=5, run=run) is False
    assert run.last[:4] == ["timeout", "--kill-after=5", "5", "docker"]
    assert docker.try_pull("debian:sid-slim", log=Path("log"), run=FakeRun()) is True


def test_removing_what_is_not_there_is_fine():
    run = FakeRun(images="")
    docker.remove("a:1", run=run)
    assert [command[1] for command in run.commands] == ["images"]


def test_only_containers_whose_process_is_gone_are_orphans():
    mine = f"{os.getpid()}-{docker._start_time(os.getpid())}"
    reused_pid = f"{os.getpid()}-1"
    run = FakeRun(ps=f"aaa {mine}\nbbb {reused_pid}\nccc 999999999-5\n")
    assert docker.remove_orphans(run=run) == 2
    assert run.last == ["docker", "rm", "--force", "--volumes", "bbb", "ccc"]


def test_without_orphans_nothing_is_removed():
    run = FakeRun(ps="")
    assert docker.remove_orphans(run=run) == 0
    assert len(run.commands) == 1


def test_an_imported_base_is_labelled():
    run = FakeRun()
    docker.import_tar(Path("sid.tar"), "base:sid", labels={"made": "sid"}, log=Path("log"), run=run)
    assert run.last == ["docker", "import", "--change", "LABEL made=sid", "sid.tar", "base:sid"]

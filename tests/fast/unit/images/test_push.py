"""Pushing an image: the engine's commands, and the place of the password."""

import base64
import json
import re
from pathlib import Path

import pytest

from wheel_builder.base.errors import CommandFailedError, ImageError
from wheel_builder.base.process import Completed
from wheel_builder.images.push import push

NAME, DIGEST = "registry.example:5000/owner/rocm-fa", "sha256:" + "ab" * 32


class Engine:
    """Notes commands and, during a push, the login it was given."""

    def __init__(self, digests=("other/rocm-fa@sha256:00", f"{NAME}@{DIGEST}")):
        self.commands, self.login, self.digests = [], None, digests

    def __call__(self, argv, *, env=None, **kwargs):
        self.commands.append([str(part) for part in argv])
        if argv[1] == "push" and "DOCKER_CONFIG" in env:
            file = Path(env["DOCKER_CONFIG"]) / "config.json"
            self.login = (file, json.loads(file.read_text()), file.parent.stat().st_mode & 0o777)
        return Completed(json.dumps(list(self.digests)), 0)


def pushed(engine, tmp_path, **environ):
    return push(
        "rocm-fa:7.2", "registry.example:5000/owner", log=tmp_path / "log", environ=environ, run=engine
    )


def test_it_is_known_by_its_digest(tmp_path):
    engine = Engine()
    assert pushed(engine, tmp_path).ref == f"{NAME}:7.2@{DIGEST}"
    assert engine.commands[:2] == [
        ["docker", "tag", "rocm-fa:7.2", f"{NAME}:7.2"],
        ["docker", "push", f"{NAME}:7.2"],
    ]
    assert engine.login is None, "without a token the engine's own login holds"


def test_the_token_is_in_a_file_of_this_user_that_is_gone_afterwards(tmp_path):
    engine = Engine()
    pushed(engine, tmp_path, REGISTRY_USER="me", REGISTRY_TOKEN="secret")
    file, config, mode = engine.login
    auth = base64.b64encode(b"me:secret").decode()
    assert config == {"auths": {"registry.example:5000": {"auth": auth}}}
    assert (mode, file.exists()) == (0o700, False)
    assert "secret" not in str(engine.commands)


def test_without_a_digest_nothing_is_said_to_be_pushed(tmp_path):
    with pytest.raises(ImageError, match=re.escape(f"{NAME}:7.2 was pushed, but the engine knows no digest")):
        pushed(Engine(["other/rocm-fa@sha256:00"]), tmp_path)


def test_a_registry_that_refuses_is_told_with_what_to_do(tmp_path):
    def refuse(argv, *, advice="", **kwargs):
        if argv[1] == "push":
            message = "denied"
            raise CommandFailedError(message, advice=advice)
        return Completed("", 0)

    with pytest.raises(CommandFailedError, match="denied\n  next: may this user write there") as caught:
        pushed(refuse, tmp_path, REGISTRY_TOKEN="secret")
    assert "REGISTRY_USER and REGISTRY_TOKEN" in str(caught.value)
    assert "secret" not in str(caught.value)

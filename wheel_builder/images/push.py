"""Images for others: pushed to a registry under their name, and known by their digest from then on."""

import base64
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Runner, run

# Names of variables, set by workflows. Without them the engine's own login is used.
USER, TOKEN = "REGISTRY_USER", "REGISTRY_TOKEN"


@dataclass(frozen=True)
class Pushed:
    """An image in a registry: ``name`` without its tag, the tag, and the digest of its manifest."""

    name: str
    tag: str
    digest: str

    @property
    def ref(self) -> str:
        return f"{self.name}:{self.tag}@{self.digest}"


def push(
    ref: str, registry: str, *, log: Path, environ: Mapping[str, str] = os.environ, run: Runner = run
) -> Pushed:
    """Push the engine's image ``rocm-fa:7.2`` as ``<registry>/rocm-fa:7.2``.

    Raises ``CommandFailedError`` if the registry refuses it, ``ImageError`` if it returns no digest.
    """
    name, _, tag = f"{registry}/{ref}".rpartition(":")
    run(["docker", "tag", ref, f"{name}:{tag}"], log=log)
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-login-") as folder:
        env = dict(environ)
        if TOKEN in environ:
            # A file of the engine's own form, because a password on a command line can be read by all.
            login = base64.b64encode(f"{environ.get(USER, '')}:{environ[TOKEN]}".encode()).decode()
            config = {"auths": {registry.partition("/")[0]: {"auth": login}}}
            (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
            env["DOCKER_CONFIG"] = folder
        advice = f"may this user write there? {USER} and {TOKEN} are its name and password, or docker login"
        run(["docker", "push", f"{name}:{tag}"], log=log, env=env, advice=advice)
    argv = ["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", f"{name}:{tag}"]
    digests = [found.partition("@") for found in json.loads(run(argv).stdout)]
    for where, _, digest in digests:
        if where == name:
            return Pushed(name, tag, digest)
    message = f"{name}:{tag} was pushed, but the engine knows no digest of it"
    raise ImageError(message, advice=f"look it up in the registry; log: {log}")

"""A runner that starts nothing and records its commands."""

from wheel_builder.base.process import Completed


class Noted:
    """A fake ``process.run``: every program prints what inspecting an image prints."""

    def __init__(self):
        self.commands, self.envs = [], []

    def __call__(self, argv, *, env=None, **kwargs):
        self.commands.append([str(part) for part in argv])
        self.envs.append(env or {})
        inspected = (
            '{"Id": "sha256:1", "RepoDigests": [], "Config": {"Labels": {}}, "Created": "", "Size": 1}'
        )
        return Completed("sha256:1" if "images" in argv else inspected, 0)

    @property
    def containers(self):
        return [command for command in self.commands if command[:2] == ["docker", "run"]]

"""Compiles device code in the builder image. Needs no GPU."""

import shutil
from pathlib import Path

import pytest

from wheel_builder.base.errors import CommandFailedError
from wheel_builder.images.docker import Mount, caller, run_in
from wheel_builder.tables.archs import known_archs

CHECKOUT = Path(__file__).parents[3]


class Toolchain:
    """The instance scripts of one kernels folder, run offline in the builder image."""

    def __init__(self, image, kernels, scratch):
        self.image, self.kernels, self.scratch = image, kernels, scratch
        self.memory_mib = 0
        scratch.chmod(0o777)

    def __call__(self, *argv):
        """Run ``argv`` with the checkout at ``/src`` and a scratch folder at ``/out``.

        Returns the log's text.
        """
        log = self.scratch / "log"
        mounts = [
            Mount(self.kernels, "/src/kernels"),
            Mount(self.scratch, "/out", writable=True),
        ]
        env = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "/src"}
        limits = {"memory_mib": self.memory_mib}
        return run_in(self.image, argv, mounts=mounts, env=env, user=caller(), log=log, **limits).stdout

    def build(self, arch, *more, out="device"):
        """Compile for ``arch``. Returns the folder with its code objects."""
        script = "/src/kernels/build/instances/build.py"
        self("python3", script, "--arch", arch, "--out", f"/out/{out}/{arch}", *more)
        return self.scratch / out / arch

    def bundle(self, *more, out="bundles"):
        script = "/src/kernels/build/instances/bundle.py"
        self("python3", script, "--device", "/out/device", "--out", f"/out/{out}", *more)
        return self.scratch / out

    def fails(self, call, *args, **kwargs):
        """The output of a call expected to fail."""
        with pytest.raises(CommandFailedError):
            call(*args, **kwargs)
        return (self.scratch / "log").read_text()


@pytest.fixture
def toolchain(builder_image, tmp_path):
    return Toolchain(builder_image, CHECKOUT / "kernels", tmp_path)


@pytest.fixture
def changed(builder_image, tmp_path):
    """A toolchain on a copy of the kernels. ``change(old, new)`` has replaced text of a header in it."""

    def change(header, old, new):
        kernels = tmp_path / "kernels"
        shutil.copytree(CHECKOUT / "kernels", kernels, ignore=shutil.ignore_patterns("__pycache__"))
        path = kernels / header
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        (tmp_path / "scratch").mkdir()
        return Toolchain(builder_image, kernels, tmp_path / "scratch")

    return change


@pytest.fixture(scope="session")
def device(builder_image, device_code, tmp_path_factory):
    """Everything the table has, compiled for each arch alone as a release does, and bundled."""
    toolchain = Toolchain(builder_image, CHECKOUT / "kernels", tmp_path_factory.mktemp("device"))
    for arch in known_archs():
        shutil.copytree(device_code(arch), toolchain.scratch / "device" / arch)
    toolchain.bundle()
    return toolchain.scratch

"""The drop-ins, such as flash-attn: pure Python wheels for every ROCm version, each a row of ``SHIMS``.

Input: a builder image, for its Python and build back end. Output: one wheel each, with no repair step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, WheelError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file, sha256_tree
from wheel_builder.build.product import read_product
from wheel_builder.build.wheel_inputs import read_inputs
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in

TAG = "py3-none-any"


@dataclass(frozen=True)
class Shim:
    """A distribution with another one's name and modules: ``name`` is its own, ``modules`` are imported by
    libraries, ``users`` are examples of these, ``folder`` has its sources, and ``tests`` run against the
    installed one."""

    name: str
    modules: str
    users: str
    folder: str
    tests: str

    @property
    def package(self) -> str:
        """Its name in names of files."""
        return self.name.replace("-", "_")


# The folder of this one has the build back end.
FLASH_ATTN = Shim("flash-attn", "flash_attn", "transformers and diffusers", "shim", "tests/installed/shim")
FLASH_ATTN_3 = Shim(
    "flash-attn-3", "flash_attn_interface", "transformers and diffusers", "shim3", "tests/installed/shim3"
)
SAGEATTENTION = Shim(
    "sageattention", "sageattention", "ComfyUI and diffusers", "shim_sage", "tests/installed/shim_sage"
)
SHIMS = (FLASH_ATTN, FLASH_ATTN_3, SAGEATTENTION)
NAMES = frozenset(shim.name for shim in SHIMS)
FOLDERS = tuple(shim.folder for shim in SHIMS)


def shim_of(wheel: Path) -> Shim | None:
    """The distribution of a wheel, by its name, or None."""
    return next((shim for shim in SHIMS if wheel.name.startswith(f"{shim.package}-")), None)


def shim_digest(shim: Shim, checkout: Path) -> str:
    """The sha256 over its sources."""
    return sha256_tree(checkout, [checkout / shim.folder])


def wheel_name(shim: Shim, checkout: Path) -> str:
    """The file name of its wheel, with version and build number of its sources."""
    product = read_product(checkout / shim.folder)
    return f"{shim.package}-{product.version}-{product.build}-{TAG}.whl"


def build_shim(
    shim: Shim, *, image: Artifact, checkout: Path, store: Store, log: Path, run: Runner = run
) -> Artifact:
    """Build the wheel without network or rights.  Facts: ``wheel`` (file name), ``sha256``, ``bytes``.

    Raises ``WheelError``.
    """
    epoch = read_inputs(checkout).source_date_epoch
    inputs = {
        "image": image.facts["image_id"], "sources": shim_digest(shim, checkout), "source_date_epoch": epoch,
    }  # fmt: skip

    def make(out: Path) -> Mapping[str, Any]:
        python = f"/opt/python/{image.facts['python_tag']}/bin/python"
        argv = [python, "-m", "build", "--wheel", "--no-isolation", "--outdir", "/out"]
        # The build back end of the others is a link to flash-attn's.
        folders = dict.fromkeys([FLASH_ATTN.folder, shim.folder])
        mounts = [Mount(checkout / folder, f"/src/{folder}") for folder in folders]
        mounts.append(Mount(out, "/out", writable=True))
        env = {"SOURCE_DATE_EPOCH": epoch, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            with open_to_all(out):
                run_in(
                    image.facts["ref"], argv, mounts=mounts, env=env, user=NOBODY,
                    workdir=f"/src/{shim.folder}", log=log, run=run,
                )  # fmt: skip
        except CommandFailedError as error:
            message = f"the wheel of {shim.name} does not build\n{error.message}"
            raise WheelError(message, advice=f"read the log: {log}") from error
        return _facts(out, wheel_name(shim, checkout), log)

    return store.get_or_make("shim", inputs, make)


def _facts(out: Path, name: str, log: Path) -> Mapping[str, Any]:
    wheel = out / name
    found = sorted(file.name for file in out.iterdir())
    if found != [wheel.name]:
        message = f"expected {wheel.name} from the build, found {', '.join(found) or 'nothing'}"
        raise WheelError(message, advice=f"read the log: {log}")
    return {"wheel": wheel.name, "sha256": sha256_file(wheel), "bytes": wheel.stat().st_size}

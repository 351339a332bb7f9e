"""The distribution flash-attn: a pure Python wheel of the folder ``shim``, the same for every ROCm version.

In: a builder image, for its Python and build back end.  Out: one wheel, which needs no repair.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, WheelError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file, sha256_tree
from wheel_builder.build.product import read_product
from wheel_builder.build.wheel_inputs import read_inputs
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in

FOLDER = "shim"
NAME = "flash-attn"
PACKAGE = "flash_attn"
TAG = "py3-none-any"


def is_shim(wheel: Path) -> bool:
    """Whether a wheel is this one, by its name."""
    return wheel.name.startswith(f"{PACKAGE}-")


def shim_digest(checkout: Path) -> str:
    """The sha256 over its sources."""
    return sha256_tree(checkout, [checkout / FOLDER])


def wheel_name(checkout: Path) -> str:
    """The file name of its wheel, with version and build number of its sources."""
    product = read_product(checkout / FOLDER)
    return f"{PACKAGE}-{product.version}-{product.build}-{TAG}.whl"


def build_shim(*, image: Artifact, checkout: Path, store: Store, log: Path, run: Runner = run) -> Artifact:
    """Build the wheel without network or rights.  Facts: ``wheel`` (file name), ``sha256``, ``bytes``.

    Raises ``WheelError``.
    """
    epoch = read_inputs(checkout).source_date_epoch
    inputs = {
        "image": image.facts["image_id"], "sources": shim_digest(checkout), "source_date_epoch": epoch,
    }  # fmt: skip

    def make(out: Path) -> Mapping[str, Any]:
        python = f"/opt/python/{image.facts['python_tag']}/bin/python"
        argv = [python, "-m", "build", "--wheel", "--no-isolation", "--outdir", "/out"]
        mounts = [Mount(checkout / FOLDER, "/src"), Mount(out, "/out", writable=True)]
        env = {"SOURCE_DATE_EPOCH": epoch, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            with open_to_all(out):
                run_in(
                    image.facts["ref"], argv, mounts=mounts, env=env, user=NOBODY, workdir="/src", log=log,
                    run=run,
                )  # fmt: skip
        except CommandFailedError as error:
            message = f"the wheel of {NAME} does not build\n{error.message}"
            raise WheelError(message, advice=f"read the log: {log}") from error
        return _facts(out, wheel_name(checkout), log)

    return store.get_or_make("shim", inputs, make)


def _facts(out: Path, name: str, log: Path) -> Mapping[str, Any]:
    wheel = out / name
    found = sorted(file.name for file in out.iterdir())
    if found != [wheel.name]:
        message = f"expected {wheel.name} from the build of {NAME}, found {', '.join(found) or 'nothing'}"
        raise WheelError(message, advice=f"read the log: {log}")
    return {"wheel": wheel.name, "sha256": sha256_file(wheel), "bytes": wheel.stat().st_size}

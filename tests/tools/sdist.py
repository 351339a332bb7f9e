"""Files of upstream's source distribution pinned by matrix.yaml. Only a container executes them."""

import tarfile

from tests.conftest import CHECKOUT
from wheel_builder.extras.upstream.sdist import fetch_sdist
from wheel_builder.matrix.reading import load_matrix


def file_of_sdist(name, context):
    """The content of one file, named as in its folder."""
    archive, inside = opened(context)
    with archive:
        return archive.extractfile(f"{inside}/{name}").read()


def folder_of_sdist(name, into, context):
    """Unpacks one folder, and returns the folder that has it."""
    archive, inside = opened(context)
    with archive:
        members = [each for each in archive if each.name.startswith(f"{inside}/{name}/")]
        archive.extractall(into, members, filter="data")
    return into / inside


def opened(context):
    """The archive, and its only folder."""
    upstream = load_matrix(CHECKOUT / "matrix.yaml").upstream
    sdist = fetch_sdist(upstream, context.store, log=context.log("upstream"))
    return tarfile.open(sdist.path / sdist.facts["file"]), f"flash_attn-{upstream.version}"

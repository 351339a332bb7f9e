"""Files of upstream's source distribution pinned by matrix.yaml. Only a container executes them."""

import tarfile

from tests.conftest import CHECKOUT
from wheel_builder.extras.upstream.in_container import unpack
from wheel_builder.extras.upstream.sdist import fetch_sdist
from wheel_builder.matrix.reading import load_matrix


def file_of_sdist(name, context):
    """The content of one file, named as in its folder."""
    file = sdist_of(context)
    with tarfile.open(file) as archive:
        return archive.extractfile(f"{file.name.removesuffix('.tar.gz')}/{name}").read()


def folder_of_sdist(name, into, context):
    """Unpacks one folder into ``into``, and returns that."""
    unpack(str(sdist_of(context)), into / name, name)
    return into


def sdist_of(context):
    """The file, fetched once."""
    upstream = load_matrix(CHECKOUT / "matrix.yaml").upstream
    sdist = fetch_sdist(upstream, context.store, log=context.log("upstream"))
    return sdist.path / sdist.facts["file"]

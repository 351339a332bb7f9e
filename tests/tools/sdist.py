"""Files of upstream's source distribution pinned by matrix.yaml. They are read, never executed."""

import tarfile

from tests.conftest import CHECKOUT
from wheel_builder.extras.upstream.sdist import fetch_sdist
from wheel_builder.matrix.reading import load_matrix


def file_of_sdist(name, context):
    """The content of one file, named as in its folder."""
    upstream = load_matrix(CHECKOUT / "matrix.yaml").upstream
    sdist = fetch_sdist(upstream, context.store, log=context.log("upstream"))
    with tarfile.open(sdist.path / sdist.facts["file"]) as archive:
        return archive.extractfile(f"flash_attn-{upstream.version}/{name}").read()

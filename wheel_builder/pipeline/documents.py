"""The documentation beside an index, to which its page then leads."""

import tempfile
from pathlib import Path

from wheel_builder.docs.build import build
from wheel_builder.index import manual
from wheel_builder.index.folder import changing, write_pages
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.pipeline.context import RunContext


def publish_documents(context: RunContext, catalogue: Catalogue) -> Path:
    """Build the checkout's documentation and put it beside the run's index; its first page."""
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-docs-") as folder:
        site = Path(folder) / "site"
        build(context.checkout, site, log=context.log("docs"))
        return put_documents(context.index, site, catalogue)


def put_documents(root: Path, site: Path, catalogue: Catalogue) -> Path:
    """Put a built site beside an index; its first page there."""
    with changing(root, again="put the documentation there again"):
        manual.put(root, site)
        write_pages(root, catalogue)
    return root.absolute() / manual.FOLDER / "index.html"

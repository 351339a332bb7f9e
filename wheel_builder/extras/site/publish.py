"""Puts the documentation next to an index, linked from the index page."""

from pathlib import Path

from wheel_builder.extras.site.build import build, inputs_of
from wheel_builder.index import manual
from wheel_builder.index.folder import changing, write_pages
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.pipeline.context import RunContext

SITE = "site"


def publish_documents(context: RunContext, catalogue: Catalogue) -> Path:
    """Build the checkout's documentation, unless unchanged, and put it next to the run's index.

    Returns its first page there.
    """

    def make(folder: Path) -> dict[str, str]:
        build(context.checkout, folder / SITE, log=context.log("docs"))
        return {}

    made = context.store.get_or_make("documents", inputs_of(context.checkout), make)
    return put_documents(context.index, made.path / SITE, catalogue)


def put_documents(root: Path, site: Path, catalogue: Catalogue) -> Path:
    """Put a built site next to an index. Returns its first page there."""
    with changing(root, again="put the documentation there again"):
        manual.put(root, site)
        write_pages(root, catalogue)
    return root.absolute() / manual.FOLDER / "index.html"

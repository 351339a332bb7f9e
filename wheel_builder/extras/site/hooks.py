"""Hooks called by mkdocs: they insert the tables into the pages."""

from pathlib import Path

from wheel_builder.extras.site.tables import fill, tables
from wheel_builder.matrix.reading import load_matrix

CHECKOUT = Path(__file__).parents[3]
_TABLES = tables(CHECKOUT)
_INDEX = load_matrix(CHECKOUT / "matrix.yaml").addresses.index


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with its tables."""
    return fill(markdown, _TABLES, _INDEX)

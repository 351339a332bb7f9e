"""What mkdocs calls: the tables go into the pages."""

from pathlib import Path

from wheel_builder.docs.tables import fill, tables

CHECKOUT = Path(__file__).parents[2]
_TABLES = tables(CHECKOUT)


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with its tables."""
    return fill(markdown, _TABLES)

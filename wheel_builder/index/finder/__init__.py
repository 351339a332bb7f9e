"""The page where users find their wheel: static, made with the index from its records and matrix.yaml.

    <root>/wheels.json   the catalogue and every published wheel, for programs
    <root>/index.html    one self-contained page: tables to read, and with JavaScript a search box

``data`` and ``steps`` decide the content, ``html`` escapes by construction, ``page`` combines them. In the
browser ``match.js`` finds GPUs in the typed text, ``finder.js`` shows the answer, ``copy.js`` copies
commands.
"""

from wheel_builder.index.finder.data import Finder
from wheel_builder.index.finder.page import html_page
from wheel_builder.index.simple.pages import HTML_PAGE, json_bytes

DATA_FILE = "wheels.json"


def finder_pages(finder: Finder, *, documented: bool = False) -> dict[str, bytes]:
    """The page and its data: file name -> content, in the order of writing."""
    return {DATA_FILE: json_bytes(finder.to_json()), HTML_PAGE: html_page(finder, documented=documented)}

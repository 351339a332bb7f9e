"""Checks the links of a built site: internal targets exist, and every loaded file is internal."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements loading their target. Targets of all other elements are only followed by readers.
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
FOLLOWED = {"a": "href"}


@dataclass
class Page:
    """The targets in a page, its links and its loaded files."""

    places: set[str] = field(default_factory=set)
    followed: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Links:
    """``problems`` in words. ``external`` are the addresses elsewhere, each once."""

    problems: tuple[str, ...]
    external: tuple[str, ...]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        if "id" in given:
            self.page.places.add(given["id"])
        for kinds, found in ((FOLLOWED, self.page.followed), (LOADED, self.page.loaded)):
            if (value := given.get(kinds.get(tag, ""))) is not None:
                found.append(value)


def read_page(text: str) -> Page:
    """A page's places and links."""
    reader = _Reader()
    reader.feed(text)
    return reader.page


def check_links(site: Path) -> Links:
    """Every link of every page of a site."""
    pages = {file: read_page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    problems, external = [], []
    for file, page in pages.items():
        name = file.relative_to(site)
        for link in dict.fromkeys((*page.followed, *page.loaded)):
            if urlsplit(link).scheme == "https" and link not in page.loaded:
                external.append(link)
            elif problem := _problem(link, file, site, pages):
                problems.append(f"{name}: {link}: {problem}")
    return Links(tuple(problems), tuple(dict.fromkeys(external)))


def _problem(link: str, file: Path, site: Path, pages: dict[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return "expected a file of the site, or an https address for a link"
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target /= "index.html"
    if parts.path.startswith("/") or not target.is_relative_to(site) or not target.is_file():
        return "the site has no such file"
    if parts.fragment and unquote(parts.fragment) not in pages.get(target, Page()).places:
        return "that page has no such anchor"
    return ""

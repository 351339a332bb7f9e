"""Builds the documentation site into a folder: pages with their tables, links checked, a list of hashes."""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import DocsError, ToolMissingError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import sha256_tree
from wheel_builder.extras.site.links import check_links
from wheel_builder.extras.site.tables import problems, tables
from wheel_builder.index.manual import SUMS, sums_of
from wheel_builder.matrix.reading import load_matrix

PAGES = Path("docs")
CONFIG = Path("wheel_builder/extras/site/mkdocs.yml")
LOCK = Path("wheel_builder/extras/site/requirements.txt")
# They contain the site's address, unknown here.
WITHOUT_AN_ADDRESS = ("404.html", "sitemap.xml", "sitemap.xml.gz")
# A list, of pages for instance, follows indented.
FINDING = re.compile(r"^(?:WARNING|ERROR) +- +(.*(?:\n +.*)*)", re.MULTILINE)


def build(checkout: Path, to: Path, *, log: Path, run: Runner = run) -> None:
    """Build the site of ``checkout`` into ``to`` in place of an earlier one. mkdocs' output goes to ``log``.

    Raises ``DocsError`` with all problems of pages and links. Then ``to`` is unchanged.
    """
    require_tools()
    _refuse_foreign(to)
    pages = {str(file.relative_to(checkout)): file.read_text("utf-8") for file in _pages(checkout)}
    if found := problems(pages, tables(checkout)):
        title, advice = (
            "the pages and the tables differ",
            "put docs/ or wheel_builder/extras/site/tables.py right",
        )
        raise DocsError(title, found, advice=advice)
    aside = to.with_name(f".{to.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        _make(checkout, aside, log, run)
        shutil.rmtree(to, ignore_errors=True)
        aside.rename(to)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def inputs_of(checkout: Path) -> dict[str, Any]:
    """All inputs of the site: pages and pictures, tables, and the code to combine them."""
    pages = sha256_tree(checkout, [checkout / PAGES, checkout / CONFIG.parent])
    address = load_matrix(checkout / "matrix.yaml").addresses.index
    return {"pages": pages, "tables": dict(tables(checkout)), "index": address}


def require_tools() -> None:
    """Raise ``ToolMissingError`` if mkdocs is missing."""
    if importlib.util.find_spec("mkdocs") is None:
        message = f"mkdocs is not installed for {sys.executable}"
        raise ToolMissingError(message, advice=f"scripts/venv {LOCK}, then run the same command again")


def _pages(checkout: Path) -> Iterator[Path]:
    yield from sorted((checkout / PAGES).glob("*.md"))


def _refuse_foreign(to: Path) -> None:
    """Refuse to replace a folder made by anything else."""
    if to.exists() and not (to / SUMS).is_file() and not (to.is_dir() and not any(to.iterdir())):
        problem = f"{to} exists and was not made by this command (it has no {SUMS})"
        title, advice = "nothing was built", "name another folder with --to, or remove this one"
        raise DocsError(title, [problem], advice=advice)


def _make(checkout: Path, to: Path, log: Path, run: Runner) -> None:
    _mkdocs(checkout, to, log, run)
    for name in WITHOUT_AN_ADDRESS:
        (to / name).unlink()
    if broken := check_links(to).problems:
        title = "the site has broken links"
        raise DocsError(title, broken, advice="put the pages right")
    (to / SUMS).write_text(sums_of(to), encoding="utf-8")


def _mkdocs(checkout: Path, to: Path, log: Path, run: Runner) -> None:
    # --quiet would also hide warnings from --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", str(checkout / CONFIG), "--site-dir", str(to.absolute())]
    # The hook imports wheel_builder. The current time would make every build different.
    env = os.environ | {"PYTHONPATH": str(checkout), "SOURCE_DATE_EPOCH": "315619200"}
    done = run(command, log=log, env=env, cwd=checkout, check=False)
    if done.returncode != 0:
        found = [" ".join(words.split()) for words in FINDING.findall(done.stdout)]
        found = found or done.stdout.splitlines()[-5:]
        title, advice = "mkdocs refuses the pages", f"mend the pages; its whole output is in {log}"
        raise DocsError(title, found, advice=advice)

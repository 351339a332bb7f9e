"""The documentation site builds without a warning, its links work, and a broken one is refused."""

import re
import shutil
import subprocess

import pytest

from tests.conftest import CHECKOUT
from tests.tools.commands import DOCUMENTS
from wheel_builder.base.errors import DocsError, ToolMissingError
from wheel_builder.cli.commands.extras import docs as command
from wheel_builder.cli.main import main
from wheel_builder.extras.site import build as building
from wheel_builder.extras.site.build import build
from wheel_builder.extras.site.links import check_links
from wheel_builder.extras.site.tables import PLACE
from wheel_builder.index.manual import SUMS, faults

# Tests skip these: CI has no network for them, and foreign sites come and go.
EXTERNAL = {
    "https://pytorch.org/get-started/locally/",
    "https://github.com/ROCm/librocdxg",
    "https://github.com/ROCm/TheRock/blob/main/RELEASES.md",
    "https://github.com/mixa3607/ML-gfx906",
    "https://peps.python.org/pep-0668/",
    "https://peps.python.org/pep-0825/",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    folder = tmp_path_factory.mktemp("docs")
    assert main(["docs", "--to", str(folder / "site")]) == 0
    return folder / "site"


def test_every_page_is_there_and_its_tables_are_filled(site):
    names = [name for name in DOCUMENTS if name.startswith("docs/")]
    assert {file.name for file in site.glob("*.html")} == {
        name.removeprefix("docs/").replace(".md", ".html") for name in names
    }
    for file in site.glob("*.html"):
        assert "{{" not in file.read_text(), file.name
        assert all(table.strip() for _, _, table, _ in PLACE.findall(file.read_text())), file.name


def test_links_elsewhere_are_listed_and_use_https(site):
    assert set(check_links(site).external) == EXTERNAL


def test_nothing_is_loaded_from_elsewhere(site):
    """Style sheets contain no address and import nothing."""
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text()), sheet


def test_the_search_index_has_every_page(site):
    index = (site / "search" / "search_index.json").read_text()
    for page in site.glob("*.html"):
        assert f'"{page.name}' in index
    assert "Navi 31" in index


def test_the_list_of_hashes_holds_every_file(site):
    assert [*faults(site)] == []
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=site, check=True)


@pytest.fixture
def copy(tmp_path):
    """A checkout whose pages are this test's own."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("kernels", "matrix.yaml", "pyproject.toml", "tests", "wheel_builder"):
        (folder / name).symlink_to(CHECKOUT / name)
    shutil.copytree(CHECKOUT / "docs", folder / "docs")
    return folder


def refused(checkout, to):
    with pytest.raises(DocsError) as caught:
        build(checkout, to, log=to.parent / "log")
    return caught.value.problems


def test_mkdocs_refuses_broken_links_anchors_and_pages_that_no_menu_has(copy, tmp_path):
    page = copy / "docs/index.md"
    page.write_text(page.read_text() + "\n[a](gone.md) [b](install.md#gone) [c](/top.md) ![d](gone.png)\n")
    (copy / "docs/new.md").write_text("# New\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / SUMS).write_text("an earlier site")
    found = "\n".join(refused(copy, tmp_path / "site"))
    for words in ("'gone.md'", "'install.md#gone'", "'/top.md'", "'gone.png'", "new.md"):
        assert words in found
    assert (tmp_path / "site" / SUMS).read_text() == "an earlier site"


def test_a_place_without_a_table_and_a_table_without_a_place_are_refused(copy, tmp_path):
    page = copy / "docs/which-wheel.md"
    page.write_text(re.sub(r"(table|end): kernels -->", r"\1: kernel -->", page.read_text()))
    assert refused(copy, tmp_path / "site") == (
        "docs/which-wheel.md: there is no table 'kernel'",
        "no page has a place for the table 'kernels'",
    )


def test_a_folder_that_it_did_not_make_is_not_replaced(tmp_path):
    (tmp_path / "mine.txt").touch()
    [problem] = refused(CHECKOUT, tmp_path)
    assert problem == f"{tmp_path} exists and was not made by this command (it has no SHA256SUMS)"
    assert (tmp_path / "mine.txt").exists()


def test_without_mkdocs_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(building.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolMissingError) as caught:
        build(CHECKOUT, tmp_path / "site", log=tmp_path / "log")
    assert "mkdocs is not installed for" in caught.value.message
    assert caught.value.advice.startswith("scripts/venv wheel_builder/extras/site/requirements.txt")


def test_the_command_says_how_to_read_the_site_with_its_search(tmp_path, monkeypatch, capsys):
    """It printed a file: address, where browsers cannot search."""
    monkeypatch.setattr(command, "build", lambda *_, **__: None)
    monkeypatch.chdir(tmp_path)
    assert main(["docs", "--to", "site"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        (tmp_path / "site/index.html").as_uri(),
        "a browser searches it over http only: scripts/wheel-builder serve --index site",
    ]


@pytest.mark.parametrize(
    ("words", "locks"),
    [(["docs"], 2), (["docs", "--to", "x"], 2), (["release", "--all"], 2), (["index", "docs"], 1)],
)
def test_the_script_installs_mkdocs_for_the_command_that_needs_it(tmp_path, words, locks):
    """README's `scripts/wheel-builder docs` ended with "mkdocs is not installed"."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    shutil.copy(CHECKOUT / "scripts/wheel-builder", tmp_path / "scripts")
    for name in ("scripts/venv", ".venv/bin/python"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/asked\n')
        (tmp_path / name).chmod(0o755)
    subprocess.run([tmp_path / "scripts/wheel-builder", *words], check=True)
    wanted = ["wheel_builder/requirements.txt", "wheel_builder/extras/site/requirements.txt"][:locks]
    assert (tmp_path / "asked").read_text().splitlines() == [
        *(f"scripts/venv {lock}" for lock in wanted),
        f".venv/bin/python -m wheel_builder {' '.join(words)}",
    ]

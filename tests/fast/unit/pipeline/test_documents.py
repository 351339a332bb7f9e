"""A release puts the documentation next to its index. README says that one command makes it."""

import shutil
from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT
from tests.fast.unit.index.test_folder import FILE, NOW
from tests.fast.unit.index.test_manual import make_site
from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.base.errors import DocsError
from wheel_builder.cli.commands.wheels import release
from wheel_builder.cli.main import main
from wheel_builder.extras.site import build as building
from wheel_builder.extras.site import publish as documents
from wheel_builder.index.check import verify_index
from wheel_builder.index.folder import add_file, write_pages
from wheel_builder.matrix.model import Job, Rocm
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.release import Attempt
from wheel_builder.pipeline.steps import Steps

JOB = Job(Rocm("7.2", "debian", "debian:sid-slim", "/usr/lib/llvm-22/bin", ("gfx908",)), ("gfx908",))


@pytest.fixture
def context(tmp_path):
    index = tmp_path / "index"
    add_file(index / "rocm7.2/simple", FILE, NOW)
    write_pages(index, CATALOGUE)
    return RunContext(tmp_path, tmp_path / "build", tmp_path / "dist", index, jobs=1)


def test_the_page_leads_to_the_documents(context, monkeypatch):
    """The documents and the page's link to them were missing."""

    def build(checkout, site, *, log):
        assert (checkout, log.name) == (context.checkout, "docs.log")
        built.append(site)
        site.mkdir()
        make_site(site, install="how")

    built = []
    monkeypatch.setattr(documents, "build", build)
    monkeypatch.setattr(documents, "inputs_of", lambda _: {"pages": "1"})
    assert 'href="docs/' not in (context.index / "index.html").read_text()
    first = documents.publish_documents(context, CATALOGUE)
    assert first == context.index / "docs/index.html"
    assert (context.index / "docs/install.html").read_text() == "how"
    assert 'href="docs/' in (context.index / "index.html").read_text()
    assert verify_index(context.index) == ()
    assert documents.publish_documents(context, CATALOGUE) == first
    assert len(built) == 1, "unchanged pages are not built again"


def test_what_decides_of_the_site_is_its_key(tmp_path, monkeypatch):
    for name in ("docs", "wheel_builder/extras/site"):
        shutil.copytree(CHECKOUT / name, tmp_path / name)
    (tmp_path / "matrix.yaml").symlink_to(CHECKOUT / "matrix.yaml")
    made = {"gpus": "a table"}
    monkeypatch.setattr(building, "tables", lambda _: made)
    before = building.inputs_of(tmp_path)
    assert building.inputs_of(tmp_path) == before
    made["gpus"] = "another"
    tables = building.inputs_of(tmp_path)
    (tmp_path / "docs/install.md").write_text("another")
    assert len({str(each) for each in (before, tables, building.inputs_of(tmp_path))}) == 3


@pytest.mark.parametrize("published", [True, False])
def test_a_release_that_published_something_publishes_documents(published, context, monkeypatch, capsys):
    attempt = Attempt(JOB, published=context.index if published else None)
    monkeypatch.setattr(release, "run_context", lambda _: context)
    monkeypatch.setattr(release, "release", lambda *_: SimpleNamespace(run=lambda **_: (attempt,)))
    monkeypatch.setattr(release, "publish_documents", lambda of, _: of.index / "docs/index.html")
    assert main(["release"]) == 0
    said = capsys.readouterr().out
    assert (f"documents {(context.index / 'docs/index.html').as_uri()}, beside" in said) == published
    assert (f"scripts/wheel-builder serve --index {context.index}" in said) == published


def test_without_mkdocs_nothing_is_built(context, monkeypatch):
    def missing():
        title = "mkdocs is not installed"
        raise DocsError(title, [])

    monkeypatch.setattr(release, "require_tools", missing)
    monkeypatch.setattr(Steps, "run_shown", lambda *_: pytest.fail("it was built"))
    assert main(["release"]) == DocsError.exit_code

"""An index's documentation: replaced as a whole, checked by hashes. All other files are untouched."""

import pytest

from tests.fast.unit.index.test_folder import FILE, NOW
from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.base.errors import PublishError
from wheel_builder.cli.commands.indexes import index
from wheel_builder.cli.main import main
from wheel_builder.index import manual
from wheel_builder.index.check import verify_index
from wheel_builder.index.folder import add_file, changing, write_pages

AGAIN = "put the documentation there again: scripts/wheel-builder index docs --site DIR"


def make_site(folder, **pages):
    for name, text in {"index": "start", **pages}.items():
        file = folder / name.replace("__", "/")
        file = file.with_name(f"{file.name}.html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / manual.SUMS).write_text(manual.sums_of(folder))
    return folder


@pytest.fixture
def root(tmp_path):
    """An index with one file."""
    add_file(tmp_path / "index/rocm7.2/simple", FILE, NOW)
    write_pages(tmp_path / "index", CATALOGUE)
    return tmp_path / "index"


def put(root, site):
    with changing(root):
        manual.put(root, site)
        write_pages(root, CATALOGUE)


def content(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_it_is_beside_the_wheels_and_the_page_links_to_it(root, tmp_path):
    before = content(root)
    assert b"docs/index.html" not in before[root / "index.html"]
    put(root, make_site(tmp_path / "site", about="1", sub__page="2"))
    assert verify_index(root) == ()
    assert (root / "docs/sub/page.html").read_text() == "2"
    after = content(root)
    assert b'<a href="docs/index.html">Documentation</a>' in after[root / "index.html"]
    changed = {path for path in before if before[path] != after[path]}
    assert changed <= {root / "index.html"}


def test_a_newer_one_replaces_it_as_a_whole(root, tmp_path):
    put(root, make_site(tmp_path / "old", gone="1", sub__page="2"))
    put(root, make_site(tmp_path / "new", index="news", there="3"))
    assert verify_index(root) == ()
    names = {str(path.relative_to(root / "docs")) for path in (root / "docs").rglob("*")}
    assert names == {"index.html", "there.html", manual.SUMS}
    assert (root / "docs/index.html").read_text() == "news"


def test_publishing_wheels_later_leaves_it(root, tmp_path):
    put(root, make_site(tmp_path / "site"))
    before = content(root / "docs")
    write_pages(root, CATALOGUE)
    assert content(root / "docs") == before
    assert verify_index(root) == ()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "index.html",
            "other",
            "docs/index.html: sha256 is d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa, ",
        ),
        ("index.html", None, "docs/index.html: sha256 is that of no file, SHA256SUMS says "),
        ("stray.js", "x", "docs/stray.js: SHA256SUMS does not name it"),
        ("SHA256SUMS", "x", "docs/SHA256SUMS: it cannot be read as lines of a sha256 and a name"),
        ("SHA256SUMS", None, "docs/SHA256SUMS: it cannot be read as lines of a sha256 and a name"),
    ],
)
def test_verify_explains_each_fault_and_putting_it_there_again_heals(root, tmp_path, name, text, words):
    site = make_site(tmp_path / "site")
    put(root, site)
    path = root / "docs" / name
    path.write_text(text) if text is not None else path.unlink()
    fault = verify_index(root)[-1]
    assert words in fault
    assert fault.endswith(f"; {AGAIN}")
    put(root, site)
    assert verify_index(root) == ()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}  ../index.html\n", "expected a line for each file"),
        ("{}  /etc/passwd\n", "expected a line for each file"),
        ("{}  .hidden\n", "expected a line for each file"),
        ("{}  a//b\n", "expected a line for each file"),
        ("{}  gone.html\n", "gone.html: sha256 is that of no file"),
    ],
)
def test_a_list_that_leads_elsewhere_is_refused_and_nothing_is_changed(root, tmp_path, line, words):
    site = make_site(tmp_path / "site")
    before = content(root)
    with (site / manual.SUMS).open("a") as stream:
        stream.write(line.format("0" * 64))
    with pytest.raises(PublishError, match="is no documentation; nothing was changed") as caught:
        put(root, site)
    assert words in str(caught.value)
    assert content(root) == before | {root / ".lock": b""}


def test_a_link_in_place_of_a_file_is_refused(root, tmp_path):
    site = make_site(tmp_path / "site", about="1")
    (site / "about.html").rename(tmp_path / "elsewhere")
    (site / "about.html").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PublishError, match=r"about\.html: sha256 is that of no file"):
        put(root, site)


@pytest.mark.parametrize("failing", range(4))
def test_when_a_write_fails_it_is_told_and_the_next_try_completes_it(root, tmp_path, monkeypatch, failing):
    put(root, make_site(tmp_path / "old", about="1"))
    site = make_site(tmp_path / "new", index="2", about="3", more="4")
    real, done = manual.ensure, []

    def ensure(path, data):
        if len(done) == failing:
            raise OSError(28, "No space left on device", str(path))
        done.append(path)
        real(path, data)

    monkeypatch.setattr(manual, "ensure", ensure)
    with pytest.raises(PublishError, match="No space left on device"):
        put(root, site)
    monkeypatch.undo()
    assert all(fault.endswith(AGAIN) for fault in verify_index(root))
    put(root, site)
    assert verify_index(root) == ()


def test_the_command(root, tmp_path, capsys, monkeypatch):
    site = make_site(tmp_path / "site")
    assert main(["index", "docs", "--index", str(root), "--site", str(site)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        (root / "docs/index.html").as_uri(),
        f"a browser searches it over http only: scripts/wheel-builder serve --index {root}",
    ]
    monkeypatch.setattr(index, "OURS", None)  # a real index refuses the project demo
    assert main(["index", "verify", "--index", str(root)]) == 0
    assert (
        main(["index", "docs", "--index", str(root), "--site", str(tmp_path / "none")])
        == PublishError.exit_code
    )
    assert "build it again: scripts/wheel-builder docs" in capsys.readouterr().err

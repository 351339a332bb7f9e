"""The files offered by each folder of an index."""

import html
import itertools
import json
import re
from dataclasses import replace
from urllib.parse import unquote

import pytest

from tests.fast.unit.index.test_folder import FILE, NOW, Links, demo
from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.index.check import verify_index
from wheel_builder.index.folder import add_file, read_contents, write_pages, yank
from wheel_builder.index.offers import everything, finder_pages_of, offered, simple_pages
from wheel_builder.index.simple.pages import Entry
from wheel_builder.matrix.model import PROJECT

SHIMS = (
    demo("2.8.3+rocm1", (), "flash-attn"), demo("3.0.0", (), "flash-attn-3", "1"),
    demo("2.2.0", (), "sageattention", "1"),
)  # fmt: skip


def hrefs(root, page):
    """The targets of a page's links, as files below the root, with their sha256."""
    for link in Links((root / page).read_bytes()).links:
        target, _, fragment = link["href"].partition("#sha256=")
        yield (root / page).parent.joinpath(unquote(target)).resolve().relative_to(root).as_posix(), fragment


def test_the_root_offers_the_files_of_every_rocm_version(tmp_path):
    files = {"6.4": demo("1.0+rocm6.4", serves=()), "7.2": demo("1.0+rocm7.2", serves=())}
    for rocm, file in files.items():
        add_file(tmp_path / f"rocm{rocm}" / "simple", file, NOW)
    write_pages(tmp_path, CATALOGUE)

    expected = [(f"rocm{rocm}/simple/demo/{file.filename}", file.sha256) for rocm, file in files.items()]
    assert list(hrefs(tmp_path, "simple/demo/index.html")) == expected
    document = json.loads((tmp_path / "simple/demo/index.json").read_bytes())
    assert document["versions"] == ["1.0+rocm6.4", "1.0+rocm7.2"]
    assert [file["url"] for file in document["files"]] == [
        "../../" + path.replace("+", "%2B") for path, _ in expected
    ]
    assert json.loads((tmp_path / "simple/index.json").read_bytes())["projects"] == [{"name": "demo"}]


def test_a_file_in_two_versions_stands_once_in_the_root_and_a_yank_counts(tmp_path):
    for rocm in ("6.4", "7.2"):
        add_file(tmp_path / f"rocm{rocm}" / "simple", demo("1.0", serves=()), NOW)
    yank(tmp_path, "7.2", "demo-1.0-py3-none-any.whl", "broken", catalogue=CATALOGUE, now=NOW)

    (entry,) = everything(read_contents(tmp_path))["demo"]
    assert entry.yanked == "broken"
    assert offered(read_contents(tmp_path), "6.4")["demo"][0].yanked is None


def test_a_wheel_is_offered_for_the_runtimes_that_it_serves(tmp_path):
    add_file(tmp_path / "rocm7.2/simple", demo("1.0+rocm7.2", serves=("7.1", "6.4")), NOW)
    add_file(tmp_path / "rocm6.4/simple", demo("1.0+rocm6.4", serves=()), NOW)
    write_pages(tmp_path, CATALOGUE)

    (link,) = hrefs(tmp_path, "rocm7.1/simple/demo/index.html")
    assert link[0] == "rocm7.2/simple/demo/demo-1.0+rocm7.2-py3-none-any.whl"
    assert [e.record.version for e in offered(read_contents(tmp_path), "6.4")["demo"]] == ["1.0+rocm6.4"]
    assert verify_index(tmp_path) == ()


def test_the_public_wheel_is_offered_where_no_other_of_its_version_is(tmp_path):
    """PyTorch has ROCm versions without a wheel: 7.14, 10.0."""
    public = demo("1.0", serves=("6.4", "7.2", "7.14", "10.0"))
    add_file(tmp_path / "public/simple", public, NOW)
    add_file(tmp_path / "rocm7.2/simple", demo("1.0+rocm7.2", serves=()), NOW)
    write_pages(tmp_path, CATALOGUE)

    for folder in ("public", "rocm6.4", "rocm7.14", "rocm10.0"):
        [link] = hrefs(tmp_path, f"{folder}/simple/demo/index.html")
        assert link == ("public/simple/demo/demo-1.0-py3-none-any.whl", public.sha256)
    assert [e.record.version for e in offered(read_contents(tmp_path), "7.2")["demo"]] == ["1.0+rocm7.2"]
    [first, second] = hrefs(tmp_path, "simple/demo/index.html")
    assert (first[0], second[0]) == (
        "public/simple/demo/demo-1.0-py3-none-any.whl",
        "rocm7.2/simple/demo/demo-1.0+rocm7.2-py3-none-any.whl",
    )
    assert verify_index(tmp_path) == ()
    yank(tmp_path, "7.2", "demo-1.0+rocm7.2-py3-none-any.whl", "broken", catalogue=CATALOGUE, now=NOW)
    own = offered(read_contents(tmp_path), "7.2")["demo"]
    assert [(e.record.version, e.yanked) for e in own] == [("1.0", None), ("1.0+rocm7.2", "broken")]


@pytest.mark.parametrize("shim", SHIMS, ids=[shim.project for shim in SHIMS])
def test_flash_attn_is_offered_for_every_rocm_version_once(tmp_path, shim):
    for rocm in ("6.4", "7.2"):
        add_file(tmp_path / f"rocm{rocm}/simple", demo(f"1.0+rocm{rocm}", serves=("7.1", "7.0")), NOW)
        add_file(tmp_path / f"rocm{rocm}/simple", shim, NOW)
    write_pages(tmp_path, CATALOGUE)
    for rocm in ("6.4", "7.0", "7.1", "7.2"):
        (link,) = hrefs(tmp_path, f"rocm{rocm}/simple/{shim.project}/index.html")
        assert link[0].endswith(shim.filename)
    assert shim.filename.encode() not in (tmp_path / "index.html").read_bytes(), "the page is about kernels"
    assert json.loads((tmp_path / "wheels.json").read_bytes())["drop_ins"] == [shim.project]
    assert verify_index(tmp_path) == ()


def test_later_builds_of_flash_attn_are_offered_for_every_rocm_version_in_order(tmp_path):
    """Build 10 was sorted before build 2, by name, and an own build hid another ROCm version's."""
    for rocm, build in (("6.4", 2), ("7.2", 10)):
        name = f"flash_attn-2.8.3-{build}-py3-none-any.whl"
        file = demo("2.8.3", (), "flash-attn", f"{build}")
        assert file.filename == name
        add_file(tmp_path / f"rocm{rocm}/simple", file, NOW)
    write_pages(tmp_path, CATALOGUE)
    for simple in ("rocm6.4/simple", "rocm7.2/simple", "simple"):
        names = [link.rpartition("/")[2] for link, _ in hrefs(tmp_path, f"{simple}/flash-attn/index.html")]
        assert names == [f"flash_attn-2.8.3-{build}-py3-none-any.whl" for build in (2, 10)]
    assert verify_index(tmp_path) == ()


def test_a_later_public_version_is_offered_beside_an_own_older_one(tmp_path):
    add_file(tmp_path / "rocm7.2/simple", demo("2.0+rocm7.2", serves=("6.4",)), NOW)
    add_file(tmp_path / "rocm6.4/simple", demo("1.0+rocm6.4", serves=()), NOW)
    found = [e.record.version for e in offered(read_contents(tmp_path), "6.4")["demo"]]
    assert found == ["1.0+rocm6.4", "2.0+rocm7.2"]


def ours(version, rocm, serves, *, yanked):
    """A published wheel of the product."""
    name = f"flash_attn_rocm-{version}+rocm{rocm}-py3-none-any.whl"
    file = replace(FILE, project=PROJECT, filename=name, version=f"{version}+rocm{rocm}", serves=serves)
    return Entry(replace(file, verified={"gfx908": "executed"}).to_record(NOW), "broken" if yanked else None)


def installs(page):
    """The ROCm version and the requirement of each pip and uv command on the page for this index."""
    lines = re.findall(r"<code>((?:uv )?pip install [^<]*INDEX/[^<]*)</code>", page.decode())
    for line in map(html.unescape, lines):
        found = re.search(r"install (\S+)==(\S+) --index-url \S+/rocm([^/]+)/simple/$", line)
        yield found[1], found[2], found[3]


YANKS = tuple(itertools.product((False, True), repeat=4))


@pytest.mark.parametrize("yanks", YANKS)
def test_every_command_on_the_page_names_a_file_that_its_index_lists(yanks):
    """After a yank of 0.1.0+rocm7.2 the page named 0.1.0+rocm6.4, which was missing in /rocm7.2/simple."""
    contents = {
        "6.4": {PROJECT: (ours("0.1.0", "6.4", ("7.2", "7.1"), yanked=yanks[0]),)},
        "7.2": {
            PROJECT: (
                ours("0.1.0", "7.2", ("7.1",), yanked=yanks[1]),
                ours("0.2.0", "7.2", ("6.4",), yanked=yanks[2]),
            )
        },
        "7.0": {PROJECT: (ours("0.2.0", "7.0", ("7.2", "6.4"), yanked=yanks[3]),)},
    }
    pages = simple_pages(contents)
    found = list(installs(finder_pages_of(contents, CATALOGUE)["index.html"]))
    assert bool(found) == (not all(yanks))
    for project, version, rocm in found:
        files = json.loads(pages[f"rocm{rocm}/simple/{project}/index.json"])["files"]
        offered = {file["filename"] for file in files if file["yanked"] is False}
        assert f"flash_attn_rocm-{version}-py3-none-any.whl" in offered


def test_a_yanked_file_stays_listed_beside_the_one_that_takes_its_place():
    contents = {
        "6.4": {PROJECT: (ours("0.1.0", "6.4", ("7.2",), yanked=False),)},
        "7.2": {PROJECT: (ours("0.1.0", "7.2", (), yanked=True),)},
    }
    found = {entry.record.version: entry.yanked for entry in offered(contents, "7.2")[PROJECT]}
    assert found == {"0.1.0+rocm6.4": None, "0.1.0+rocm7.2": "broken"}

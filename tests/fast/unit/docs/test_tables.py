"""Tables of the documentation, from small data and from this checkout's."""

import tomllib
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.build.shim import FOLDERS
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.extras.site.tables import (
    _archs,
    _brand_once,
    drop_in_libraries,
    fill,
    gpus_without_kernels,
    problems,
    sageattention_libraries,
    tables,
)
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.archs import known_archs


def test_a_table_escapes_what_would_end_a_cell():
    assert markdown([("a", "b"), ("1|2", "3")]) == "| a | b |\n| --- | --- |\n| 1&#124;2 | 3 |"


def test_every_gpu_without_kernels_has_its_reason():
    assert gpus_without_kernels(CATALOGUE).splitlines()[2:] == [
        "| gfx906 | Radeon VII |  | there is no kernel for it |"
    ]


def test_names_have_their_brand_once_and_archs_are_counted_from_the_nearer_end():
    """Rows of the widest tables had 20 times “Ryzen”, and the same nine archs."""
    assert _brand_once(["Radeon RX 1", "Radeon 2", "Instinct 3", "Radeon 4"]) == (
        "Radeon RX 1, 2, Instinct 3, Radeon 4"
    )
    assert [_archs(archs, "abc") for archs in ("abc", "ac", "c")] == ["all", "all but b", "c"]


def test_places_are_filled_and_each_one_that_is_wrong_is_named():
    place = "<!-- table: {0} -->old<!-- end: {0} -->".format
    assert fill(f"from {place('a')} on", {"a": "1"}) == "from <!-- table: a -->1<!-- end: a --> on"
    filled = fill(place("a"), {"a": "| a |\n| b |\n"})
    assert filled == "<!-- table: a -->\n\n| a |\n| b |\n\n<!-- end: a -->"
    assert fill(filled, {"a": "| a |\n| b |\n"}) == filled
    assert problems({"p.md": f"{place('a')} {place('c')}"}, {"a": "1", "b": "2"}) == [
        "p.md: there is no table 'c'",
        "no page has a place for the table 'b'",
    ]


@pytest.mark.parametrize("page", sorted(path.name for path in (CHECKOUT / "docs").glob("*.md")))
def test_pages_in_the_repository_have_todays_tables(page, pytestconfig, made):
    """README links these pages. In the repository 16 lines showed “{{ gpus }}” and the like."""
    path = CHECKOUT / "docs" / page
    text = path.read_text(encoding="utf-8")
    wanted = fill(text, made)
    if pytestconfig.getoption("update"):
        path.write_text(wanted, encoding="utf-8")
    else:
        assert text == wanted, f"pytest {Path(__file__).relative_to(CHECKOUT)} --update"
    assert "{{" not in text


@pytest.fixture(scope="module")
def made():
    return tables(CHECKOUT)


def test_this_checkouts_tables_name_every_arch():
    made = tables(CHECKOUT)
    for name in ("gpus", "rocm_versions", "kernels", "modelled_figures", "compile_costs"):
        assert all(arch in made[name] for arch in known_archs()), name
    assert made["modelled_figures"].count("times that") >= 8 * len(known_archs())


def test_libraries_and_what_they_lack():
    row = {"library": "a", "version": "1", "missing": [], "gone": [], "uses": ["flash_attn", "flash_attn.f"]}
    other = row | {
        "library": "b",
        "uses": ["flash_attn"],
        "missing": ["flash_attn.x"],
        "gone": ["flash_attn.y"],
    }
    assert drop_in_libraries([row, other]).splitlines()[2:] == [
        "| a 1 | `flash_attn`: `f` | nothing |",
        "| b 1 | `flash_attn` | `flash_attn.x`; `flash_attn.y` (missing upstream too) |",
    ]


def test_libraries_that_take_sageattention():
    """Others of imports.json, such as FlashAttention 3's, are left out."""
    row = {"library": "a", "version": "1", "others": ["flash_attn_3.f", "sageattention", "sageattention.f"]}
    other = row | {"library": "b", "others": ["flash_attn_interface.f"]}
    assert sageattention_libraries([row, other]).splitlines()[2:] == ["| a 1 | `sageattention`: `f` |"]


def test_the_address_of_the_index_is_in_the_pages_where_it_is_public():
    page = "pip install a --index-url <index>/public/simple"
    assert fill(page, {}) == page
    assert (
        fill(page, {}, "https://host/index/") == "pip install a --index-url https://host/index/public/simple"
    )


def test_metadata_has_the_addresses_of_the_matrix():
    """Project-URL stands in pyproject.toml, where the build back end reads it."""
    labels = {"Repository": "repository", "Issues": "issues", "Index": "index", "Security": "security"}
    addresses = load_matrix(CHECKOUT / "matrix.yaml").addresses
    expected = {label: getattr(addresses, name) for label, name in labels.items() if getattr(addresses, name)}
    for folder in ("", *FOLDERS):
        project = tomllib.loads((CHECKOUT / folder / "pyproject.toml").read_text())["project"]
        assert project.get("urls", {}) == expected, f"{folder or '.'}/pyproject.toml"

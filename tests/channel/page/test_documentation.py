"""The documentation in a browser with access to the index's server only."""

import pytest

from tests.channel.page.conftest import publish_one
from tests.conftest import CHECKOUT
from wheel_builder.extras.site.build import build
from wheel_builder.index.simple.serve import serving
from wheel_builder.matrix.reading import load_matrix


@pytest.fixture(scope="module")
def documentation(tmp_path_factory):
    """The documentation with an index of one wheel, for ROCm 7.2."""
    folder = tmp_path_factory.mktemp("documentation")
    publish_one(folder, load_matrix(CHECKOUT / "matrix.yaml"), "7.2", ["7.1"])
    build(CHECKOUT, folder / "index" / "docs", log=folder / "log")
    with serving(folder / "index") as url:
        yield f"{url}/docs"


def test_it_is_styled_and_searched_and_names_its_index_without_the_network(browser, documentation):
    page, asked, complaints = browser.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{documentation}/install.html")
    assert page.evaluate("getComputedStyle(document.querySelector('.md-header')).position") == "sticky"
    index = documentation.removesuffix("/docs")
    commands = page.locator("pre code").all_inner_texts()
    assert f"pip install flash-attn-rocm --index-url {index}/public/simple\n" in commands
    assert f'url = "{index}/public/simple"' in "".join(commands)
    assert "<index>" not in "".join(commands)
    page.get_by_text("Type to start searching").wait_for(state="attached")  # the search has its index
    page.locator("input[name=query]").press_sequentially("Sienna Cichlid")  # it listens to keys
    found = page.locator(".md-search-result__link").first
    found.click()
    page.wait_for_url(f"{documentation}/which-wheel.html*")
    assert page.get_by_role("cell", name="Navi 21, Sienna Cichlid").is_visible()
    page.close()
    assert [url for url in asked if not url.startswith((index, "blob:", "data:"))] == []
    assert complaints == []


def test_it_says_what_its_index_holds(browser, documentation):
    """The tables also name ROCm 6.4, which is absent from this index."""
    page = browser.new_page()
    page.goto(f"{documentation}/which-wheel.html")
    held = page.get_by_text("This index holds flash-attn-rocm 0.1.0+rocm7.2 for ROCm 7.2, 7.1.")
    held.wait_for()
    page.close()

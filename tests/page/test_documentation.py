"""The documentation in a browser that reaches nothing but the index's server."""

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.docs.build import build
from wheel_builder.index.serve import serving


@pytest.fixture(scope="module")
def documentation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documentation")
    build(CHECKOUT, folder / "docs", log=folder / "log")
    with serving(folder) as url:
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
    assert f"pip install flash-attn-rocm --index-url {index}/rocm7.2/simple\n" in commands
    assert f'url = "{index}/rocm7.2/simple"' in "".join(commands)
    assert "<index>" not in "".join(commands)
    page.get_by_text("Type to start searching").wait_for(state="attached")  # the search has its index
    page.locator("input[name=query]").press_sequentially("Sienna Cichlid")  # it listens to keys
    found = page.locator(".md-search-result__link").first
    found.click()
    page.wait_for_url(f"{documentation}/which-wheel.html*")
    assert page.get_by_role("cell", name="Navi 21, Sienna Cichlid").is_visible()
    page.close()
    assert [url for url in asked if not url.startswith((documentation, "blob:", "data:"))] == []
    assert complaints == []

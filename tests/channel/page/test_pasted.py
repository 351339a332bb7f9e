"""Pasted texts, and the GPUs found in them by the page's script and catalogue, in a browser."""

import pytest

from tests.channel.page.pasted import PASTED


@pytest.fixture(scope="module")
def archs_of(browser, address):
    """``archs_of(text)``: the archs found by the page's ``match``."""
    page = browser.new_page()
    page.goto(f"{address}/")
    yield lambda text: page.evaluate("text => match(text, gpus).map(([gpu]) => gpu.arch)", text)
    page.close()


def test_there_are_many():
    assert len(PASTED) >= 60


@pytest.mark.parametrize("text", PASTED)
def test_what_is_pasted_is_found(archs_of, text):
    expected = PASTED[text]
    assert set(archs_of(text)) == ({expected} if isinstance(expected, str) else set(expected))


def test_every_name_of_the_catalogue_is_its_own_gpus_alone(archs_of, browser, address):
    page = browser.new_page()
    page.goto(f"{address}/")
    gpus = page.evaluate("gpus.map(({arch, names, chips}) => [arch, [arch, ...names, ...chips]])")
    page.close()
    assert len(gpus) > 25
    assert [(arch, name) for arch, names in gpus for name in names if set(archs_of(name)) != {arch}] == []
    shouted = [
        (arch, name) for arch, names in gpus for name in names if set(archs_of(name.upper())) != {arch}
    ]
    assert shouted == []


def test_a_text_that_names_no_gpu_is_the_only_one_that_is_told_so(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/")
    for text, expected in PASTED.items():
        page.fill("#gpu", text)
        said = page.inner_text("#answer") if text else "does not know a GPU of that name"
        assert ("does not know a GPU of that name" in said) == (expected == ()), text
    page.close()

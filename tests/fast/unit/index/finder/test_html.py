"""HTML that escapes by construction."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheel_builder.index.finder.html import Html, element, joined, void

# A parser replaces these characters in any case.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


@given(TEXT, TEXT)
def test_text_and_attributes_come_back_as_they_were(text, value):
    parsed = Parsed(element("p", text, title=value))
    assert parsed.tags == [("p", {"title": value})]
    assert parsed.text == text


@pytest.mark.parametrize("text", ["<b>", "</p><script>", '"', "'", "&amp;", "<!--"])
def test_nothing_breaks_out(text):
    assert element("p", text).count("<") == 2
    assert Parsed(element("p", title=text)).tags == [("p", {"title": text})]


def test_elements_are_not_escaped_again():
    assert element("p", element("b", "x"), " & y") == "<p><b>x</b> &amp; y</p>"
    assert joined("<", Html("<br>")) == "&lt;<br>"


def test_attributes():
    assert element("label", for_="a", data_x="b", hidden=True, off=False) == (
        '<label for="a" data-x="b" hidden></label>'
    )
    assert void("meta", name="a") == '<meta name="a">'

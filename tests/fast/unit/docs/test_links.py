"""The links of a built site, each kind of fault in words."""

import pytest

from wheel_builder.extras.site.links import check_links

PAGE = """<html><body><h1 id="top">A</h1>
<a href="https://example.org/x">x</a>
<a href="sub/">sub</a> <a href="sub/index.html#there">there</a>
<a href="#top">up</a> <a href="b%20c.txt">file</a>
<img src="a.png">{}</body></html>"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/index.html").write_text('<a href="../index.html#top">up</a><p id="there">')
    for name in ("a.png", "b c.txt"):
        (tmp_path / name).touch()
    return tmp_path


def found(site, more=""):
    (site / "index.html").write_text(PAGE.format(more))
    return check_links(site)


def test_a_sound_site(site):
    links = found(site)
    assert links.problems == ()
    assert links.external == ("https://example.org/x",)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('<a href="gone.html">', "gone.html: the site has no such file"),
        ('<a href="sub/#gone">', "sub/#gone: that page has no such anchor"),
        ('<a href="#gone">', "#gone: that page has no such anchor"),
        ('<a href="../outside.html">', "../outside.html: the site has no such file"),
        ('<a href="/index.html">', "/index.html: the site has no such file"),
        ('<a href="http://example.org/">', "http://example.org/: expected a file of the site, or"),
        ('<a href="mailto:a@example.org">', "mailto:a@example.org: expected a file of the site, or"),
        (
            '<img src="https://example.org/a.png">',
            "https://example.org/a.png: expected a file of the site, or",
        ),
        (
            '<script src="https://example.org/a.js">',
            "https://example.org/a.js: expected a file of the site, or",
        ),
        ('<link href="//example.org/a.css">', "//example.org/a.css: expected a file of the site, or"),
        ('<img src="gone.png">', "gone.png: the site has no such file"),
    ],
)
def test_a_fault_is_told_in_words(site, more, problem):
    (site.parent / "outside.html").touch()
    [one] = found(site, more).problems
    assert one.startswith(f"index.html: {problem}")

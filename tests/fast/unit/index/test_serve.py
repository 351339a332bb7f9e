import http.client
from urllib.parse import urlsplit

import pytest

from wheel_builder.base.errors import PublishError
from wheel_builder.index.simple.serve import byte_range, make_server, prefers_json, serving

PIP = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01"


@pytest.mark.parametrize(
    ("accept", "wants"),
    [
        (PIP, True),
        ("application/vnd.pypi.simple.v1+json", True),
        ("application/vnd.pypi.simple.v1+json;q=0.2, text/html;q=0.1", True),
        ("application/vnd.pypi.simple.v1+json;q=0.1, text/html", False),
        ("application/vnd.pypi.simple.v1+json;q=0, text/html", False),
        ("application/vnd.pypi.simple.v1+json;q=many", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("*/*", False),
        ("", False),
        (";;,,=", False),
    ],
)
def test_json_for_those_who_prefer_it(accept, wants):
    assert prefers_json(accept) is wants


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(
        PublishError, match=r"none cannot be served\n  - there is no such folder\n  next: publish"
    ):
        make_server(tmp_path / "none", 0)


@pytest.fixture
def get(tmp_path):
    """Requests a raw path from a server: status, headers, body."""
    folder = tmp_path / "simple" / "demo"
    folder.mkdir(parents=True)
    (folder / "a.whl").write_bytes(b"0123456789")
    (folder / "empty").write_bytes(b"")
    (folder / "index.html").write_text("html")
    (folder / "index.json").write_text("{}")
    (tmp_path / ".lock").write_text("hidden")
    with serving(tmp_path) as address:

        def ask(path, method="GET", **headers):
            connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            answer = connection.getresponse()
            found = answer.status, dict(answer.getheaders()), answer.read()
            connection.close()
            return found

        yield ask


@pytest.mark.parametrize(
    "path",
    ["/%00", "/simple/%00", "/simple/demo/a.whl%00", "/.lock", "/%2elock", "/simple/../.lock", "/simple/",
     "/none", "/" + "a" * 5000, "/%0a", "/%ff", "/simple/demo/a.whl/",
     "/..%2f..%2fetc/passwd", "/?/.lock%00"],
)  # fmt: skip
def test_what_is_not_there_is_said_so(get, path):
    """A NUL ended the connection with a traceback."""
    assert get(path)[0] == 404


def test_a_query_changes_nothing(get):
    assert get("/simple/demo/?x=1")[2] == b"html"
    assert get("/simple/demo/?x=1", Accept=PIP)[2] == b"{}"
    assert get("/simple/demo/a.whl?/../.lock")[2] == b"0123456789"
    status, headers, _ = get("/simple/demo")
    assert (status, headers["Location"]) == (301, "/simple/demo/")


@pytest.mark.parametrize(
    ("asked", "status", "body", "said"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-2", 206, b"89", "bytes 8-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("bytes=3-1", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("bytes=a-b", 200, b"0123456789", None),
        ("lines=0-1", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
    ],
)
def test_a_range_of_bytes(get, asked, status, body, said):
    found, headers, data = get("/simple/demo/a.whl", Range=asked)
    assert (found, data, headers.get("Content-Range")) == (status, body, said)
    assert int(headers["Content-Length"]) == len(body)


def test_a_range_of_nothing():
    assert byte_range("bytes=0-", 0) == range(0)


def test_what_a_client_has_is_not_sent_again(get):
    status, headers, _ = get("/simple/demo/a.whl")
    etag = headers["ETag"]
    assert status == 200
    assert headers["Accept-Ranges"] == "bytes"
    for held in (etag, f"W/{etag}", f'"other", {etag}'):
        assert get("/simple/demo/a.whl", If_None_Match=held)[::2] == (304, b"")
    assert get("/simple/demo/a.whl", If_None_Match='"other"')[0] == 200
    assert get("/simple/demo/a.whl", Range="bytes=0-1", If_Range=etag)[0] == 206
    assert get("/simple/demo/a.whl", Range="bytes=0-1", If_Range='"other"')[0] == 200
    # Two formats of one page have different contents.
    assert get("/simple/demo/")[1]["ETag"] != get("/simple/demo/", Accept=PIP)[1]["ETag"]
    assert get("/simple/demo/a.whl", "HEAD")[::2] == (200, b"")

import pytest

from wheel_builder.errors import PublishError
from wheel_builder.serve import make_server, prefers_json

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

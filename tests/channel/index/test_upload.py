"""twine uploads to a real server on loopback."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from tests.tools.made.wheels import project_wheel
from wheel_builder.base.errors import PublishError
from wheel_builder.index.publish import upload


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A pypiserver with open uploads, as its URL and its folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setenv("TWINE_USERNAME", "anyone")
    monkeypatch.setenv("TWINE_PASSWORD", "hunter2")
    command = [
        sys.executable,
        "-m",
        "pypiserver",
        "run",
        "-p",
        str(port),
        "-i",
        "127.0.0.1",
        "-P",
        ".",
        "-a",
        ".",
    ]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen([*command, str(folder)], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_for(url, process)
        yield url, folder
    finally:
        process.terminate()
        process.wait()


def wait_for(url, process):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(300):
        assert process.poll() is None, "the server ended"
        try:
            opener.open(url).close()
        except urllib.error.URLError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the server does not answer")


def test_uploads_all_and_refuses_a_duplicate_in_words(server, tmp_path):
    url, folder = server
    wheels = [project_wheel(tmp_path, "demo", version) for version in ("1.0", "2.0+rocm7.2")]
    log = tmp_path / "upload.log"

    upload(wheels, url, log=log)
    assert {path.name: path.read_bytes() for path in folder.glob("*.whl")} == {
        w.name: w.read_bytes() for w in wheels
    }

    changed = project_wheel(tmp_path, "demo", "1.0", module=b"VALUE = 43\n")
    with pytest.raises(PublishError) as caught:
        upload([changed], url, log=log)
    assert f"{url} already has one of these files; a published file never changes" in caught.value.message
    assert "raise the version" in caught.value.advice
    assert (folder / changed.name).read_bytes() != changed.read_bytes()
    assert "hunter2" not in log.read_text() + str(caught.value)


def test_a_wheel_that_twine_refuses_stops_all(server, tmp_path):
    url, folder = server
    good = project_wheel(tmp_path, "demo", "1.0")
    bad = tmp_path / "bad-1.0-py3-none-any.whl"
    bad.write_text("no wheel")
    with pytest.raises(PublishError, match="twine check refuses the wheels; nothing was uploaded"):
        upload([good, bad], url, log=tmp_path / "upload.log")
    assert list(folder.iterdir()) == []


def test_a_server_that_does_not_answer(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/"
    with pytest.raises(PublishError, match=f"twine could not upload to {url}"):
        upload([project_wheel(tmp_path, "demo", "1.0")], url, log=tmp_path / "upload.log")

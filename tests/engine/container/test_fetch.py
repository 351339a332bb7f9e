"""pip in a container finds the same files as pip on the host."""

import functools
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wheel_builder.base.errors import CommandFailedError
from wheel_builder.images.fetch import fetch_wheels
from wheel_builder.images.hostenv import HostSettings

WANTED = ["python3", "--no-deps", "flash-attn-rocm==0.0.1+rocm7.2"]


@pytest.fixture
def index(tmp_path, tiny_wheel):
    """A folder ``simple`` whose links lead to a sibling folder, as in many local indexes."""
    page = tmp_path / "pypi/simple/flash-attn-rocm/index.html"
    page.parent.mkdir(parents=True)
    (tmp_path / "pypi/files").mkdir()
    (tmp_path / "pypi/files" / tiny_wheel.name).write_bytes(tiny_wheel.read_bytes())
    link = tiny_wheel.name.replace("+", "%2B")
    page.write_text(f'<!DOCTYPE html><a href="../../files/{link}">{tiny_wheel.name}</a>')
    return tmp_path / "pypi/simple"


@contextmanager
def served(folder):
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetched(image, folder, *pip):
    into = folder / "into"
    into.mkdir()
    fetch_wheels(image, WANTED, into, host=HostSettings(tuple(pip)), log=folder / "log")
    return [file.name for file in into.iterdir()]


def test_a_file_index_of_the_host_is_found(system_image, index, tmp_path, tiny_wheel):
    assert fetched(system_image, tmp_path, ("index-url", index.as_uri())) == [tiny_wheel.name]


def test_a_folder_of_the_host_is_found(system_image, tmp_path, tiny_wheel):
    settings = (("no-index", "true"), ("find-links", str(tiny_wheel.parent)))
    assert fetched(system_image, tmp_path, *settings) == [tiny_wheel.name]


def test_an_index_on_the_hosts_loopback_is_found(system_image, index, tmp_path, tiny_wheel):
    with served(index.parent) as address:
        settings = (("index-url", f"{address}/simple"), ("trusted-host", "127.0.0.1"))
        assert fetched(system_image, tmp_path, *settings) == [tiny_wheel.name]


def test_without_the_settings_it_is_not_found(system_image, tmp_path):
    with pytest.raises(CommandFailedError, match=r"No matching distribution|Could not find a version"):
        fetched(system_image, tmp_path, ("no-index", "true"))

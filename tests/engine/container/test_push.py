"""The real engine pushes an image to a small registry with a password."""

import base64
import hashlib
import os
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wheel_builder.base.errors import CommandFailedError
from wheel_builder.images import docker
from wheel_builder.images.push import TOKEN, USER, push

LOGIN = "Basic " + base64.b64encode(b"somebody:secret").decode()


class Registry(BaseHTTPRequestHandler):
    """The registry API calls used by a push. The server's ``kept`` has all blobs by digest or tag."""

    def handle_any(self):
        if self.headers["Authorization"] != LOGIN:
            self.answer(401, **{"WWW-Authenticate": 'Basic realm="here"'})
            return
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        path, _, query = self.path.partition("?")
        place = path.rpartition("/")[2]
        upload = "/blobs/uploads/" in path
        if self.command in ("GET", "HEAD"):
            self.answer(200 if place in self.server.kept or path == "/v2/" else 404)
        elif self.command == "POST":
            self.answer(202, Location=f"{path}upload")
        elif self.command == "PATCH":
            self.server.body = body if self.headers["Content-Length"] else self.chunks()
            self.answer(202, Location=path, Range=f"0-{len(self.server.body) - 1}")
        else:
            content = self.server.body if upload else body
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            assert not upload or digest in query.replace("%3A", ":")
            self.server.kept |= {digest: content} if upload else {digest: content, place: content}
            self.answer(201, **{"Docker-Content-Digest": digest})

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = handle_any

    def chunks(self):
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def answer(self, status, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def registry(engine):
    """The server, at an address where engines accept plain HTTP."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        server.kept, server.body, server.protocol_version = {}, b"", "HTTP/1.1"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def image(engine, logs, tmp_path):
    (tmp_path / "file").write_text("content")
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY file /\n")
    docker.build(tmp_path, "Dockerfile", "flash-attn-rocm-test:push", args={}, log=logs / "push.log")
    yield "flash-attn-rocm-test:push"
    docker.remove("flash-attn-rocm-test:push")


def test_what_is_pushed_is_there_under_its_tag_and_digest(registry, image, logs):
    address = f"127.0.0.1:{registry.server_port}/owner"
    environ = os.environ | {USER: "somebody", TOKEN: "secret"}
    try:
        pushed = push(image, address, log=logs / "push.log", environ=environ)
        assert re.fullmatch(rf"{address}/flash-attn-rocm-test:push@sha256:[0-9a-f]{{64}}", pushed.ref)
        assert registry.kept[pushed.digest] == registry.kept["push"]
        assert b"secret" not in (logs / "push.log").read_bytes()
        with pytest.raises(CommandFailedError, match="may this user write there"):
            push(image, address, log=logs / "push.log", environ=environ | {TOKEN: "wrong"})
    finally:
        subprocess.run(
            ["docker", "rmi", f"{address}/flash-attn-rocm-test:push"], check=True, capture_output=True
        )

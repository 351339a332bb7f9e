"""A small HTTP server for a static index, which also answers in JSON to clients that ask for it.

For trying an index out and for tests; a plain file server does as well, and gives HTML to everyone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import BinaryIO
from urllib.parse import unquote

from wheel_builder.errors import PublishError
from wheel_builder.index_pages import HTML_PAGE, JSON_PAGE, JSON_TYPE

LOOPBACK = "127.0.0.1"
HTML_TYPES = ("application/vnd.pypi.simple.v1+html", "text/html")


def make_server(
    index_root: Path,
    port: int,
    host: str = LOOPBACK,
    handler: type[SimpleHTTPRequestHandler] | None = None,
) -> ThreadingHTTPServer:
    """A server for ``index_root``, listening but not yet answering; port 0 picks a free one."""
    if not index_root.is_dir():
        title = f"{index_root} cannot be served"
        raise PublishError(title, ["there is no such folder"], advice="publish a wheel first")
    return ThreadingHTTPServer((host, port), partial(handler or IndexHandler, directory=str(index_root)))


@contextmanager
def serving(index_root: Path) -> Iterator[str]:
    """Serve ``index_root`` on a free loopback port while the block runs; yields the URL without a slash."""
    with make_server(index_root, 0, handler=_QuietHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def prefers_json(accept: str) -> bool:
    """Whether an Accept header puts PEP 691 JSON before HTML; an empty one does not."""
    qualities = dict(_range(part) for part in accept.split(","))
    wanted = qualities.get(JSON_TYPE, 0.0)
    return wanted > 0 and wanted >= max(qualities.get(kind, 0.0) for kind in HTML_TYPES)


class IndexHandler(SimpleHTTPRequestHandler):
    """Files below one folder: no folder listings, no hidden files, JSON pages for those who prefer them."""

    def send_head(self) -> BytesIO | BinaryIO | None:
        if any(part.startswith(".") for part in unquote(self.path).split("/")):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        if self.path.endswith("/") and prefers_json(self.headers.get("Accept", "")):
            page = Path(self.translate_path(self.path)) / JSON_PAGE
            self.path += JSON_PAGE if page.is_file() else ""
        return super().send_head()

    def guess_type(self, path: object) -> str:
        kinds = {HTML_PAGE: "text/html; charset=utf-8", JSON_PAGE: JSON_TYPE}
        other = "application/json" if str(path).endswith(".json") else "application/octet-stream"
        return kinds.get(Path(str(path)).name, other)

    def end_headers(self) -> None:
        self.send_header("Vary", "Accept")
        super().end_headers()

    def list_directory(self, path: object) -> None:  # noqa: ARG002
        self.send_error(HTTPStatus.NOT_FOUND)


class _QuietHandler(IndexHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing: who asked is known."""


def _range(text: str) -> tuple[str, float]:
    message = Message()
    message["Content-Type"] = text.strip()
    quality = message.get_param("q", "1")
    try:
        return message.get_content_type(), float(str(quality))
    except ValueError:
        return message.get_content_type(), 0.0

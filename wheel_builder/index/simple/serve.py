"""A small HTTP server for a static index. It answers in JSON to clients that ask for it.

It is for trials and tests. Any file server works too, and gives HTML to everyone.
"""

import os
import re
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
from urllib.parse import unquote, urlsplit

from wheel_builder.base.errors import PublishError
from wheel_builder.index.simple.pages import HTML_PAGE, JSON_PAGE, JSON_TYPE

LOOPBACK = "127.0.0.1"
TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8", ".json": "application/json",
    ".png": "image/png", ".svg": "image/svg+xml",
}  # fmt: skip
HTML_TYPES = ("application/vnd.pypi.simple.v1+html", "text/html")


def make_server(
    index_root: Path,
    port: int,
    host: str = LOOPBACK,
    handler: type[SimpleHTTPRequestHandler] | None = None,
) -> ThreadingHTTPServer:
    """A server for ``index_root``, listening but not yet answering. Port 0 picks a free one."""
    if not index_root.is_dir():
        title = f"{index_root} cannot be served"
        raise PublishError(title, ["there is no such folder"], advice="publish a wheel first")
    return ThreadingHTTPServer((host, port), partial(handler or IndexHandler, directory=str(index_root)))


@contextmanager
def serving(index_root: Path) -> Iterator[str]:
    """Serve ``index_root`` on a free loopback port while the block runs. Yields the URL without a final
    slash."""
    with make_server(index_root, 0, handler=_QuietHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def prefers_json(accept: str) -> bool:
    """Whether an Accept header prefers PEP 691 JSON to HTML. An empty one prefers HTML."""
    qualities = dict(_range(part) for part in accept.split(","))
    wanted = qualities.get(JSON_TYPE, 0.0)
    return wanted > 0 and wanted >= max(qualities.get(kind, 0.0) for kind in HTML_TYPES)


class IndexHandler(SimpleHTTPRequestHandler):
    """Files below one folder: no folder listings, no hidden files, JSON pages for clients that prefer
    them.

    Queries are ignored. Answers have an ETag, and support a single range of bytes.
    """

    def send_head(self) -> BytesIO | BinaryIO | None:
        self.path = urlsplit(self.path).path or "/"
        if not _is_plain(unquote(self.path)):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        file = Path(self.translate_path(self.path))
        try:
            if file.is_dir() and not self.path.endswith("/"):
                return super().send_head()  # leads to the folder's name with a slash
            if self.path.endswith("/"):
                json_first = prefers_json(self.headers.get("Accept", "")) and (file / JSON_PAGE).is_file()
                file /= JSON_PAGE if json_first else HTML_PAGE
            with file.open("rb") as stream:
                return self._send_file(file, stream.read(), os.fstat(stream.fileno()))
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

    def _send_file(self, file: Path, data: bytes, stat: os.stat_result) -> BytesIO | None:
        etag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}-{file.suffix.removeprefix(".")}"'
        if etag in _etags(self.headers.get("If-None-Match", "")):
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.send_header("ETag", etag)
            self.end_headers()
            return None
        # If the client has part of an older version, a range of the new one would not fit.
        asked = self.headers.get("Range", "") if self.headers.get("If-Range", etag) == etag else ""
        part = byte_range(asked, len(data))
        if part is not None and not part:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        self.send_response(HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT)
        if part is not None:
            self.send_header("Content-Range", f"bytes {part.start}-{part.stop - 1}/{len(data)}")
            data = data[part.start : part.stop]
        self.send_header("Content-Type", self.guess_type(file))
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", self.date_time_string(stat.st_mtime))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.end_headers()
        return BytesIO(data)

    def guess_type(self, path: object) -> str:
        file = Path(str(path))
        return JSON_TYPE if file.name == JSON_PAGE else TYPES.get(file.suffix, "application/octet-stream")

    def end_headers(self) -> None:
        self.send_header("Vary", "Accept")
        super().end_headers()

    def list_directory(self, path: object) -> None:  # noqa: ARG002
        self.send_error(HTTPStatus.NOT_FOUND)


class _QuietHandler(IndexHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing: the only client is ours."""


def byte_range(header: str, size: int) -> range | None:
    """The range of ``size`` bytes in a Range header, None for all, an empty range if it is outside the
    file.

    Several ranges, or another unit, are answered with all bytes, as RFC 9110 allows.
    """
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.strip(), re.ASCII)
    if match is None or match[1] == match[2] == "":
        return None
    if not match[1]:
        return range(max(0, size - int(match[2])), size)
    first, last = int(match[1]), int(match[2] or size - 1)
    if match[2] and last < first:
        return None
    return range(first, min(last + 1, size))


def _etags(header: str) -> list[str]:
    return [each.strip().removeprefix("W/") for each in header.split(",")]


def _is_plain(path: str) -> bool:
    """Whether all parts of the path are visible and downward, and all its characters are plain."""
    return path.isprintable() and not any(part.startswith(".") for part in path.split("/"))


def _range(text: str) -> tuple[str, float]:
    message = Message()
    message["Content-Type"] = text.strip()
    quality = message.get_param("q", "1")
    try:
        return message.get_content_type(), float(str(quality))
    except ValueError:
        return message.get_content_type(), 0.0

import os
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler

import pytest

from wheel_builder.index.simple.serve import IndexHandler, make_server


@contextmanager
def serving(root, handler=IndexHandler):
    """Serve ``root`` on loopback. Yields the base URL and the list of requested paths."""
    asked = []

    class Recorder(handler):
        def log_request(self, code="-", size="-"):
            asked.append((self.path, int(code)))

        def log_message(self, *_):
            pass

    with make_server(root, 0, handler=Recorder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def clean_env(tmp_path):
    """An environment without any other index or cache for pip and uv."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "TWINE_", "PYTHON"))}
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "UV_NO_CONFIG": "1",
        "UV_NO_CACHE": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "HOME": str(tmp_path),
    }


@pytest.fixture(params=[IndexHandler, SimpleHTTPRequestHandler], ids=["json-and-html", "plain-file-server"])
def any_handler(request):
    """Our server, and a plain file server."""
    return request.param

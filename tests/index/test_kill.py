"""A publisher that is killed at any moment leaves a valid index, and publishing again completes it."""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest

from tests.index.conftest import serving
from tests.catalogues import CATALOGUE
from tests.wheels import project_wheel
from wheel_builder import index, index_pages
from wheel_builder.index import yank
from wheel_builder.index_check import verify_index
from wheel_builder.stages.publish import publish
from wheel_builder.store import sha256_file

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KILLED = 86


def in_child(action, *, kill_at=0):
    """Run ``action`` in a child that dies, without any clean-up, before the ``kill_at``-th line of index.py.

    Returns the child's pid; with 0 it is not killed.
    """
    if pid := os.fork():
        return pid
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != index.__file__:
            return None
        if event == "line":
            lines += 1
            if lines == kill_at:
                os._exit(KILLED)
        return trace

    status = 1
    try:
        sys.settrace(trace if kill_at else None)
        action()
        status = 0
    finally:
        os._exit(status)


def exit_status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Links(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.hrefs = []
        self.attributes = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.attributes.append(dict(attributes))


def check_what_clients_see(simple):
    """Every page can be read, and every file, hash and sidecar that it names is right."""
    for page in (simple / "index.html", simple / "index.json"):
        if page.exists():
            for project in projects_on(page):
                assert (simple / project / page.name).is_file()
    for page in simple.glob("*/index.html"):
        for link in Links(page.read_text()).attributes:
            name, fragment = urldefrag(link["href"])
            file = page.parent / unquote(name)
            assert fragment == f"sha256={sha256_file(file)}"
            sidecar = file.with_name(file.name + ".metadata")
            assert link["data-core-metadata"] == f"sha256={sha256_file(sidecar)}"
    for page in simple.glob("*/index.json"):
        for entry in json.loads(page.read_text())["files"]:
            file = page.parent / unquote(entry["url"])
            assert entry["hashes"]["sha256"] == sha256_file(file)
            assert entry["size"] == file.stat().st_size


def projects_on(page):
    if page.suffix == ".json":
        return [project["name"] for project in json.loads(page.read_text())["projects"]]
    return [link["href"].rstrip("/") for link in Links(page.read_text()).attributes]


@pytest.fixture
def old_and_new(tmp_path):
    """An index with one file, and the wheels of the next publication: a new version and a new project."""
    old, new = (
        tmp_path / "old",
        [project_wheel(tmp_path, "demo", "2.0"), project_wheel(tmp_path, "other", "1.0")],
    )
    publish([project_wheel(tmp_path, "demo", "1.0")], old, "7.2", catalogue=CATALOGUE, now=NOW)
    return old, new


def killed_everywhere(old, action, root):
    """Kill ``action`` before each of its lines in turn; yields once for each state that this leaves."""
    seen = set()
    for kill_at in range(1, 100_000):
        shutil.rmtree(root, ignore_errors=True)
        if old:
            shutil.copytree(old, root)
        status = exit_status(in_child(action, kill_at=kill_at))
        if status == 0:
            return
        assert status == KILLED
        if (state := files_of(root)) not in seen:
            seen.add(state)
            yield kill_at
    pytest.fail("the publisher never came to its end")


def files_of(folder):
    return frozenset(
        (p.relative_to(folder).as_posix(), p.read_bytes()) for p in folder.rglob("*") if p.is_file()
    )


def test_killed_while_adding_to_an_index(old_and_new, tmp_path, clean_env):
    old, new = old_and_new
    root, seen = tmp_path / "index", {}
    simple = root / "rocm7.2" / "simple"

    for _ in killed_everywhere(old, lambda: publish(new, root, "7.2", catalogue=CATALOGUE, now=NOW), root):
        check_what_clients_see(simple)
        pages = frozenset(file for file in files_of(simple) if file[0].endswith((".html", "index.json")))
        if pages not in seen:
            seen[pages] = pip_downloads(root, clean_env, tmp_path / "got")
        publish(new, root, "7.2", catalogue=CATALOGUE, now=NOW)
        assert verify_index(root) == ()
        assert [e.record.version for e in index.read_projects(simple)["demo"]] == ["1.0", "2.0"]

    # The project has two pages, the other project two, the root two; each is new at some moment.
    assert len(seen) >= 6
    assert set(seen.values()) == {"demo-1.0-py3-none-any.whl", "demo-2.0-py3-none-any.whl"}


def pip_downloads(root, env, folder):
    """The one file that pip takes for ``demo`` from the index."""
    shutil.rmtree(folder, ignore_errors=True)
    with serving(root) as (url, _):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        command += ["--index-url", f"{url}/rocm7.2/simple/", "demo"]
        subprocess.run(command, env=env, check=True)
    (file,) = folder.iterdir()
    return file.name


def test_killed_while_making_the_first_index(old_and_new, tmp_path):
    _, new = old_and_new
    root = tmp_path / "index"
    for _ in killed_everywhere(None, lambda: publish(new, root, "7.2", catalogue=CATALOGUE, now=NOW), root):
        check_what_clients_see(root / "rocm7.2" / "simple")
        publish(new, root, "7.2", catalogue=CATALOGUE, now=NOW)
        assert verify_index(root) == ()


def test_killed_while_yanking(old_and_new, tmp_path):
    old, _ = old_and_new
    root, name = tmp_path / "index", "demo-1.0-py3-none-any.whl"
    for _ in killed_everywhere(
        old, lambda: yank(root, "7.2", name, "broken", catalogue=CATALOGUE, now=NOW), root
    ):
        check_what_clients_see(root / "rocm7.2" / "simple")
        yank(root, "7.2", name, "broken", catalogue=CATALOGUE, now=NOW)
        assert verify_index(root) == ()
        assert index.read_projects(root / "rocm7.2" / "simple")["demo"][0].yanked == "broken"


def test_publishers_at_the_same_time_wait_for_each_other(tmp_path):
    root = tmp_path / "index"
    wheels = [project_wheel(tmp_path, "demo", f"{number}.0") for number in range(12)]
    children = [
        in_child(lambda wheel=wheel: publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW))
        for wheel in wheels
    ]

    assert [exit_status(child) for child in children] == [0] * len(wheels)
    assert verify_index(root) == ()
    page = json.loads((root / "rocm7.2" / "simple" / "demo" / index_pages.JSON_PAGE).read_text())
    assert page["versions"] == [f"{number}.0" for number in range(12)]

"""A publisher killed at any write, or with a full disk, leaves a valid index.

Publishing again completes it.
"""

import concurrent.futures
import functools
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.channel.index.conftest import serving
from tests.channel.index.publisher import NOW, outcome
from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import VERSION, good_files, project_wheel, write_wheel
from wheel_builder.base.errors import PublishError
from wheel_builder.base.store import sha256_file
from wheel_builder.index.check import Found, check_index
from wheel_builder.index.finder.steps import AMD_BUILDS, SELECTOR, WSL_LIST
from wheel_builder.index.folder import read_contents
from wheel_builder.index.publish import publish
from wheel_builder.provenance.records import write_record

CHECKOUT = Path(__file__).parents[3]
KILLED = -9
PAGE = re.compile(r"/\.?(index\.html|index\.json|wheels\.json)(\.part)?$")
SHOWN = {"numerics": "executed on an ISA emulator", "launches": {"a": 1}, "findings": [], "passed": True}


class Publisher:
    """Runs publishers one at a time. ``trace`` lists the last one's calls that change the file system."""

    def __init__(self, process, folder):
        self.process = process
        self.file = folder / "trace"

    def __call__(self, root, do, *, kill_at=0, full_at=0, **arguments):
        order = {"root": str(root), "do": do, "kill_at": kill_at, "full_at": full_at, "trace": str(self.file)}
        self.process.stdin.write(json.dumps(order | arguments) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    @property
    def trace(self):
        return [tuple(line.split(" ", 1)) for line in self.file.read_text().splitlines()]


@pytest.fixture(scope="module")
def publisher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("publisher")
    killer = folder / "killer.so"
    command = [sys.executable, "-m", "ziglang", "cc", "-O1", "-shared", "-fPIC", "-o", str(killer)]
    subprocess.run([*command, str(CHECKOUT / "tests/channel/index/killer.c")], check=True, cwd=folder)
    with (
        (folder / "errors").open("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.channel.index.publisher"],
            cwd=CHECKOUT,
            env=os.environ | {"LD_PRELOAD": str(killer)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        yield Publisher(process, folder)
        process.stdin.close()
        assert process.wait() == 0
        errors.seek(0)
        assert "Traceback" not in errors.read()


class Links(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.links = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.links.append(dict(attributes))


def check_what_clients_see(root):
    """Every page is readable. Every file, hash and sidecar named on it is right."""
    for simple in (*root.glob("**/simple"), *root.glob("**/variants")):
        for page in filter(Path.exists, (simple / "index.html", simple / "index.json")):
            for project in projects_on(page):
                assert (simple / project / page.name).is_file()
        for page in simple.glob("*/index.html"):
            check_html(page)
        for page in simple.glob("*/index.json"):
            check_json(page)
    check_finder(root)


def check_html(page):
    for link in Links(page.read_text()).links:
        name, fragment = urldefrag(link["href"])
        file = page.parent / unquote(name)
        if file.name.endswith("-variants.json"):
            check_variants(file, page)
            continue
        assert fragment == f"sha256={sha256_file(file)}"
        sidecar = file.with_name(file.name + ".metadata")
        assert link["data-core-metadata"] == f"sha256={sha256_file(sidecar)}"


def check_json(page):
    for entry in json.loads(page.read_text())["files"]:
        file = page.parent / unquote(entry["url"])
        if file.name.endswith("-variants.json"):
            check_variants(file, page)
            continue
        assert entry["hashes"]["sha256"] == sha256_file(file)
        assert entry["size"] == file.stat().st_size


def check_variants(file, page):
    """The file about variants describes each variant on the page."""
    told = json.loads(file.read_text())["variants"]
    assert set(re.findall(r"manylinux_2_28_x86_64-(\w+)\.whl", page.read_text())) <= told.keys()


def check_finder(root):
    if (root / "wheels.json").exists():
        for wheel in json.loads((root / "wheels.json").read_text())["wheels"]:
            assert sha256_file(root / unquote(wheel["url"])) == wheel["sha256"]
    if (root / "index.html").exists():
        links = Links((root / "index.html").read_text()).links
        own = {link["href"] for link in links} - {SELECTOR, WSL_LIST, AMD_BUILDS}
        assert [link for link in own if not (root / unquote(link)).is_file()] == []


def projects_on(page):
    if page.suffix == ".json":
        return [project["name"] for project in json.loads(page.read_text())["projects"]]
    return [link["href"].rstrip("/") for link in Links(page.read_text()).links]


@pytest.fixture
def old(tmp_path):
    """An index with one file."""
    publish([project_wheel(tmp_path, "demo", "1.0")], tmp_path / "old", "7.2", catalogue=CATALOGUE, now=NOW)
    return tmp_path / "old"


@pytest.fixture
def new(tmp_path):
    """The next publication: a new version, and a new project whose record serves another runtime."""
    ours = write_wheel(tmp_path)
    write_record(ours, {"sha256": sha256_file(ours), "archs": {"gfx908": SHOWN}, "serves": ["7.1"]})
    wheels = [project_wheel(tmp_path, "demo", "2.0"), ours]
    return {"wheels": [str(wheel) for wheel in wheels], "rocm": "7.2"}


@pytest.fixture
def numbers(request):
    """``numbers(trace)``: the calls at which to kill. With --full all.

    Otherwise the call after each rename, where the view of clients changes, and each kind of call once for a
    page and once for another file.
    """

    def chosen(trace):
        if request.config.getoption("--full"):
            return range(1, len(trace) + 1)
        first = {}
        for number, (what, path) in enumerate(trace, start=1):
            renamed = number > 1 and trace[number - 2][0] == "rename"
            first.setdefault((what, number if renamed else PAGE.search(path) is None), number)
        return first.values()

    return chosen


@pytest.fixture
def everywhere(numbers):
    return functools.partial(states, numbers=numbers)


def states(publisher, old, root, do, *, numbers, of="kill_at", status=KILLED, **arguments):
    """Kill at some calls, or let the disk be full from there. Yields for each state left behind."""

    def run(**at):
        shutil.rmtree(root, ignore_errors=True)
        if old:
            shutil.copytree(old, root)
        return publisher(root, do, **at, **arguments)

    assert run() == 0
    check_that_nothing_was_missed(trace := publisher.trace, old, root)
    assert run(**{of: len(trace) + 1}) == 0
    seen = set()
    for number in numbers(trace):
        assert run(**{of: number}) == status
        if (state := files_of(root)) not in seen:
            seen.add(state)
            yield number


def check_that_nothing_was_missed(trace, old, root):
    """Everything new in the index came from such a call."""
    before = files_of(old) if old else frozenset()
    changed = {str(root / name) for name, _ in files_of(root) - before}
    renamed = [path for what, path in trace if what == "rename"]
    assert changed - {str(root / ".lock")} == set(renamed)
    assert len(renamed) == len(set(renamed)), "nothing is written twice"
    for path in renamed:
        aside = f"{Path(path).parent}/.{Path(path).name}.part"
        at = trace.index(("rename", path))
        assert trace[at - 4 : at] == [
            ("open", aside), ("write", aside), ("half-written", aside), ("fsync", aside)
        ]  # fmt: skip
        assert trace[at + 1] == ("fsync", str(Path(path).parent))
    made = [path for what, path in trace if what == "mkdir"]
    assert all(trace[trace.index(("mkdir", path)) + 1] == ("fsync", str(Path(path).parent)) for path in made)


def files_of(folder):
    return frozenset(
        (p.relative_to(folder).as_posix(), p.read_bytes()) for p in folder.rglob("*") if p.is_file()
    )


def versions(root, project="demo"):
    return [entry.record.version for entry in read_contents(root)["7.2"][project]]


def test_killed_while_adding_to_an_index(everywhere, publisher, old, new, tmp_path, clean_env):
    """Files outside all pages were also a fault of the index, until the next publish removed them."""
    root, seen, got, leftovers = tmp_path / "index", set(), {}, set()
    for _ in everywhere(publisher, old, root, "publish", **new):
        check_what_clients_see(root)
        assert "1.0" in versions(root)
        pages = frozenset(file for file in files_of(root) if PAGE.search(f"/{file[0]}"))
        seen.add(pages)
        # pip requests only these two pages.
        asked = frozenset(page for page in pages if page[0].startswith("rocm7.2/simple/demo/"))
        if asked not in got:
            got[asked] = pip_downloads(root, clean_env, tmp_path / "got")
        found = check_index(root)
        assert all(fault.endswith("scripts/wheel-builder index pages") for fault in found.faults)
        leftovers |= {leftover.partition(": ")[2].partition(";")[0] for leftover in found.leftovers}
        assert publisher(root, "publish", **new) == 0
        assert check_index(root) == Found(())
        assert versions(root) == ["1.0", "2.0"]
        assert versions(root, "flash-attn-rocm") == [VERSION]

    # Two pages for each project in two indexes, ours also for the other runtime, and three lists of projects.
    assert len(seen) >= 16
    assert len(got) == 3
    assert set(got.values()) == {"demo-1.0-py3-none-any.whl", "demo-2.0-py3-none-any.whl"}
    assert leftovers == {"an interrupted publisher left it", "no page names it"}


def pip_downloads(root, env, folder):
    """The one file of ``demo`` downloaded by pip from the index."""
    shutil.rmtree(folder, ignore_errors=True)
    with serving(root) as (url, _):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        command += ["--index-url", f"{url}/rocm7.2/simple/", "demo"]
        subprocess.run(command, env=env, check=True)
    (file,) = folder.iterdir()
    return file.name


def test_killed_while_making_the_first_index(everywhere, publisher, new, tmp_path):
    """Before the wheels are published again, another publisher with other wheels runs."""
    root, other = tmp_path / "index", [str(project_wheel(tmp_path, "other", "1.0"))]
    for _ in everywhere(publisher, None, root, "publish", **new):
        check_what_clients_see(root)
        assert publisher(root, "publish", wheels=other, rocm="7.2") == 0
        check_what_clients_see(root)
        assert publisher(root, "publish", **new) == 0
        assert check_index(root) == Found(())


@pytest.mark.parametrize("again", [False, True], ids=["new", "published"])
def test_killed_while_adding_variants(everywhere, publisher, old, new, tmp_path, again):
    """``demo`` is not a wheel with GPUs, so it has no variants."""
    root, order = tmp_path / "index", new | {"wheels": new["wheels"][1:]}
    if again:
        assert publisher(old, "publish", **order) == 0
    for _ in everywhere(publisher, old, root, "publish", variants=True, **order):
        check_what_clients_see(root)
        assert all(fault.endswith("wheel-builder index pages") for fault in check_index(root).faults)
        assert publisher(root, "publish", variants=True, **order) == 0
        assert check_index(root) == Found(())
        assert len(list(root.glob("**/variants/flash-attn-rocm/index.html"))) == 3


def test_killed_while_yanking(everywhere, publisher, old, tmp_path):
    root, order = tmp_path / "index", {"file": "demo-1.0-py3-none-any.whl", "rocm": "7.2"}
    for _ in everywhere(publisher, old, root, "yank", **order):
        check_what_clients_see(root)
        assert publisher(root, "yank", **order) == 0
        assert check_index(root) == Found(())
        assert read_contents(root)["7.2"]["demo"][0].yanked == "broken"


def test_killed_while_cleaning_up_after_a_killed_one(publisher, old, new, tmp_path):
    half = tmp_path / "half"
    shutil.copytree(old, half)
    assert publisher(half, "publish", kill_at=5, **new) == KILLED
    assert list(half.rglob("*.part"))
    for number in range(1, 12):
        root = tmp_path / f"index-{number}"
        shutil.copytree(half, root)
        assert publisher(root, "publish", kill_at=number, **new) == KILLED
        check_what_clients_see(root)
        assert publisher(root, "publish", **new) == 0
        assert check_index(root) == Found(())


@pytest.mark.parametrize("yanked", [False, True])
def test_killed_while_a_local_index_replaces_a_wheel(numbers, publisher, tmp_path, yanked):
    wheels = []
    for number in (1, 2):
        (folder := tmp_path / str(number)).mkdir()
        wheels.append(str(project_wheel(folder, "demo", "1.0", module=f"VALUE = {number}\n".encode())))
    local = tmp_path / "local"
    assert publisher(local, "release", wheels=wheels[:1], rocm="7.2") == 0
    if yanked:
        assert publisher(local, "yank", file=Path(wheels[0]).name, rocm="7.2") == 0
    order = {"wheels": wheels[1:], "rocm": "7.2"}
    shutil.copytree(local, tmp_path / "whole")
    assert publisher(tmp_path / "whole", "release", **order) == 0
    assert len(publisher.trace) >= 20
    for number in numbers(publisher.trace):
        root = tmp_path / f"index-{number}"
        shutil.copytree(local, root)
        assert publisher(root, "release", kill_at=number, **order) == KILLED
        check_what_clients_see(root)
        assert publisher(root, "release", **order) == 0
        assert check_index(root) == Found(())
        [entry] = read_contents(root)["7.2"]["demo"]
        assert (entry.record.sha256, entry.yanked) == (sha256_file(Path(wheels[1])), None)


def test_killed_while_a_local_index_replaces_a_wheel_with_variants(numbers, publisher, tmp_path):
    wheels = []
    for number, arch in enumerate(("gfx908", "gfx942")):
        (folder := tmp_path / str(number)).mkdir()
        files = good_files() | {"flash_attn_rocm/__init__.py": f"VALUE = {number}\n".encode()}
        wheels.append(write_wheel(folder, files))
        write_record(wheels[-1], {"sha256": sha256_file(wheels[-1]), "archs": {arch: SHOWN}})
    local, orders = (
        tmp_path / "local",
        [{"wheels": [str(w)], "rocm": "7.2", "variants": True} for w in wheels],
    )
    assert publisher(local, "release", **orders[0]) == 0
    shutil.copytree(local, tmp_path / "whole")
    assert publisher(tmp_path / "whole", "release", **orders[1]) == 0
    for number in numbers(publisher.trace):
        root = tmp_path / f"index-{number}"
        shutil.copytree(local, root)
        assert publisher(root, "release", kill_at=number, **orders[1]) == KILLED
        check_what_clients_see(root)
        assert publisher(root, "release", **orders[1]) == 0
        assert check_index(root) == Found(())
        assert files_of(root) == files_of(tmp_path / "whole")


def test_a_disk_that_is_full_from_any_write_on(everywhere, publisher, old, new, tmp_path):
    root = tmp_path / "index"
    for _ in everywhere(publisher, old, root, "publish", of="full_at", status=PublishError.exit_code, **new):
        check_what_clients_see(root)
        assert "1.0" in versions(root)
        assert not list(root.rglob("*.part")), "what was half written takes up room"
        assert publisher(root, "publish", **new) == 0
        assert check_index(root) == Found(())


def processes(count):
    context = multiprocessing.get_context("forkserver")
    # imported once instead of in each process
    context.set_forkserver_preload(["tests.channel.index.publisher"])
    return concurrent.futures.ProcessPoolExecutor(count, mp_context=context)


def test_of_publishers_with_one_name_for_different_files_one_wins(tmp_path):
    wheels = []
    for number in range(6):
        (folder := tmp_path / str(number)).mkdir()
        wheels.append(project_wheel(folder, "demo", "1.0", module=f"VALUE = {number}\n".encode()))
    with processes(6) as pool:
        outcomes = list(pool.map(outcome, wheels, [tmp_path / "index"] * 6))

    assert outcomes.count("published") == 1
    assert sum("a published file never changes" in words for words in outcomes) == 5
    (entry,) = read_contents(tmp_path / "index")["7.2"]["demo"]
    assert entry.record.sha256 == sha256_file(wheels[outcomes.index("published")])
    assert check_index(tmp_path / "index") == Found(())


def test_publishers_at_the_same_time_wait_for_each_other(publisher, tmp_path, new):
    """Twelve at once for three ROCm versions. One of them is killed."""
    root = tmp_path / "index"
    wheels = {f"{number}.0": ("7.2", "7.1", "6.4")[number % 3] for number in range(12)}
    with processes(12) as pool:
        done = [
            pool.submit(
                publish, [project_wheel(tmp_path, "demo", version)], root, rocm, catalogue=CATALOGUE, now=NOW
            )
            for version, rocm in wheels.items()
        ]
        assert publisher(root, "publish", kill_at=9, **new) == KILLED
        assert all(one.result().added for one in done)

    assert publisher(root, "publish", **new) == 0
    assert check_index(root) == Found(())
    everything = json.loads((root / "simple" / "demo" / "index.json").read_text())
    assert everything["versions"] == list(wheels)
    for rocm in set(wheels.values()):
        page = json.loads((root / f"rocm{rocm}" / "simple" / "demo" / "index.json").read_text())
        own = [version for version in wheels if wheels[version] == rocm]
        assert [v for v in page["versions"] if v in own] == own

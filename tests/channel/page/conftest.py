"""A headless Chromium from the distribution, and an index whose page it opens."""

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from playwright.sync_api import sync_playwright

from tests.conftest import alone
from tests.fast.unit.index.test_folder import FILE
from tests.tools.made.matrices import with_examples
from tests.tools.made.wheels import METADATA, VERSION, WHEEL, write_statement, write_wheel
from wheel_builder.base.process import run
from wheel_builder.base.store import sha256_file
from wheel_builder.images.engine import APT
from wheel_builder.index.folder import add_file, write_pages
from wheel_builder.index.publish import publish
from wheel_builder.index.simple.serve import serving
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.matrix.model import PUBLIC, WINDOWS_TAG
from wheel_builder.provenance.records import write_record
from wheel_builder.tables.archs import known_archs, served_by
from wheel_builder.verify.wine import HOW, NOT_EXECUTED, archs_under_wine

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NUMERICS = "executed on an ISA emulator, not run on hardware"
SCHEMES = ("light", "dark")


@pytest.fixture(scope="session")
def chromium(context):
    """The browser's path. As root on Debian or Ubuntu it is installed from the distribution."""
    if found := shutil.which("chromium"):
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.fail("chromium is not installed\n  next: sudo apt-get install chromium fonts-dejavu-core")
    log, env = context.log("chromium"), {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with alone("apt"):
        run([*APT, "update"], log=log, env=env, advice="apt has to reach its archive")
        run([*APT, "install", "--no-install-recommends", "chromium", "fonts-dejavu-core"], log=log, env=env)
    return shutil.which("chromium")


@pytest.fixture(scope="session")
def browser(chromium):
    # Chromium's sandbox needs user namespaces, and root in a container lacks them. The page is our own.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """An index with wheels for ROCm 7.2 (also serves 7.1), 6.4 and Windows, by our matrix with the examples.

    It also has the distribution flash-attn.
    """
    folder = tmp_path_factory.mktemp("page")
    matrix = with_examples()
    for rocm, serves in (("7.2", ["7.1"]), ("6.4", [])):
        publish_one(folder, matrix, rocm, serves)
    publish_for_windows(folder, matrix)
    drop_in = replace(
        FILE, project="flash-attn", filename="flash_attn-2.8.3-py3-none-any.whl", version="2.8.3", serves=()
    )
    add_file(folder / "index" / "rocm7.2" / "simple", drop_in, NOW)
    write_pages(folder / "index", catalogue_of(matrix))
    return folder / "index"


def publish_one(folder, matrix, rocm, serves):
    """Publish a wheel for a ROCm version to ``folder/index``. The one for 7.2 has a statement."""
    wheel = product_wheel(folder, f"0.1.0+rocm{rocm}")
    shown = {"numerics": NUMERICS, "launches": {"a": 42}, "findings": []}
    archs = {arch: shown | {"gpus": served_by(arch)} for arch in known_archs()}
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": archs, "serves": serves})
    if rocm == "7.2":
        write_statement(wheel)
    publish([wheel], folder / "index", rocm, catalogue=catalogue_of(matrix), now=NOW)
    return wheel


def publish_for_windows(folder, matrix):
    """Publish the wheel for Windows. Two of its archs were executed."""
    wheel = product_wheel(folder, "0.1.0", WINDOWS_TAG)
    executed = archs_under_wine(matrix.public.windows, full=False)
    shown = {"numerics": HOW, "launches": {"a": 42}, "findings": [], "passed": True}
    archs = {
        arch: (shown if arch in executed else {"numerics": NOT_EXECUTED}) | {"gpus": served_by(arch)}
        for arch in matrix.public.windows
    }
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": archs, "serves": []})
    publish([wheel], folder / "index", PUBLIC, catalogue=catalogue_of(matrix), now=NOW)
    return wheel


def product_wheel(folder, version, tag="manylinux_2_28_x86_64"):
    """A wheel of the product's name."""
    info = f"flash_attn_rocm-{version}.dist-info"
    files = {
        f"{info}/METADATA": METADATA.replace(VERSION, version).encode(),
        f"{info}/WHEEL": WHEEL.encode(),
    }
    return write_wheel(folder, files, name=f"flash_attn_rocm-{version}-py3-none-{tag}.whl")


@pytest.fixture(scope="session")
def address(root):
    with serving(root) as url:
        yield url


@pytest.fixture(scope="session")
def plain(browser):
    """The page shared by all tests with the default context: a new context takes longer than most tests."""
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def open_page(browser, address, plain):
    """``open_page(**context)`` opens the page. Its requests and errors are checked at the end.

    With the default context it is the shared page, loaded again.
    """
    contexts, asked, complaints = [], [], []
    heard = {
        "request": lambda request: asked.append(request.url),
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
    }

    def opened(**options):
        page = plain
        if options:
            contexts.append(browser.new_context(**options))
            page = contexts[-1].new_page()
            listen(page)
        page.goto(f"{address}/")
        return page

    def listen(page):
        for event, noted in heard.items():
            page.on(event, noted)

    listen(plain)
    yield opened
    for context in contexts:
        context.close()
    for event, noted in heard.items():
        plain.remove_listener(event, noted)
    assert set(asked) <= {f"{address}/"}
    assert complaints == []

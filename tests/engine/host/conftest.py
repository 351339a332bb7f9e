"""The C interface, compiled once for all tests of it."""

import pytest

from tests.engine.host.interface import Library, compile_library
from tests.tools.programs import compile_zstd
from wheel_builder.build.zstd import fetch_zstd


@pytest.fixture(scope="session")
def zstd(builder_image, context, tmp_path_factory):
    """The arguments to compile and link with zstd."""
    source = fetch_zstd(context.checkout, context.store, log=context.log("zstd")).path
    return compile_zstd(builder_image, source, tmp_path_factory.mktemp("zstd"))


@pytest.fixture(scope="session")
def library_file(builder_image, zstd, tmp_path_factory):
    return compile_library(builder_image, zstd, tmp_path_factory.mktemp("interface"))


@pytest.fixture(scope="session")
def library(library_file):
    return Library(library_file)

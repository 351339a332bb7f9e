"""The C interface, compiled once for all tests of it."""

import pytest

from tests.engine.host.interface import Library, compile_library


@pytest.fixture(scope="session")
def library_file(builder_image, zstd, tmp_path_factory):
    return compile_library(builder_image, zstd, tmp_path_factory.mktemp("interface"))


@pytest.fixture(scope="session")
def library(library_file):
    return Library(library_file)

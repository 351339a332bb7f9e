import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.finished import repository
from wheel_builder.matrix.reading import load_matrix


@pytest.fixture(scope="session")
def matrix():
    return load_matrix(CHECKOUT / "matrix.yaml")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A repository with the files that determine wheels, and its commit."""
    root = tmp_path_factory.mktemp("checkout")
    return root, repository(root)

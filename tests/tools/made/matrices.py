"""matrix.yaml with the rows of its example file."""

import re
import tempfile
from pathlib import Path

from tests.conftest import CHECKOUT
from wheel_builder.matrix.reading import load_matrix

EXAMPLE = CHECKOUT / "matrix.example.yaml"


def with_examples():
    """The matrix of users who copied every example."""
    text = (CHECKOUT / "matrix.yaml").read_text()
    for name, rows in re.findall(r"^(\w+):\n((?:(?: .*)?\n)+)", EXAMPLE.read_text(), re.MULTILINE):
        text = re.sub(rf"^{name}:\n", lambda _, rows=rows: _[0] + rows, text, flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "matrix.yaml")
        file.write_text(text)
        return load_matrix(file)

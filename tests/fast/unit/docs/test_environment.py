"""The lines of docs/install.md for a virtual environment, run as typed."""

import re
import subprocess

from tests.conftest import CHECKOUT
from wheel_builder.index.finder.steps import ENTER, MAKE_ENVIRONMENT


def test_the_virtual_environment_is_made_and_entered(tmp_path):
    """Debian's Python refuses packages. In a virtual environment pip installs and removes."""
    text = (CHECKOUT / "docs/install.md").read_text(encoding="utf-8")
    section = re.search(r"^## A virtual environment$(.*?)^## ", text, re.DOTALL | re.MULTILINE)[1]
    lines = re.findall(r"^    (.*)$", section, re.MULTILINE)
    assert lines == [MAKE_ENVIRONMENT["pip"], ENTER, "python -m pip uninstall --yes torch"], "as on the page"
    asked = 'python -c "import sys; print(sys.prefix)"'
    done = subprocess.run(
        ["bash", "-euc", "\n".join((*lines, asked))],
        cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == str(tmp_path / "rocm-fa")

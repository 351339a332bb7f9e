import json
import re
import subprocess
import time

import pytest

from tests.conftest import CHECKOUT, alone


class Release:
    """A run of ``scripts/release`` as a user types it."""

    def __init__(self, index, *more):
        # Two for one platform would write to the same files of dist/ at once.
        platform = more[more.index("--platforms") + 1] if "--platforms" in more else "linux"
        with alone(f"release-{platform}"):
            begin = time.monotonic()
            done = subprocess.run(
                ["scripts/release", "--index", str(index), *more],
                cwd=CHECKOUT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.seconds = time.monotonic() - begin
        self.index, self.status, self.out, self.err = index, done.returncode, done.stdout, done.stderr

    def says(self, word):
        """The rest of the summary line after ``word``."""
        [line] = re.findall(rf"^{word} +(.*)$", self.out, re.MULTILINE)
        return line

    @property
    def wheel(self):
        return CHECKOUT / self.says("wheel")


@pytest.fixture(scope="session")
def release(tmp_path_factory):
    """The main job, which makes the public wheel, into its own index."""
    done = Release(tmp_path_factory.mktemp("index"))
    assert done.status == 0, done.err
    return done


@pytest.fixture(scope="session")
def record(release, context):
    """The verify stage's record of the released wheel. The last one: changed tests verify a wheel again."""
    written = sorted((context.build / "verify").glob("*/record.json"), key=lambda path: path.stat().st_mtime)
    records = [json.loads(path.read_text()) for path in written]
    return [r for r in records if r["sha256"] == release.says("sha256")][-1]

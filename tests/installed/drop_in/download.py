"""Files from pip's index, by their hashes."""

import os
import subprocess
import sys

# For the verify image's Python.
TARGET = ["--only-binary=:all:", "--python-version=3.11"]
TARGET += [f"--platform=manylinux_{glibc}_x86_64" for glibc in ("2_28", "2_27", "2_17")]


def pip_download(requirements, folder, *more):
    """pip's output for the download of hash-pinned requirements to ``folder``."""
    argv = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--dest", str(folder),
        "--requirement", str(requirements), *more,
    ]  # fmt: skip
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

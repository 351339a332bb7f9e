"""The imports of released libraries from flash_attn, read again from their files, pinned by hash."""

import json

import pytest

from tests.installed.drop_in import imports
from tests.installed.drop_in.download import TARGET, pip_download

PLATFORMS = [f"--platform=manylinux{tag}_x86_64" for tag in ("_2_34", "_2_24", "2014", "1")]


@pytest.mark.full
def test_the_pinned_imports_are_those_of_the_files(tmp_path):
    pinned = json.loads(imports.PINNED.read_text())
    wanted = tmp_path / "requirements.txt"
    wanted.write_text(
        "".join(f"{row['library']}=={row['version']} --hash=sha256:{row['sha256']}\n" for row in pinned)
    )
    folder = tmp_path / "files"
    folder.mkdir()
    done = pip_download(wanted, folder, *TARGET, *PLATFORMS)
    assert done.returncode == 0, done.stderr
    ours, upstream = imports.names_of(imports.python_files(imports.SHIM)), imports.upstream_names()
    found = [imports.row_of(folder / row["file"], ours, upstream) for row in pinned]
    assert found == pinned

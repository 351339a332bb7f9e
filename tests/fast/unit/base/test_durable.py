"""Files are complete or absent."""

import errno

import pytest

from wheel_builder.base.durable import ensure


def test_a_full_disk_names_the_file_and_leaves_what_was_there(tmp_path):
    path = tmp_path / "coverage.json"
    path.write_bytes(b"before")
    # The new content is written here first, and every write finds the disk full.
    (tmp_path / ".coverage.json.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        ensure(path, b"after")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert [file.name for file in tmp_path.iterdir()] == ["coverage.json"]
    assert path.read_bytes() == b"before"

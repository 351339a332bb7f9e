"""The first kernel of an arch unpacks the arch's code: on this machine in less than 20 ms."""

import logging
import subprocess

from wheel_builder.files.binaries.elf import section_bytes
from wheel_builder.files.device.compressed import packed_bundles
from wheel_builder.files.device.fatbin import SECTION, read_fatbin
from wheel_builder.files.device.library import LIBRARY
from wheel_builder.files.wheels.wheelfile import read_wheel

LOG = logging.getLogger(__name__)
MOST_MS = 20  # also with a base, which is unpacked first


def test_an_archs_code_is_unpacked_in_few_milliseconds(release, unpacker, tmp_path):
    section = section_bytes(read_wheel(release.wheel, max_mib=64).files[LIBRARY], SECTION)
    bundles = packed_bundles(section)
    files = [tmp_path / str(bundle.start) for bundle in bundles]
    for file, bundle in zip(files, bundles, strict=True):
        file.write_bytes(section[bundle.start : bundle.end])
    for file, bundle in zip(files, bundles, strict=True):
        out = tmp_path / "content"
        command = [unpacker, out, file, *files]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert out.read_bytes() == bundle.content
        arch, ms = read_fatbin(bundle.content)[0].arch, int(done.stdout) / 1000
        sizes = (bundle.end - bundle.start, len(bundle.content))
        LOG.info("%s: %d bytes to %d in %.1f ms", arch, *sizes, ms)  # shown with --log-cli-level=INFO
        assert ms < MOST_MS

"""From the index to ``tune``: published candidates of a released wheel, installed by pip, timed and kept."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.conftest import CHECKOUT
from tests.tools.built import newest_built, verify_image
from tests.tools.made import candidates as made
from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.files.device.library import device_code
from wheel_builder.files.wheels.candidates import file_name, written
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, read_wheel
from wheel_builder.images.docker import Mount, run_in
from wheel_builder.index.publish import publish
from wheel_builder.machine_code.fake_hip.container import CONTROL, DISASSEMBLY, LIBRARY_INSIDE, PYTHON
from wheel_builder.provenance.records import write_record

ARCH, NAME = "gfx942", "fa_fwd_fp16_d64"
ROWS, THREADS = 128, 256  # of a workgroup of the wheel's own kernel, of which candidates are copies
NOW = datetime(2026, 1, 2, tzinfo=UTC)
PROGRAM = CHECKOUT / "tests/tools/tune_from_index.py"
INSTALL_AND_TUNE = f"""
set -eu
python -m pip install --quiet --index-url file:///index/public/simple flash-attn-rocm-tuning-{ARCH}
cd /out
LD_PRELOAD={LIBRARY_INSIDE} python /program.py "$FASTER" /out
"""
ROW = re.compile(rb"clang version [0-9.]{5}")


def copies(wheel, disassembly, folder):
    """``codes`` for candidates: the wheel's own code with another comment, its text in ``folder``."""
    codes = [each.data for each in device_code(read_wheel(wheel, max_mib=MAX_READ_MIB)) if each.gfx == ARCH]
    texts = {file.with_suffix(".co").read_bytes(): file for file in disassembly.glob(f"{ARCH}*.s")}
    for file in disassembly.iterdir():
        (folder / file.name).symlink_to(f"/original/{file.name}")

    def copy(_arch, kernel, number):
        own = next(each for each in codes if f"<{kernel}>:\n" in texts[each].read_text())
        code = ROW.sub(b"clang version %05d" % number, own)
        assert code != own
        (folder / f"{kernel}-{number}.co").write_bytes(code)
        (folder / f"{kernel}-{number}.s").write_text(texts[own].read_text())
        return code

    return copy


def with_sizes(listed):
    """The list, with the rows and threads of the wheel's own kernels."""
    return replace(
        listed,
        kernels={
            name: replace(
                kernel,
                candidates={
                    row: replace(each, rows=ROWS, threads=THREADS) for row, each in kernel.candidates.items()
                },
            )
            for name, kernel in listed.kernels.items()
        },
    )


def tuned_from_index(wheel, disassembly, runtime, image, folder):
    """The faster row of each kernel, the report, and what a call said afterwards."""
    for name in ("texts", "files", "out"):
        (folder / name).mkdir()
    (folder / "out").chmod(0o777)
    listed, bundles = made.listed_and_bundles([wheel], ARCH, copies(wheel, disassembly, folder / "texts"))
    listed = with_sizes(listed)
    file = folder / "files" / file_name(listed)
    file.write_bytes(written(listed, bundles, 315619200))
    write_record(file, made.record_of(file, listed))
    publish([wheel, file], folder / "index", "public", catalogue=CATALOGUE, now=NOW)
    mounts = [
        Mount(folder / "index", "/index"), Mount(folder / "texts", DISASSEMBLY),
        Mount(disassembly, "/original"),
        Mount(runtime / "libamdhip64.so.7", LIBRARY_INSIDE), Mount(PROGRAM, "/program.py"),
        Mount(CHECKOUT / CONTROL, f"{PYTHON}/{CONTROL}"), Mount(folder / "out", "/out", writable=True),
    ]  # fmt: skip
    faster = max(listed.kernels[NAME].candidates)
    env = {
        "FA_FAKE_HIP_DISASSEMBLY": DISASSEMBLY, "PYTHONPATH": PYTHON, "PYTHONDONTWRITEBYTECODE": "1",
        "FASTER": faster, "XDG_CACHE_HOME": "/out/cache", "FA_FAKE_HIP_ARCH": "gfx942:sramecc+:xnack-",
    }  # fmt: skip
    run_in(image, ["sh", "-c", INSTALL_AND_TUNE], mounts=mounts, env=env)
    report, shown = (
        json.loads((folder / "out" / f"{name}.json").read_text()) for name in ("report", "shown")
    )
    return listed, faster, report, shown


@pytest.fixture(scope="module")
def tuned(release, tmp_path_factory):
    disassembly, runtime = newest_built("wheel-disassembly"), newest_built("fake_hip")
    return tuned_from_index(
        release.wheel, disassembly, runtime, verify_image(), tmp_path_factory.mktemp("tune")
    )


def test_published_candidates_are_tuned_applied_and_explained(tuned):
    listed, faster, report, shown = tuned
    assert shown["status"] == 0
    assert {*report["kernels"]} == {*listed.kernels}
    found = report["kernels"][NAME]
    assert (found["shipped"], found["winner"]) == (listed.kernels[NAME].shipped, faster)
    assert {each["state"] for each in found["candidates"].values()} == {"timed"}
    assert (shown["launched"], shown["in_use"]) == (NAME, faster)
    assert f"; row {faster} is used instead of {found['shipped']}, kept by " in shown["row"]
    assert shown["error"] < 0.01, "fp16; a wrong kernel is off by about 1"

"""From the index to ``tune``: candidates of a released wheel, published, installed by pip, timed and kept."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.conftest import CHECKOUT
from tests.tools.made import candidates as made
from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.extras.tune.rows import rows_of
from wheel_builder.extras.tune.run import workgroup
from wheel_builder.files.device.library import device_code
from wheel_builder.files.wheels.candidates import file_name, written
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, read_wheel
from wheel_builder.images.docker import Mount, run_in
from wheel_builder.index.publish import publish
from wheel_builder.machine_code.fake_hip.container import (
    CONTROL,
    DISASSEMBLY,
    LIBRARY_INSIDE,
    PYTHON,
    WINDOWS_LIBRARY_INSIDE,
)
from wheel_builder.provenance.records import write_record
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import known_tiles

NAME, OTHER = "fa_fwd_fp16_d64", "fa_fwd_bf16_d64"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
PROGRAM, CLOCK = (
    CHECKOUT / "tests/tools/tune_from_index.py",
    CHECKOUT / "tests/installed/fake_hip/row_clock.py",
)
INSTALL_AND_TUNE = """
set -eu
cd /out
"$PROGRAM" -m pip install --quiet --index-url file:///index/public/simple "$DISTRIBUTION"
# Killed in a launch. Under wine its status is 0 or not.
LD_PRELOAD="${LIBRARY:-}" "$PROGRAM" /program.py "$FASTER" /out "$HANGS" || true
LD_PRELOAD="${LIBRARY:-}" "$PROGRAM" /program.py "$FASTER" /out
"""
ROW = re.compile(rb"clang version [0-9.]{5}")
# Each kernel's second candidate: with a wrong result, or a launch that never ends. OTHER's first one fails,
# because the emulator lacks its text.
FIRST, BROKEN = made.MORE
BREAKS = {
    NAME: (re.compile(r"v_exp_f32_e32 (v\d+), "), r"v_log_f32_e32 \1, "),
    OTHER: (re.compile(r"s_endpgm"), "s_branch 65535"),  # to itself
}


class Place(NamedTuple):
    """Where ``tune`` runs: the container's Python, and what is preloaded into it."""

    arch: str
    image: str
    runtime: Path
    program: str = "python"
    under_wine: bool = False


def copies(wheel, arch, disassembly, folder):
    """``codes`` for candidates: the wheel's own code with another comment, its text in ``folder``."""
    codes = [each.data for each in device_code(read_wheel(wheel, max_mib=MAX_READ_MIB)) if each.gfx == arch]
    texts = {file.with_suffix(".co").read_bytes(): file for file in disassembly.glob(f"{arch}*.s")}
    for file in disassembly.glob(f"{arch}*"):
        shutil.copyfile(file, folder / file.name)

    def copy(_arch, kernel, number):
        own = next(each for each in codes if f"<{kernel}>:\n" in texts[each].read_text())
        code = ROW.sub(b"clang version %05d" % number, own)
        assert code != own
        if (kernel, number) == (OTHER, FIRST):
            return code
        (folder / f"{kernel}-{number}.co").write_bytes(code)
        text = texts[own].read_text()
        if number == BROKEN:
            what, into = BREAKS[kernel]
            text, changes = what.subn(into, text, count=1 if kernel == NAME else 0)
            assert changes > 0
        (folder / f"{kernel}-{number}.s").write_text(text)
        return code

    return copy


def with_sizes(listed):
    """The list, with the rows and threads of the wheel's own kernels."""
    kernels = {}
    for kernel in made.kernels(listed.arch):
        of, own = listed.kernels[kernel.name], rows_of(known_tiles(), arch_named(listed.arch), kernel)
        sizes = vars(workgroup(kernel, own))
        kernels[kernel.name] = replace(
            of, candidates={row: replace(each, **sizes) for row, each in of.candidates.items()}
        )
    return replace(listed, kernels=kernels)


def tuned_from_index(wheel, disassembly, place, folder):
    """The list, the report, and what the programs said."""
    for name in ("texts", "files", "out"):
        (folder / name).mkdir()
    (folder / "out").chmod(0o777)
    codes = copies(wheel, place.arch, disassembly, folder / "texts")
    listed, bundles = made.listed_and_bundles([wheel], place.arch, codes)
    listed = with_sizes(listed)
    file = folder / "files" / file_name(listed)
    file.write_bytes(written(listed, bundles, 315619200))
    write_record(file, made.record_of(file, listed))
    publish([wheel, file], folder / "index", "public", catalogue=CATALOGUE, now=NOW)
    inside = WINDOWS_LIBRARY_INSIDE if place.under_wine else LIBRARY_INSIDE
    faster, hangs = rows_named(listed, NAME)[0], rows_named(listed, OTHER)[1]
    mounts = [
        Mount(folder / "index", "/index"), Mount(folder / "texts", DISASSEMBLY),
        Mount(PROGRAM, "/program.py"), Mount(CLOCK, f"{PYTHON}/{CLOCK.name}"),
        Mount(place.runtime / Path(inside).name, inside), Mount(CHECKOUT / CONTROL, f"{PYTHON}/{CONTROL}"),
        Mount(folder / "out", "/out", writable=True),
    ]  # fmt: skip
    env = {
        "FA_FAKE_HIP_DISASSEMBLY": DISASSEMBLY, "PYTHONPATH": PYTHON, "PYTHONDONTWRITEBYTECODE": "1",
        "FASTER": faster, "HANGS": hangs, "XDG_CACHE_HOME": "/out/cache", "PROGRAM": place.program,
        "FA_FAKE_HIP_ARCH": arch_named(place.arch).device_name,
        "DISTRIBUTION": f"flash-attn-rocm-tuning-{place.arch}",
        "FA_FAKE_HIP_DLL" if place.under_wine else "LIBRARY": inside,
    }  # fmt: skip
    run_in(place.image, ["sh", "-c", INSTALL_AND_TUNE], mounts=mounts, env=env)
    assert not (folder / "out/ended").exists(), "the row that hangs ended by itself"
    report, shown = (
        json.loads((folder / "out" / f"{name}.json").read_text()) for name in ("report", "shown")
    )
    return listed, report, shown


def rows_named(listed, kernel):
    """A kernel's first candidate and its broken one."""
    return tuple(listed.kernels[kernel].candidates)


def require_tuned(wheel, disassembly, place, folder):
    """The right row is kept and serves the next call. Those that are wrong, fail or hang are out.

    Before that a process was killed in a launch, and runs met Ctrl-C, another process and a full disk.
    """
    listed, report, shown = tuned_from_index(wheel, disassembly, place, folder)
    faster, wrong = rows_named(listed, NAME)
    assert shown["ctrl_c"] == {"status": 130, "kernels": [OTHER]}
    assert shown["second"]["status"] == 1
    assert "tunes this GPU already" in shown["second"]["said"]
    assert shown["full"]["status"] == 1
    assert "report.json cannot be written: No space left on device" in shown["full"]["said"]
    assert f'"winner": "{faster}"' in shown["full"]["said"], "the report is printed"
    assert shown["full"]["kernels"] == [OTHER], "the former report stays"
    assert shown["status"] == 0
    assert {*report["kernels"]} == {*listed.kernels}
    found = report["kernels"][NAME]
    assert (found["shipped"], found["winner"]) == (listed.kernels[NAME].shipped, faster)
    assert states_of(found) == {faster: "timed", wrong: "wrong"}
    fails, hangs = rows_named(listed, OTHER)
    assert states_of(report["kernels"][OTHER]) == {fails: "failed", hangs: "endless"}
    assert (shown["launched"], shown["in_use"]) == (NAME, faster)
    assert f"; row {faster} is used instead of {found['shipped']}, kept by " in shown["row"]
    assert shown["error"] < 0.01, "fp16; a wrong kernel is off by about 1"


def states_of(found):
    return {row: each["state"] for row, each in found["candidates"].items()}

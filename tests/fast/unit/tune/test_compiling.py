"""Candidates in the builder image: what is compiled, what is stored, and what a change compiles again."""

import re
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Artifact, Store
from wheel_builder.extras.tune import compiling
from wheel_builder.extras.tune.compiling import Compiled, Compilers, compile_all, text_of
from wheel_builder.extras.tune.rows import Change, Kernel, changed, rows_of
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import cpp_tiles, known_tiles

KERNEL = Kernel("gfx908", "fwd", "fp16", 64)
ROWS = rows_of(known_tiles(), arch_named("gfx908"), KERNEL)
AHEAD = changed(ROWS, [Change("prefetch", 1)])
TIGHT = changed(ROWS, [Change("waves_per_simd", 5)])
IMAGE = Artifact(Path("image"), {"facts": {"image_id": "sha256:1", "ref": "builder"}}, reused=True)


class Container:
    """Compiles a file of rows to itself, and refuses rows for 5 waves."""

    def __init__(self):
        self.compiled = []

    def __call__(self, argv, **_):
        if argv[:2] != ["docker", "run"]:
            return Completed("", 0)
        at = dict(re.findall(r"source=([^,]+),target=(/rows|/out)\b", " ".join(map(str, argv))))
        places = {target: Path(source) for source, target in at.items()}
        for folder in sorted(places["/rows"].iterdir()):
            text = (folder / "generated/device/tiles/fwd/d64.inc").read_text()
            self.compiled.append(folder.name)
            refused = ".waves_per_simd = 5" in text
            (places["/out"] / f"{folder.name}{'.txt' if refused else '.hsaco'}").write_text(
                "error: spills" if refused else text
            )
        return Completed("", 0)


@pytest.fixture
def by(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "sha256_tree", lambda *_: "sources")
    return Compilers(IMAGE, CHECKOUT, Store(tmp_path), 2, tmp_path / "log", Container())


def test_candidates_are_compiled_together_in_their_order(by):
    found = compile_all(KERNEL, [AHEAD, TIGHT, ROWS], by)
    assert found[1] == Compiled(words="error: spills")
    assert (found[0].code, found[2].code) == (text_of(KERNEL, AHEAD).encode(), text_of(KERNEL, ROWS).encode())
    assert set(by.run.compiled) == {rows.id_of(KERNEL) for rows in (AHEAD, TIGHT, ROWS)}


def test_stored_candidates_are_not_compiled_again(by):
    first = compile_all(KERNEL, [ROWS, TIGHT], by)
    by.run.compiled.clear()
    assert compile_all(KERNEL, [ROWS, AHEAD, TIGHT], by)[::2] == first
    assert by.run.compiled == [AHEAD.id_of(KERNEL)]
    by.run.compiled.clear()
    compile_all(KERNEL, [ROWS, AHEAD, TIGHT], by)
    assert by.run.compiled == []


def test_another_kernel_or_arch_is_compiled_itself(by):
    keys = {
        str(by.inputs(kernel, ROWS))
        for kernel in (KERNEL, Kernel("gfx908", "fwd", "bf16", 64), Kernel("gfx90a", "fwd", "fp16", 64))
    }
    assert len(keys) == 3


def test_the_key_has_no_rows_of_other_kernels():
    """Changed rows of another kernel change generated/device/tiles and tables/tiles.toml only."""
    assert not any("kernels/generated/device/tiles".startswith(source) for source in compiling.SOURCES)
    assert not any(source.startswith("kernels/tables") for source in compiling.SOURCES)
    assert all((CHECKOUT / source).exists() for source in compiling.SOURCES)


def test_every_other_generated_header_is_in_the_key():
    headers = {file.name for file in (CHECKOUT / "kernels/generated/device").glob("*.inc")}
    assert headers == {Path(source).name for source in compiling.SOURCES if source.endswith(".inc")}


def test_the_file_of_todays_rows_has_the_lines_of_the_generated_one():
    kernel = Kernel("gfx908", "fwd", "fp16", 96)  # both dtypes have its rows
    generated = cpp_tiles(known_tiles())["fwd/d96.inc"]
    block = generated.partition("#ifdef FA_SEES_cdna1\n")[2].partition("#endif")[0]
    text = text_of(kernel, rows_of(known_tiles(), arch_named("gfx908"), kernel))
    assert sorted(block.splitlines()) == sorted(re.findall("^FA_TILE.*$", text, re.MULTILINE))

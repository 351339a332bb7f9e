"""A tiny budget on one kernel: compiled in the builder image, modelled and executed on the emulator."""

import hashlib
import tomllib
from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.store import Store
from wheel_builder.build.device_code import source_mounts
from wheel_builder.extras.perf.run import Bench, subjects
from wheel_builder.extras.tune import run, space
from wheel_builder.extras.tune.compiling import Compilers, compile_all
from wheel_builder.extras.tune.measuring import Results, executed, models_of
from wheel_builder.extras.tune.rows import NONE, Change, Kernel, changed, joined, rows_of
from wheel_builder.extras.tune.run import Tuning, Wishes, propose, workgroup
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.images.docker import Mount, caller, run_in
from wheel_builder.machine_code.disassembly.listing import tools_in
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.fake_hip.container import LIBRARY
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import Workgroup, known_tiles

KERNEL = Kernel("gfx1100", "fwd", "fp16", 32)
ROWS = rows_of(known_tiles(), arch_named(KERNEL.arch), KERNEL)
TABLE = '[[kernels]]\nop = "fwd"\ndtypes = ["fp16"]\nhead_dims = [32]\n'
TRIED = [NONE, joined([Change("prefetch", 2)]), joined([Change("waves_per_simd", 16)])]


class Counted:
    """Runs programs, and counts the compilers' containers."""

    def __init__(self, compilers):
        self._run, self.times = compilers.run, 0

    def __call__(self, argv, **options):
        self.times += any("candidates.py" in str(each) for each in argv)
        return self._run(argv, **options)


@pytest.fixture(scope="module")
def tuning(builder, emulator, context, tmp_path_factory):
    """A search with a store of its own, so it starts from nothing."""
    store = Store(tmp_path_factory.mktemp("store"))
    compilers = Compilers(builder, CHECKOUT, store, context.jobs, context.log("tune"))
    compilers = replace(compilers, run=Counted(compilers))
    bench = Bench(Core(emulator.path / LIBRARY), tools_in(builder), store, context.log("listing"))
    return Tuning(KERNEL, ROWS, compilers, bench, Results(store, models_of(CHECKOUT)), Wishes(1))


def searched(tuning, folder, monkeypatch):
    """The proposal of a search for three candidates, and its lines of progress."""
    monkeypatch.setattr(space, "single_changes", lambda *_: [each for [each] in TRIED[1:]])
    monkeypatch.setattr(space, "MOST_CHANGES", 1)
    said = []
    again = replace(tuning, outcomes={}, twins={})
    return tomllib.loads(propose(again, folder, said.append).read_text()), said


def test_a_search_compiles_models_and_proposes_and_goes_on_without_compiling(tuning, tmp_path, monkeypatch):
    found, said = searched(tuning, tmp_path / "first", monkeypatch)
    assert found["ended"] == run.DONE
    assert found["candidates"][0]["changes"] == "today's row"
    by = {each["changes"]: each for each in found["candidates"]}
    assert set(by) == {"today's row", "prefetch = 2", "waves_per_simd = 16"}
    assert by["waves_per_simd = 16"]["verdict"].startswith("refused: failed to meet occupancy target")
    lines = by["today's row"]["lines"]
    assert {"fwd, schedule", "fwd causal, port"} <= {line.rpartition(", ")[0] for line in lines}
    assert "fwd, own exponentials" in {line.rpartition(", ")[0] for line in lines}
    assert sum(line.startswith("launch ") for line in lines) > 3
    assert set(by["prefetch = 2"].get("lines", lines)) == set(lines)
    assert len(said) == 2
    compiled = tuning.compilers.run.times
    assert compiled == 1
    again, _ = searched(tuning, tmp_path / "second", monkeypatch)
    assert (again, tuning.compilers.run.times) == (found, compiled)


def test_todays_row_gives_the_bytes_of_the_build(tuning, builder, tmp_path):
    [made] = compile_all(KERNEL, [ROWS], tuning.compilers)
    (tmp_path / "table.toml").write_text(TABLE)
    argv = ["python3", "/src/kernels/build/instances/build.py", "--arch", KERNEL.arch, "--out", "/out/made"]
    mounts = [*source_mounts(CHECKOUT), Mount(tmp_path, "/out", writable=True)]
    env = {"PYTHONPATH": "/src"}
    argv += ["--table", "/out/table.toml"]
    run_in(builder.facts["ref"], argv, mounts=mounts, env=env, user=caller(), log=tmp_path / "log")
    built = (tmp_path / "made" / f"{KERNEL.name}.hsaco").read_bytes()
    assert hashlib.sha256(made.code).hexdigest() == hashlib.sha256(built).hexdigest()


@pytest.mark.parametrize(
    ("arch", "op", "dtype", "head_dim"),
    [
        (KERNEL.arch, KERNEL.op, KERNEL.dtype, KERNEL.head_dim),
        ("gfx1201", "fwd_masked", "bf16", 64),
        ("gfx908", "decode", "fp16", 64),
        ("gfx1100", "decode", "bf16", 32),
        ("gfx908", "decode_8bit", "fp16", 128),
        ("gfx942", "decode_8bit", "bf16", 64),
        ("gfx1100", "decode_8bit", "fp16", 128),
        ("gfx908", "bwd_dkdv", "bf16", 32),
        ("gfx1100", "bwd_dq", "fp16", 32),
        ("gfx908", "bwd_fused", "fp16", 64),
        ("gfx1030", "bwd_dkdv_masked", "fp16", 64),
        ("gfx942", "bwd_dq_masked", "bf16", 64),
    ],
)
def test_execution_accepts_right_results_and_finds_wrong_ones(tuning, arch, op, dtype, head_dim):
    kernel = Kernel(arch, op, dtype, head_dim)
    rows = rows_of(known_tiles(), arch_named(arch), kernel)
    [made] = compile_all(kernel, [rows], tuning.compilers)
    [subject] = subjects([CodeObject(arch, made.code)], tuning.bench)
    tile, step = workgroup(kernel, rows), rows.plain.keys or rows.plain.queries
    assert executed(subject, kernel, tile, step, tuning.results) == ""
    # Launched as if a workgroup had twice the rows, half of them stay unwritten.
    wrong = executed(subject, kernel, Workgroup(2 * tile.rows, tile.threads), step, tuning.results)
    assert "expected" in wrong


def test_the_ids_of_candidates_differ():
    assert len({changed(ROWS, each).id_of(KERNEL) for each in TRIED}) == len(TRIED)

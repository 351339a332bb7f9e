"""The command's options. tests/engine/perf models kernels."""

import os
from pathlib import Path

import pytest

from tests.tools.made.assembly import code, disassembly
from wheel_builder.base.errors import ElfError, PerfError
from wheel_builder.base.store import Store
from wheel_builder.cli.main import main
from wheel_builder.cli.options import ROOT
from wheel_builder.extras.perf import run as command
from wheel_builder.extras.perf.run import Bench, model
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.machine_code.disassembly.listing import Tools
from wheel_builder.matrix.model import Selection
from wheel_builder.matrix.plan import plan
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.pipeline.context import RunContext


@pytest.fixture
def bench(tmp_path):
    return Bench(None, Tools("none", image=""), Store(tmp_path / "store"), tmp_path / "log")


def test_a_folder_without_code_objects(bench, tmp_path):
    with pytest.raises(PerfError, match="nothing to model") as refusal:
        list(model(tmp_path, bench, max_mib=1))
    assert "expected a wheel, a code object or a folder of .hsaco files" in str(refusal.value)


def test_a_path_that_is_not_there(bench, tmp_path):
    with pytest.raises(PerfError, match="cannot be read"):
        list(model(tmp_path / "some.hsaco", bench, max_mib=1))


def test_only_the_archs_that_are_asked_for():
    parts = [command._Part(CodeObject(arch, b"")) for arch in ("gfx942:sramecc+", "gfx908")]
    assert command._wanted(Path("some.whl"), parts, ()) == parts
    assert command._wanted(Path("some.whl"), parts, ["gfx942"]) == parts[:1]
    with pytest.raises(PerfError, match=r"some\.whl: nothing to model for gfx1030, gfx1100"):
        command._wanted(Path("some.whl"), parts, ["gfx1030", "gfx1100"])


def test_the_command_says_what_it_would_model(capsys, tmp_path):
    assert main(["perf", "--dry-run", "a.whl", "b.hsaco"]) == 0
    assert capsys.readouterr().out == "a.whl\nb.hsaco\n"


def test_without_paths_it_is_the_newest_wheel(tmp_path):
    old, new = (tmp_path / f"flash_attn_rocm-0.{n}+rocm7.2-py3-none-any.whl" for n in (1, 2))
    for age, file in ((100, old), (50, new)):
        file.touch()
        os.utime(file, (age, 200 - age))
    context = RunContext(tmp_path, tmp_path, tmp_path, tmp_path, 1)
    chosen = plan(load_matrix(ROOT / "matrix.yaml"), Selection(rocm=("7.2",)))
    assert command.default_paths(chosen, context) == (new,)


def test_a_file_that_is_no_code_object(bench, tmp_path):
    (tmp_path / "some.hsaco").write_bytes(b"not ELF")
    with pytest.raises(ElfError):
        list(model(tmp_path, bench, max_mib=1))


class Machine:
    arch = "gfx942"

    def __init__(self, kernels, missing=()):
        self.kernels, self.missing = dict.fromkeys(kernels), missing


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(["other"]), "no kernel fa_fwd_fp16_d64"),
        (Machine(["fa_fwd_fp16_d64"], ("v_new: at 0x10",)), "instructions missing in the emulator"),
    ],
)
def test_what_cannot_be_run_is_refused_before(machine, words):
    from tests.fast.unit.perf.test_measure import workload
    from wheel_builder.extras.perf.measure import Subject

    with pytest.raises(PerfError, match=words):
        command._measured(Subject(machine, disassembly("s_endpgm"), code()), workload())

"""``scripts/wheel-builder emulate`` and the README's example, as a user types them."""

import re
from pathlib import Path

import pytest

from wheel_builder.cli.main import main as cli
from wheel_builder.machine_code.emulator import command
from wheel_builder.machine_code.fake_hip.container import LIBRARY
from wheel_builder.tables.archs import known_archs

README = Path(command.__file__).with_name("README.md")


@pytest.mark.parametrize("arch", known_archs())
def test_emulate_runs_a_code_object(builder, device_code, arch, capsys):
    code = device_code(arch) / "fa_fwd_bf16_d64.hsaco"
    case = {"dtype": "bf16", "seqlen-q": 17, "seqlen-k": 65, "heads": 4, "heads-k": 2, "seed": 2}
    shape = ["--causal", *(f"--{name}={value}" for name, value in case.items())]
    assert cli(["emulate", str(code), "--arch", arch, *shape]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"fa_fwd_bf16_d64 on {arch}: batch 1, seqlen 17 x 65, heads 4/2, causal")
    assert re.match(r"  out: worst error \d\.\d+e-0[2-4] against float64; the rule allows \d\.", lines[1])
    assert lines[3] == "  first difference: none"
    counts = {name: int(count.replace(",", "")) for count, name in map(str.split, lines[5:-1])}
    assert int(lines[4].split()[0].replace(",", "")) == sum(counts.values())
    assert {"valu", "salu", "lds", "vmem", "barrier"} < set(counts)
    assert lines[-1] == "  passed"


def test_emulate_says_what_there_is_instead(builder, device_code, capsys):
    code = device_code("gfx942") / "fa_fwd_fp16_d64.hsaco"
    assert cli(["emulate", str(code), "--arch", "gfx942", "--head-dim", "96"]) == 45
    err = capsys.readouterr().err
    assert "no kernel fa_fwd_fp16_d96 for gfx942; for gfx942 it has fa_fwd_fp16_d64" in err
    assert cli(["emulate", str(code), "--arch", "gfx1030"]) == 45
    assert "no kernel fa_fwd_fp16_d64 for gfx1030; it has kernels for gfx942" in capsys.readouterr().err


def test_the_example_in_the_readme_runs(compiled, disassembled, emulator, tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    code = compiled("planted", "gfx1100")
    (tmp_path / "kernel.co").write_bytes(code.read_bytes())
    (tmp_path / "kernel.s").write_text(disassembled(code))
    (tmp_path / LIBRARY).symlink_to(emulator.path / LIBRARY)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {})
    assert capsys.readouterr().out.startswith("(0.0, 0.0, 0.0, 0.0) ")

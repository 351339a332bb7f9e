"""bench and selftest as commands, on a machine without a GPU."""

import csv
import io
import json
import sys

import pytest
import torch
from flash_attn_rocm import FlashAttnArgumentError, __main__
from flash_attn_rocm.diagnosis import wheel
from flash_attn_rocm.machine import requirements
from flash_attn_rocm.tools import bench as _bench
from flash_attn_rocm.tools import plot, terminal

SMALL = ["bench", "--seqlen", "16,32", "--nheads", "2", "--headdim", "32", "--tokens", "64", "--runs", "2"]


FULL = (
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: not enough memory: "),
)


@pytest.fixture(scope="module")
def bench():
    torch.set_num_threads(1)
    wanted = list(_bench.shapes((16, 32), nheads=2, head_dim=32, dtype="fp16", tokens=64))
    return _bench.quietly(wanted, runs=2)


def test_every_kind_is_measured_beside_pytorchs_own_and_the_formula(bench):
    assert len(bench.rows) == 2 * 5 * 3
    assert {(row.kind, row.causal) for row in bench.rows} == {
        ("forward", False), ("forward", True), ("backward", False), ("backward", True), ("decode", False),
    }  # fmt: skip
    for row in bench.rows:
        assert row.problem == ""
        assert row.median_ms > 0
        assert row.tflops > 0
        # Two roundings of fp16 at 4, the largest gradient of these.
        assert row.difference <= 2**-8
        assert (row.speed_up == 1.0) == (row.implementation == "sdpa") or row.speed_up > 0
    assert {row.path for row in bench.rows} == {"pytorch"}


def test_a_wrong_answer_would_be_seen(monkeypatch):
    monkeypatch.setattr(_bench, "flash_attn_func", lambda q, k, v, causal: q + 1)
    [row, *_] = _bench.quietly([_bench.Shape("forward", 16, True, 2, 32, "fp16", 16)], runs=1).rows
    assert row.difference > 0.5


def test_it_says_that_it_measures_a_cpu(bench):
    said = _bench.text(bench)
    assert "This measures the PyTorch implementation on a CPU, not kernels: the tensors are on cpu" in said
    assert "next: python -m flash_attn_rocm doctor" in said
    assert "This measures the PyTorch implementation" in _bench.as_csv(bench)


def test_flop_are_counted_as_upstream_counts_them():
    shape = _bench.Shape("forward", 1024, False, 16, 64, "fp16")
    assert shape.flop == 4 * 16 * 1024 * 1024 * 16 * 64
    assert _bench.Shape("backward", 1024, True, 16, 64, "fp16").flop == shape.flop * 3.5 / 2
    assert _bench.Shape("decode", 1024, False, 16, 64, "fp16").flop == 4 * 16 * 1024 * 16 * 64


def test_bytes_are_those_of_all_tensors_once():
    q = 2 * 16 * 16 * 64 * 1024  # bytes of q: batch 16, 16 heads
    shape = _bench.Shape("forward", 1024, False, 16, 64, "fp16")
    assert shape.moved == 4 * q  # q, k, v, out
    assert _bench.Shape("backward", 1024, False, 16, 64, "fp16").moved == 12 * q  # and dout, dq, dk, dv
    assert _bench.Shape("decode", 1024, False, 16, 64, "fp16").moved == 2 * q * (1 + 1 / 1024)


def test_shares_are_of_the_papers_peaks():
    shape = _bench.Shape("forward", 1024, False, 16, 64, "fp16")
    row = _bench.Row("forward", 1024, False, 16, "ours", "matrix", median_ms=1.0)
    found = _bench._with_shares(row, shape, {"arch": "gfx908:sramecc+", "compute_units": 120})
    rate = _bench.RATES["gfx908"]
    assert found.of_peak == pytest.approx(shape.flop * 1e3 / (1024 * 1.502e9 * 120), rel=1e-3)
    assert found.of_memory == pytest.approx(shape.moved * 1e3 / (rate.memory * 120))
    assert found.gb_s == pytest.approx(shape.moved * 1e-6)


@pytest.mark.parametrize(
    "machine", [{"arch": "", "compute_units": 0}, {"arch": "gfx900", "compute_units": 64}]
)
def test_the_peaks_of_an_unknown_gpu_are_unknown(machine):
    shape = _bench.Shape("forward", 1024, False, 16, 64, "fp16")
    row = _bench.Row("forward", 1024, False, 16, "ours", "matrix", median_ms=1.0)
    found = _bench._with_shares(row, shape, machine)
    assert (found.of_peak, found.of_memory) == (0, 0)
    assert found.gb_s > 0
    assert _bench._cells(found)[6:9] == ("-", f"{found.gb_s:.1f}", "-")


def test_another_package_is_measured_too_and_its_errors_are_its_rows(monkeypatch):
    def fails(*_tensors, causal):
        message = "this GPU is not supported\nmore"
        raise NotImplementedError(message)

    functions = {"sdpa": _bench._sdpa, "aiter": _bench._plain, "flash_attn": fails}
    shape = _bench.Shape("backward", 16, True, 2, 32, "fp16", 16)
    rows = {row.implementation: row for row in _bench._compare(shape, functions, torch.device("cpu"), 1)}
    assert rows["aiter"].median_ms > 0
    assert rows["aiter"].speed_up > 0
    assert (rows["aiter"].path, rows["sdpa"].path) == ("aiter", "pytorch")
    assert rows["flash_attn"].problem == "NotImplementedError: this GPU is not supported"
    assert len({len(_bench._cells(row)) for row in rows.values()}) == 1


def test_files(bench, tmp_path):
    _bench.write(bench, tmp_path / "a.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert len(rows) == len(bench.rows)
    assert float(rows[0]["median_ms"]) == bench.rows[0].median_ms
    _bench.write(bench, tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["rows"][3]["implementation"] == bench.rows[3].implementation
    assert found["machine"]["torch"] == torch.__version__


@pytest.mark.parametrize("error", FULL)
def test_out_of_memory_is_told_for_its_row_and_the_others_follow(monkeypatch, error):
    right = _bench._plain

    def plain(q, k, v, *, causal):
        if q.shape[1] == 32 and q.dtype == torch.float16:
            raise error
        return right(q, k, v, causal=causal)

    monkeypatch.setattr(_bench, "_plain", plain)
    wanted = [_bench.Shape("forward", n, False, 2, 32, "fp16", 64) for n in (16, 32, 64)]
    bench = _bench.quietly(wanted, runs=1)
    assert [(r.seqlen, r.implementation) for r in bench.rows if r.problem] == [(32, "plain")]
    assert "forward 32, plain: out of memory" in _bench.text(bench).splitlines()


def test_another_error_is_not_taken_for_it(monkeypatch):
    def plain(*_tensors, causal):
        message = "unspecified launch failure"
        raise RuntimeError(message)

    monkeypatch.setattr(_bench, "_plain", plain)
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        _bench.quietly([_bench.Shape("forward", 16, False, 2, 32, "fp16", 16)], runs=1)


def test_the_command(tmp_path, capsys):
    assert __main__.main([*SMALL, "--output", str(tmp_path / "b.csv")]) == 0
    said = capsys.readouterr().out
    assert "backward causal 32" in said
    assert said.rstrip().endswith("b.csv")
    assert (tmp_path / "b.csv").stat().st_size


LENGTHS, COUNT = "expected positive integers such as 512,1024, got ", "expected a positive integer, got "


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--output", "b.pdf", "expected a name ending in .csv, .json, .svg, .png, got "),
        ("--seqlen", "abc", LENGTHS),
        ("--seqlen", "0", LENGTHS),
        ("--seqlen", "512,", LENGTHS),
        ("--seqlen", "512,-1", LENGTHS),
        ("--headdim", "0", COUNT),
        ("--nheads", "-2", COUNT),
        ("--tokens", "1e3", COUNT),
        ("--runs", "0", COUNT),
    ],
)
def test_what_it_cannot_do_is_an_error_that_says_what_is_expected(capsys, option, value, words):
    """--seqlen abc was an "invalid _lengths value", and --runs 0 a traceback."""
    with pytest.raises(SystemExit):
        __main__.main([*SMALL, f"{option}={value}"])
    assert capsys.readouterr().err.endswith(f"error: argument {option}: {words}{value}\n")


def test_arguments_that_attention_does_not_take_are_no_traceback(monkeypatch, capsys):
    """--headdim 512, before any implementation took it."""
    words = "flash_attn_func cannot use its arguments:\n  - q: expected a headdim from 1 to 256, got 512"

    def flash_attn_func(*_tensors, causal):
        raise FlashAttnArgumentError(words)

    monkeypatch.setattr(_bench, "flash_attn_func", flash_attn_func)
    assert __main__.main(SMALL) == 1
    assert capsys.readouterr().err == f"{words}\n"


def test_a_large_headdim_ends_without_a_traceback(capsys):
    large = ["bench", "--seqlen=4", "--nheads=1", "--headdim=512", "--tokens=4", "--runs=1"]
    status = __main__.main(large)
    said = capsys.readouterr()
    assert "forward 4" in said.out if status == 0 else "headdim" in said.err


def test_without_matplotlib_it_says_what_to_install_before_it_measures(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(_bench, "run", lambda *_, **__: pytest.fail("measured"))
    assert __main__.main([*SMALL, "--output", str(tmp_path / "b.svg")]) == 1
    said = capsys.readouterr().err
    assert "plotting needs matplotlib, which failed to import" in said
    assert "next: python -m pip install matplotlib" in said


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress():
    shown, hidden = Terminal(), io.StringIO()
    assert list(terminal.progress("abc", "bench", shown)) == list("abc")
    assert "[##########--------------------] 1/3 bench b" in shown.getvalue()
    assert shown.getvalue().endswith("\r\x1b[K")
    assert list(terminal.progress("abc", "bench", hidden)) == list("abc")
    assert hidden.getvalue() == ""


def test_selftest_needs_a_gpu(capsys, tmp_path):
    assert __main__.main(["selftest", "--report", str(tmp_path / "r.json")]) == 1
    said = capsys.readouterr().err
    assert (
        said == "selftest needs an AMD GPU that PyTorch can use\n  next: python -m flash_attn_rocm doctor\n"
    )
    assert not (tmp_path / "r.json").exists()


def test_commands_say_what_an_import_would(monkeypatch, capsys):
    monkeypatch.setattr(wheel, "PROBLEMS", (requirements.unmet_torch("2.4.0"),))
    for command in ("bench", "selftest"):
        assert __main__.main([command]) == 1
        assert "PyTorch 2.4.0 is too old" in capsys.readouterr().err


def test_a_picture_needs_only_rows():
    assert plot.SUFFIXES == (".svg", ".png")

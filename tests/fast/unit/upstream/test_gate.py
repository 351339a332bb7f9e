"""The gate: kernels of CK's whose machine code lacks the matrix products."""

import pytest

from tests.tools.made.wheels import ARCHS, good_files, library, write_wheel
from wheel_builder.base.errors import GateError, WheelBuilderError
from wheel_builder.cli.main import error_text, main
from wheel_builder.extras.upstream.gate import UNITS, check_listing
from wheel_builder.extras.upstream.gate_files import device_code_of, judged
from wheel_builder.machine_code.disassembly.listing import Listing
from wheel_builder.tables.archs import known_archs

FORWARD = "_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelINS_28BlockFmhaPipelineQRKSVSAsyncEEEJEEEvDpT2_"
BACKWARD = "_ZN7ck_tile6kentryILi256ELi1ENS_19FmhaBwdDQDKDVKernelINS_4PipeEEEJEEEvDpT2_"
APPEND = "_ZN7ck_tile6kentryILi256ELi2ENS_21FmhaFwdAppendKVKernelINS_4PipeEEEJEEEvDpT2_"
MFMA = "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]"
WMMA = "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]"
DOT2 = "v_dot2c_f32_f16_e32 v0, v1, v2"


def listing(arch, *functions):
    """A disassembly as llvm-objdump prints it: each function a name and its instructions."""
    lines = ["", "0.hsaco:\tfile format elf64-amdgpu", "", "Disassembly of section .text:", ""]
    for number, (name, *instructions) in enumerate(functions):
        lines.append(f"{0x1900 + 256 * number:016x} <{name}>:")
        lines += [
            f"\t{text:<60}// 000000001900: D3CD0000" for text in ("s_load_dword s0, s[0:1]", *instructions)
        ]
    return Listing(arch, "\n".join(lines), "")


@pytest.mark.parametrize(
    ("arch", "instruction"),
    [("gfx90a", MFMA), ("gfx942", MFMA), ("gfx1100", WMMA), ("gfx1151", WMMA), ("gfx1030", DOT2)],
)
def test_kernels_with_their_products_pass(arch, instruction):
    (forward, backward) = check_listing(
        listing(arch, (FORWARD, *[instruction] * 2), (BACKWARD, *[instruction] * 5))
    )
    assert (forward.found, forward.problem) == (2, "")
    assert (backward.kind, backward.found, backward.problem) == ("FmhaBwdDQDKDVKernel", 5, "")


def test_each_matrix_unit_of_the_tables_has_its_instructions():
    assert set(UNITS) == {arch.isa.unit for arch in known_archs().values()}


@pytest.mark.parametrize(
    ("arch", "instructions", "words"),
    [
        ("gfx942", [MFMA], "FmhaFwdKernel for gfx942: 1 of at least 2 MFMA instructions"),
        ("gfx942", [WMMA, WMMA], "0 of at least 2 MFMA instructions"),
        ("gfx1100", [], "0 of at least 2 WMMA instructions"),
        ("gfx1030", ["v_fma_f32 v0, v1, v2, v3"], "0 of at least 2 dot product instructions"),
        ("gfx1030", [MFMA, MFMA], "0 of at least 2 dot product instructions"),
        ("gfx803", [], "gfx803 has no matrix unit that we know"),
        ("gfx942", ["s_nop 0  // not a v_mfma_f32"], "0 of at least 2 MFMA instructions"),
    ],
)
def test_kernels_without_them_are_refused_in_words(arch, instructions, words):
    (found,) = check_listing(listing(arch, (FORWARD, *instructions)))
    assert words in found.problem
    assert found.problem.endswith("it would run and give wrong numbers")


def test_products_of_another_function_do_not_count():
    (found,) = check_listing(listing("gfx942", (FORWARD,), ("helper", MFMA, MFMA)))
    assert found.found == 0
    assert found.problem


def test_kernels_that_multiply_nothing_need_none():
    (found,) = check_listing(listing("gfx1030", (APPEND,)))
    assert (found.kind, found.problem) == ("FmhaFwdAppendKVKernel", "")


def test_a_refusal_names_each_problem_once_and_what_to_do():
    kernels = check_listing(listing("gfx1030", (FORWARD,), (f"{FORWARD}2",), (APPEND,)))
    with pytest.raises(GateError) as failure:
        judged(kernels)
    assert failure.value.message.startswith("2 of 3 kernels are refused\n  - FmhaFwdKernel for gfx1030")
    assert len(failure.value.problems) == 1
    assert "leave the arch out of GPU_ARCHS" in failure.value.advice


def test_what_passes_is_told():
    assert judged(check_listing(listing("gfx942", (FORWARD, MFMA, MFMA)))) == (
        "arch    kernel         matrix instructions\ngfx942  FmhaFwdKernel                    2\n"
    )


def test_files_without_cks_kernels_are_no_pass():
    with pytest.raises(GateError, match="no kernel of CK's attention"):
        judged(check_listing(listing("gfx942", ("fa_fwd_fp16_d64", MFMA))))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.o", b""),
        ("x.o", b"no ELF at all"),
        ("x.o", b"\x7fELF"),
        ("x.o", library(sections={})),
        ("x.whl", b"no wheel"),
    ],
)
def test_files_that_hold_no_device_code_are_refused_by_name(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(WheelBuilderError) as failure:
        device_code_of(tmp_path / name)
    assert name in error_text(failure.value)


def test_a_wheel_is_opened(tmp_path):
    """It was read as if it were an ELF file."""
    wheel = write_wheel(tmp_path, good_files())
    assert {code.gfx for code in device_code_of(wheel)} == set(ARCHS)


def test_a_wheel_without_device_code_is_told_as_such(tmp_path):
    files = {name: data for name, data in good_files().items() if not name.endswith(".so")}
    wheel = write_wheel(tmp_path, files)
    with pytest.raises(GateError, match="it has no device code") as failure:
        device_code_of(wheel)
    assert wheel.name in failure.value.message


def test_a_missing_file_is_told_as_such(capsys):
    """The advice was to make room on the disk."""
    with pytest.raises(SystemExit):
        main(["gate", "nowhere.o"])
    assert "there is no file 'nowhere.o'" in capsys.readouterr().err

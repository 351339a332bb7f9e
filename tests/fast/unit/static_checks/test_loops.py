"""Loops by their paths, and their bytes beside the instruction cache (32 KiB on gfx908, 64 on gfx942)."""

import pytest

from tests.tools.made import assembly
from tests.tools.made.longer import longer
from wheel_builder.machine_code.disassembly.blocks import longest_loop
from wheel_builder.machine_code.static_checks.check import check_loops

NOP = "s_nop 0"  # 4 bytes, as all instructions here
PLACES = 8192  # of 4 bytes, in 32 KiB


def kernel(*lines):
    """Jumps are pairs: the mnemonic, and the number of the line to go to."""
    texts = (
        line if isinstance(line, str) else f"{line[0]} {(line[1] - number - 1) % 2**16}"
        for number, line in enumerate(lines)
    )
    return assembly.kernel(*texts)


def looping(count):
    """A loop of ``count`` instructions after one other."""
    return kernel(NOP, *[NOP] * (count - 1), ("s_cbranch_scc0", 1))


def test_code_without_a_jump_back_has_no_loop():
    assert longest_loop(kernel(NOP, ("s_cbranch_scc0", 3), NOP)) == 0


def test_a_jump_back_to_code_that_ends_is_no_loop():
    """Compilers put code anywhere: 1 and 2 come after 4."""
    assert longest_loop(kernel(("s_branch", 3), NOP, "s_endpgm", NOP, ("s_branch", 1))) == 0


def test_a_loop_of_one_instruction():
    assert longest_loop(kernel(NOP, ("s_cbranch_scc0", 1))) == 4


def test_a_loop_has_its_rare_branches_wherever_they_are():
    lines = [NOP, ("s_cbranch_scc1", 5), NOP, ("s_cbranch_vccz", 0), "s_endpgm", NOP, ("s_branch", 2)]
    assert longest_loop(kernel(*lines)) == 6 * 4


def test_a_loop_has_the_loops_inside_of_it():
    lines = [NOP, NOP, ("s_cbranch_scc0", 1), NOP, ("s_cbranch_vccz", 0), "s_endpgm"]
    assert longest_loop(kernel(*lines)) == 5 * 4


def test_the_longest_of_two_loops_in_turn():
    lines = [NOP, ("s_cbranch_scc0", 0), NOP, NOP, ("s_cbranch_scc0", 2), "s_endpgm"]
    assert longest_loop(kernel(*lines)) == 3 * 4


@pytest.mark.parametrize(("arch", "count"), [("gfx908", PLACES), ("gfx942", 2 * PLACES)])
def test_a_loop_as_long_as_the_instruction_cache_fits(arch, count):
    assert check_loops(arch, looping(count)) == ()
    (finding,) = check_loops(arch, looping(count + 1))
    assert finding.text == f"a loop has {4 * count + 4} bytes; the instruction cache has {4 * count}"
    assert finding.fails


def test_a_listing_made_longer_keeps_its_jumps():
    """A jump over the new instructions, one back over them, and one to the instruction behind them."""
    texts = ["s_branch 2", NOP, "s_cbranch_scc0 65533", "s_branch 65534", "s_endpgm"]
    lines = [f"\t{text} // {4 * n:012X}: BF800000\n" for n, text in enumerate(texts)]
    found = longer("".join(lines), 8, 2).splitlines()
    assert [line.split(" //")[0].strip() for line in found] == [
        "s_branch 4", NOP, NOP, NOP, "s_cbranch_scc0 65531", "s_branch 65534", "s_endpgm"
    ]  # fmt: skip
    assert [line.split()[-1] for line in found] == [
        "BF800004", "BF800000", "BF800000", "BF800000", "BF80FFFB", "BF80FFFE", "BF800000"
    ]  # fmt: skip

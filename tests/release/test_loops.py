"""Loops of released kernels made longer than the instruction cache. No wheel could ship one."""

import pytest

from tests.tools.made.longer import DWORD, longer
from tests.tools.mutation.mutants import name_of
from wheel_builder.machine_code.disassembly.blocks import longest_loop
from wheel_builder.machine_code.disassembly.kernels import parse_disassembly
from wheel_builder.machine_code.static_checks.check import check_loops
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel
from wheel_builder.tables.archs import arch_named, known_archs

KERNEL = "fa_decode_fp16_d64"


@pytest.fixture(scope="module")
def listings(release, builder, context):
    return disassemble_wheel(release.wheel, builder, store=context.store, log=context.log("disassembly")).path


def parsed(text):
    [kernel] = parse_disassembly(text)
    return kernel


def inside(text):
    """An address in the longest loop. A jump far back may also go to code that a compiler put early."""
    kernel = parsed(text)
    back = (each for each in kernel.instructions if each.target is not None and each.target <= each.address)
    places = [each.address for each in sorted(back, key=lambda each: each.target - each.address)]
    most = longest_loop(kernel) + DWORD
    return next(place for place in places if longest_loop(parsed(longer(text, place, 1))) == most)


@pytest.mark.parametrize("arch", known_archs())
def test_a_loop_that_exceeds_the_cache_by_one_instruction_is_refused(listings, arch):
    texts = (file.read_text() for file in sorted(listings.glob(f"{arch}-*.s")))
    text = next(text for text in texts if name_of(text) == KERNEL)
    place, own = inside(text), longest_loop(parsed(text))
    fitting = (arch_named(arch).model.instruction_cache - own) // DWORD
    for more in (fitting, fitting + 1):
        kernel = parsed(longer(text, place, more))
        assert longest_loop(kernel) == own + DWORD * more
        assert len(check_loops(arch, kernel)) == more - fitting

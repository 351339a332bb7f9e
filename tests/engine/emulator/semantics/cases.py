"""All lines of all tables, as cases of one arch."""

import functools
import re

from tests.engine.emulator.semantics.machine import EXTENDS
from tests.engine.emulator.semantics.narrow import byte_ops, conversion_ops, product_ops
from tests.engine.emulator.semantics.ops import (
    atomic_ops,
    compare_ops,
    control_ops,
    division_ops,
    dpp_ops,
    dual_ops,
    float_ops,
    integer_ops,
    lane_ops,
    lds_ops,
    mask_ops,
    matrix_ops,
    memory_ops,
    packed_ops,
    scalar_ops,
)
from tests.engine.emulator.semantics.scalars import scalar_case
from tests.engine.emulator.semantics.table import Op, ScalarOp, spread
from tests.engine.emulator.semantics.vectors import vector_case

TABLES = (
    integer_ops,
    float_ops,
    packed_ops,
    compare_ops,
    division_ops,
    scalar_ops,
    lane_ops,
    dpp_ops,
    dual_ops,
    mask_ops,
    control_ops,
    memory_ops,
    lds_ops,
    atomic_ops,
    matrix_ops,
    conversion_ops,
    byte_ops,
    product_ops,
)
# Encodings of one mnemonic, as the disassembler names them.
ENCODING = re.compile(r"_(e32|e64|e64_dpp|dpp|sdwa)$")


@functools.cache
def lines(arch):
    """Lines of an arch, except those shared with the arch that it extends."""
    every = [line for table in TABLES for line in table.OPS if arch in spread(line.names)]
    base = EXTENDS.get(arch, "")
    return [line for line in every if spread(line.names).get(base) != spread(line.names)[arch]]


def make(line, arch, every=1):
    """``every``: computes one of that many waves of an ``Op``."""
    if isinstance(line, Op):
        return vector_case(line, arch, every)
    if isinstance(line, ScalarOp):
        return scalar_case(line, arch)
    return line.case(arch)


def plain(line, arch):
    """A line's mnemonic, encodings merged."""
    return ENCODING.sub("", ENCODING.sub("", spread(line.names)[arch]))


@functools.cache
def of(arch, every=1):
    """Cases by mnemonic. ``every`` as for ``make``. Lines new with this arch are computed in full."""
    found = {}
    for line in lines(arch):
        first = next(iter(spread(line.names)))
        case = make(line, arch, 1 if arch == first else every)
        found.setdefault(plain(line, arch), []).append(case)
    return found


@functools.cache
def tested(arch):
    """Mnemonics with a vector, of this arch or of the one it extends."""
    own = {plain(line, arch) for line in lines(arch)}
    return own | tested(EXTENDS[arch]) if arch in EXTENDS else own

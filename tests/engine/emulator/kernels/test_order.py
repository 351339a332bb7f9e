"""The order of workgroups changes no result: with the dies of a GPU, heads in turn, the last block first.

Dies: none, as many as a device has, and a number with a remainder.
"""

from dataclasses import replace

import pytest

from tests.engine.emulator.kernels.backward import FUSED, MASKED, SEPARATE, run
from tests.engine.emulator.kernels.backward import Call as Backward
from tests.engine.emulator.kernels.backward import Case as Gradients
from wheel_builder.machine_code.emulator.attention import Case, Order, make_call, run_call
from wheel_builder.machine_code.emulator.command import forward_workgroup, open_machine
from wheel_builder.machine_code.emulator.machine import Options

ARCHS = ("gfx942", "gfx950", "gfx1100")  # two with several dies, whose loops of gradients differ
DIES = (0, 8, 5)
GRADIENTS = {
    "causal": Gradients(((150, 140), (150, 140)), nheads=4, nheads_k=2, right=0),
    "window": Gradients(((150, 140),), nheads=3, nheads_k=3, left=70, right=20),
    "ragged": Gradients(((150, 31), (2, 0), (90, 140)), ragged=True, nheads=4, nheads_k=4, right=0),
    "all": Gradients(((70, 140),), nheads=8, nheads_k=4),
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(("heads", "heads_k"), [(6, 2), (12, 3)])
def test_of_a_forward(workshop, device_code, arch, causal, heads, heads_k):
    case = Case("fp16", 64, 300, 97, batch=2, nheads=heads, nheads_k=heads_k, causal=causal)
    code = (device_code(arch) / f"{case.kernel}.hsaco").read_bytes()
    machine, tile = open_machine(code, case.kernel, workshop), forward_workgroup(arch, case)
    found = set()
    for together in in_turn(heads):
        for dies in DIES:
            call = make_call(case, Order(dies, together, last_first=causal and dies > 0))
            run_call(machine, call, tile, Options(checks=())).raise_on_findings()
            found.add((call.out.memory.read(), call.lse.read()))
    [(out, _)] = found
    assert b"\xa5" * 64 not in out  # all of it is written


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("ops", [SEPARATE, FUSED, MASKED], ids=lambda ops: ops[1])
def test_of_gradients(machine_of, arch, ops, name):
    """Fused kernels add dq up in any order, so only dk and dv have equal bits."""
    case = GRADIENTS[name]
    if ops == MASKED and case.ragged:
        case = replace(case, ragged=False, lengths=case.lengths[:1])  # a call with a mask is dense
    call, found = Backward(case, "fp16", 64), set()
    for together in in_turn(case.nheads_k):
        for dies in DIES:
            call.renew()
            run(call, machine_of(arch), arch, ops=ops, order=Order(dies, together, last_first=dies > 0))
            assert call.problems() == []
            found.add(call.found()[ops == FUSED :])
    assert len(found) == 1


def in_turn(heads):
    """log2 of the numbers of heads that can start in turn."""
    return [n for n in range(3) if heads % (1 << n) == 0]

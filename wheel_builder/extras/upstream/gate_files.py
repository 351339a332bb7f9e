"""``scripts/wheel-builder gate``: are the matrix products in the machine code of CK's kernels?"""

from collections.abc import Sequence
from pathlib import Path

from wheel_builder.base.errors import GateError, WheelBuilderError
from wheel_builder.base.words import aligned, shown
from wheel_builder.extras.upstream.gate import Checked, check_listing
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.fatbin import CodeObject, machine_arch
from wheel_builder.machine_code.disassembly.listing import Listing, list_code, tools_in
from wheel_builder.machine_code.emulator.sources import contents
from wheel_builder.matrix.model import Plan
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.tables.archs import known_archs

NAME_ONE = "name a wheel, a library or objects of flash-attn that were built for AMD GPUs"


def gate(paths: Sequence[Path], plan: Plan, context: RunContext, *, plain: bool | None = None) -> str:
    """A line for each kernel of the files. Raises ``GateError`` with every refused one."""
    job = jobs_to_build(plan)[0]
    objects = [code for path in paths for code in device_code_of(path)]
    steps = begin(context, plan.package)
    builder = builder_image(steps, job)

    def work(_: Shown) -> Sequence[Listing]:
        tools = tools_in(builder.result)
        return list_code(objects, tools=tools, store=context.store, log=context.log("listing"))

    listings = steps.add("gate", work, weight=20)
    steps.run(plain=plain)
    return judged([kernel for listing in listings.result for kernel in check_listing(listing)])


def device_code_of(path: Path) -> tuple[CodeObject, ...]:
    """The code objects in a wheel, a library or an object, or the file itself.

    Raises ``GateError`` for a file without device code, ``EmulatorError`` and others for unreadable ones.
    """
    try:
        what, found = contents(path)
        codes = tuple(CodeObject(machine_arch(read_elf(data)), data) for data in found)
    except WheelBuilderError as error:
        error.add_note(f"  file: {shown(path)}")
        raise
    if not codes:
        title = f"{what}: it has no device code"
        raise GateError(title, ["expected kernels for AMD GPUs"], advice=NAME_ONE)
    return codes


def judged(kernels: Sequence[Checked]) -> str:
    """The table. Raises ``GateError`` with all refused kernels, or for files without CK kernels."""
    if not kernels:
        title = "no kernel of CK's attention is in the files"
        raise GateError(title, ["expected functions such as FmhaFwdKernel"], advice=NAME_ONE)
    if problems := [kernel.problem for kernel in kernels if kernel.problem]:
        title = f"{len(problems)} of {len(kernels)} kernels are refused"
        ours = f"flash-attn-rocm has kernels for {', '.join(known_archs())}"
        raise GateError(title, dict.fromkeys(problems), advice=f"leave the arch out of GPU_ARCHS; {ours}")
    rows = [("arch", "kernel", "matrix instructions")]
    rows += [(kernel.arch, kernel.kind, str(kernel.found)) for kernel in kernels]
    return "\n".join(aligned(rows, left=2)) + "\n"

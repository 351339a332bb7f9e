"""The doctor's facts about this wheel.

``PROBLEMS`` keep the package from importing. With any of them, all other facts are empty.
"""

from collections.abc import Iterator

from flash_attn_rocm.machine import remembered, requirements
from flash_attn_rocm.machine.requirements import Step

PROBLEMS = tuple(requirements.unmet())
if not PROBLEMS:
    try:
        from flash_attn_rocm.library import host, plans
    except ImportError as error:
        PROBLEMS = (Step(str(error), (requirements.REMOVE,)),)


def archs() -> tuple[str, ...]:
    """The archs of the wheel's machine code."""
    if PROBLEMS:
        return ()
    return tuple(dict.fromkeys(arch for each in host.instances() for arch in each.archs))


def served() -> tuple[tuple[str, str], ...]:
    """The GPUs running the wheel's machine code, each with its arch."""
    return () if PROBLEMS else tuple(host.gpus().items())


def gpu_reasons(arch: str) -> tuple[tuple[str, str], ...]:
    """For each dtype and head dim of the wheel, the reason against a kernel for this arch, or ``""``."""
    if PROBLEMS:
        return ()
    forward = (each for each in host.instances() if each.op == plans.FORWARD)
    wanted = dict.fromkeys((each.dtype, each.head_dim) for each in forward)
    return tuple(
        (f"{dtype} head_dim {head_dim}", "" if found.path else found.reason)
        for dtype, head_dim in wanted
        for found in (plans.typical(arch, dtype, head_dim),)
    )


def failures() -> Iterator[tuple[str, str]]:
    """Failures at first use, each with the file remembering it."""
    for path, found in () if PROBLEMS else remembered.failures():
        yield f"{found.family}, {found.arch}: {found.words}", str(path)

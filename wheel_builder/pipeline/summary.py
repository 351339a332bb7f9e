"""The text at the end of a release; pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wheel_builder.base.words import shown
from wheel_builder.machine_code.emulator.command import NOT_A_GPU
from wheel_builder.pipeline.release import Released
from wheel_builder.verify.wine import HOW, NOT_EXECUTED

DIRTY = "built from a checkout with changes, for this machine only: publish and upload require a commit"
REPLACED = (
    "it replaces an earlier wheel of this version in the local index; if that wheel is installed, add "
    "--force-reinstall --no-deps to the line above"
)
WINDOWS = "not yet run on Windows; a report of python -m flash_attn_rocm selftest is welcome"


def release_text(released: Sequence[Released], machine_cpu_seconds: float) -> str:
    """The wheels, their costs, and the next commands."""
    return "\n".join([*map(_wheel_text, released), _cost_text(machine_cpu_seconds)])


def _wheel_text(one: Released) -> str:
    windows = one.job.for_windows
    where = "by pip for Windows under wine" if windows else "by pip in a fresh container"
    archs = {arch: one.record["archs"][arch] for arch in one.job.archs}
    others = [arch for arch, found in archs.items() if not found["passed"]]
    executed = {arch: found for arch, found in archs.items() if found["passed"]}
    per_arch = ", ".join(f"{arch} {seconds:.0f}" for arch, seconds in one.cpu_seconds.items())
    seconds = one.first_use["seconds_to_first_result"]
    lines = [
        f"wheel     {shown(one.wheel)}",
        f"size      {one.bytes} bytes",
        f"sha256    {one.sha256}",
        f"archs     {' '.join(one.job.archs)}",
        f"compiled  in CPU-seconds: {per_arch}",
        *_cache_lines(one.cache),
        f"checked   installed from the index {where}; first result, on a CPU, after {seconds} s",
        *_executed_lines(executed, HOW if windows else NOT_A_GPU),
        *([f"          {' '.join(others)} {NOT_EXECUTED}"] if others else []),
        f"install   {one.install_line}",
    ]
    if not windows:
        lines.append(f"image     scripts/wheel-builder runtime-image {shown(one.wheel)}")
    if windows:
        lines.append(f"note      {WINDOWS}")
    if one.replaced:
        lines.append(f"note      {REPLACED}")
    if one.dirty:
        lines.append(f"note      {DIRTY}")
    return "\n".join(lines) + "\n"


def _cache_lines(cache: tuple[int, int]) -> Iterator[str]:
    """The share of this run's code objects from the compiler cache."""
    hits, total = cache[0], sum(cache)
    if total:
        yield f"cache     had {hits} of {total} code objects ({hits / total:.0%})"


def _executed_lines(archs: Mapping[str, Any], how: str) -> Iterator[str]:
    """For each arch: launches, and the largest error as a share of the allowed one."""
    yield f"{how.replace('executed ', 'executed  ', 1)}; errors against float64, of what is allowed:"
    for arch, found in archs.items():
        nearest = [instance["nearest_to_its_bound"] for instance in found["instances"].values()]
        # Kernels that are compared bit for bit have no allowed error.
        used = max((case["error"] / case["allowed"] for case in nearest if case["allowed"]), default=0.0)
        launches = sum(found["launches"].values())
        yield f"          {arch} {launches} launches, at most {used:.0%}, no finding"


def _cost_text(seconds: float) -> str:
    return f"this run cost {seconds / 60:.1f} CPU-minutes on the whole machine"

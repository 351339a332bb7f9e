"""The size of a runtime image, and the budget for everything except base and torch."""

import json
from collections.abc import Mapping
from pathlib import Path

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Runner
from wheel_builder.images import docker

MIB = 1 << 20
# HIP's runtime, its LLVM (used as a compiler at run time), Python, NumPy and the wheel.
BUDGET_MIB = 400
# The installed files of torch and its dependencies, except torch's optional ones.
MEASURE_TORCH = """
import importlib.metadata as metadata, json, pathlib, re
todo, done, size = ["torch"], set(), 0
while todo:
    name = todo.pop()
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    if found.name in done:
        continue
    done.add(found.name)
    todo += [re.match(r"[\\w.-]+", line)[0] for line in found.requires or () if "extra ==" not in line]
    tops = {path.parts[0] for path in found.files if path.parts[0] != ".."}
    roots = [pathlib.Path(found.locate_file(top)) for top in tops]
    files = [file for root in roots for file in (root.rglob("*") if root.is_dir() else [root])]
    size += sum(file.lstat().st_size for file in files if not file.is_dir())
print(json.dumps(size))
"""


def measure(ref: str, base: str, *, log: Path, run: Runner) -> Mapping[str, int]:
    """``bytes`` of the image, of its ``base``, of ``torch`` in it, and ``above``, the rest."""
    whole, below = (_size(name, run) for name in (ref, base))
    argv = ["python", "-c", MEASURE_TORCH]
    torch = int(json.loads(docker.run_in(ref, argv, log=log, run=run).stdout.splitlines()[-1]))
    return {"bytes": whole, "base": below, "torch": torch, "above": whole - below - torch}


def refuse_too_large(ref: str, size: Mapping[str, int]) -> None:
    """Raise ``ImageError`` when ``above`` exceeds the budget."""
    if size["above"] <= BUDGET_MIB * MIB:
        return
    message = (
        f"{ref} has {size['above'] / MIB:.0f} MiB above its base and torch; the budget is {BUDGET_MIB}\n"
    )
    message += f"  found {size_text(size)}"
    raise ImageError(message, advice=f"show the size of each layer: docker history {ref}")


def size_text(size: Mapping[str, int]) -> str:
    """One line for people."""
    parts = (f"{name} {size[key] / MIB:.0f}" for name, key in (("base", "base"), ("torch", "torch")))
    return f"{size['bytes'] / MIB:.0f} MiB: {', '.join(parts)}, all else {size['above'] / MIB:.0f}"


def _size(ref: str, run: Runner) -> int:
    found = docker.inspect_image(ref, run=run)
    if found is None:
        message = f"{ref}: the engine does not have this image"
        raise ImageError(message, advice="is another process removing images? then run again")
    return found.size

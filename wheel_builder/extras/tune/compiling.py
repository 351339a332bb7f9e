"""Candidates compiled beside each other in the builder image, each stored by its rows.

A stored candidate is independent of the rows of other kernels: a changed row recompiles its own kernel only.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_tree
from wheel_builder.build.device_code import source_mounts
from wheel_builder.extras.tune.rows import Kernel, Rows
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.generated import TILES
from wheel_builder.tables.row_ids import settings
from wheel_builder.tables.tiles import cpp_head_dim, file_of

STAGE = "tuned-code"
SCRIPT = "/src/kernels/build/instances/candidates.py"
CODE, WORDS = "kernel.hsaco", "refused.txt"
# What a candidate's machine code depends on, besides its rows and the compiler.
SOURCES = (
    "kernels/build/instances/build.py",
    "kernels/build/instances/candidates.py",
    "kernels/build/instances/generate.py",
    "kernels/device",
    "kernels/generated/device/archs.inc",
    "kernels/generated/device/kinds.inc",
    "kernels/generated/device/structs.inc",
)


@dataclass(frozen=True)
class Compiled:
    """A candidate's code object, or the compiler's words if it has none."""

    code: bytes = b""
    words: str = ""


@dataclass(frozen=True)
class Compilers:
    """The builder image, this checkout and the place of results. ``jobs`` compilers at a time."""

    image: Artifact
    checkout: Path
    store: Store
    jobs: int
    log: Path
    run: Runner = run

    @cached_property
    def sources(self) -> str:
        """The digest of ``SOURCES``."""
        return sha256_tree(self.checkout, [self.checkout / source for source in SOURCES])

    def inputs(self, kernel: Kernel, rows: Rows) -> Mapping[str, Any]:
        """What a stored candidate depends on."""
        return {
            "arch": kernel.arch,
            "kernel": kernel.name,
            "rows": [*map(settings, rows.used)],
            "image": self.image.facts["image_id"],
            "sources": self.sources,
        }


def compile_all(kernel: Kernel, candidates: Sequence[Rows], by: Compilers) -> tuple[Compiled, ...]:
    """The candidates' code, in their order. The compilers run once for all that are not stored."""
    inputs = [by.inputs(kernel, rows) for rows in candidates]
    with tempfile.TemporaryDirectory(prefix=f"flash-attn-rocm-{STAGE}-") as folder:
        missing = {
            rows.id_of(kernel): rows
            for rows, key in zip(candidates, inputs, strict=True)
            if by.store.find(STAGE, key) is None
        }
        if missing:
            _run(kernel, missing, Path(folder), by)

        def make(name: str, out: Path) -> Mapping[str, Any]:
            code, words = (Path(folder, "out", f"{name}{suffix}") for suffix in (".hsaco", ".txt"))
            shutil.copyfile(*((code, out / CODE) if code.is_file() else (words, out / WORDS)))
            return {"arch": kernel.arch, "kernel": kernel.name, "row": name}

        names = [rows.id_of(kernel) for rows in candidates]
        made = [
            by.store.get_or_make(STAGE, key, partial(make, name))
            for name, key in zip(names, inputs, strict=True)
        ]
    return tuple(map(_compiled, made))


def _compiled(made: Artifact) -> Compiled:
    if (code := made.path / CODE).is_file():
        return Compiled(code=code.read_bytes())
    return Compiled(words=(made.path / WORDS).read_text(encoding="utf-8", errors="replace").strip())


def _run(kernel: Kernel, candidates: Mapping[str, Rows], folder: Path, by: Compilers) -> None:
    """Compile into ``folder/out``."""
    for name, rows in candidates.items():
        file = folder / "rows" / name / TILES.relative_to("kernels") / file_of(kernel.op, kernel.head_dim)
        file.parent.mkdir(parents=True)
        file.write_text(text_of(kernel, rows), encoding="utf-8")
    out = folder / "out"
    out.mkdir()
    folder.chmod(0o755)
    argv = ["python3", SCRIPT, "--arch", kernel.arch, "--kernel", kernel.name]
    argv += ["--rows", "/rows", "--out", "/out", "--jobs", str(by.jobs)]
    mounts = [*source_mounts(by.checkout), Mount(folder / "rows", "/rows"), Mount(out, "/out", writable=True)]
    with open_to_all(out):
        run_in(
            by.image.facts["ref"], argv, mounts=mounts, env={"PYTHONPATH": "/src"}, user=NOBODY, log=by.log,
            run=by.run,
        )  # fmt: skip


def text_of(kernel: Kernel, rows: Rows) -> str:
    """The file of rows that a candidate's translation unit includes."""
    return cpp_head_dim(kernel.op, {arch_named(kernel.arch).isa.name: [*rows.used]})

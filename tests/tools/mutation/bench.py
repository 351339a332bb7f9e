"""A mutation run's parts of the pipeline: images, the fake HIP runtime, the wheel's disassembly."""

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernels.build.machine import default_jobs, usable_cores, usable_memory
from wheel_builder.base.store import Artifact, locked
from wheel_builder.files.device.library import device_code
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, read_wheel
from wheel_builder.machine_code.disassembly.resources import read_resources
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image, verify_image
from wheel_builder.pipeline.verification import build_emulator, job_of

CHECKOUT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Bench:
    """``wheel``, the ROCm version of its compiler, and its environment.

    The environment has a builder image, verify image, fake HIP runtime and disassembly.
    """

    wheel: Path
    rocm: str
    archs: tuple[str, ...]
    builder: Artifact
    tester: Artifact
    fake_hip: Artifact
    disassembly: Artifact
    context: RunContext

    @property
    def folder(self):
        return self.context.build / "mutation"

    @contextmanager
    def alone(self, arch):
        """Blocks other mutation runs of the arch: they write into the same folders."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / f"{arch}.lock"):
            yield

    def mutants(self, arch):
        """The folder with a folder for each mutant."""
        return self.folder / f"mutants-{arch}"

    @cached_property
    def codes(self):
        """Each code object, by arch and kernel."""
        codes = device_code(read_wheel(self.wheel, max_mib=MAX_READ_MIB))
        return {(each.gfx, name): each.data for each in codes for name in read_resources(each.data)}


def set_up(wheel):
    """Everything for the wheel, including files of earlier runs."""
    context = RunContext(
        checkout=CHECKOUT,
        build=CHECKOUT / "build",
        dist=CHECKOUT / "dist",
        index=CHECKOUT / "dist" / "index",
        jobs=default_jobs(usable_cores(), usable_memory()),
        install_engine=True,
    )
    matrix = load_matrix(CHECKOUT / "matrix.yaml")
    job = job_of(wheel, matrix)
    steps = begin(context, matrix.package)
    tester, builder = verify_image(steps), builder_image(steps, job)
    fake_hip = build_emulator(steps, job, builder)
    steps.run()
    code = disassemble_wheel(wheel, builder.result, store=context.store, log=context.log("mutation"))
    made = builder.result, tester.result, fake_hip.result
    return Bench(wheel, job.rocm.version, tuple(job.archs), *made, code, context)


def say(words):
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)  # noqa: T201

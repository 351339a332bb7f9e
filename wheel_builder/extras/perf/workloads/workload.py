"""What is run for the models: one workgroup of one kernel's launch, and its useful work.

A foreign kernel comes with a ``<code object>.launch.json`` beside it, which ``read_workloads`` reads:

    [{"label": "triton 3.9.0, 128x64", "kernel": "forward", "op": "fwd", "dtype": "fp16", "head_dim": 128,
      "grid": [4, 1, 1], "block": [256, 1, 1], "dynamic_lds": 32768, "workgroup": 0, "flop": 33554432,
      "arguments": [{"name": "q", "dtype": "fp16", "shape": [1, 512, 128], "fill": "normal"},
                    {"kind": "i32", "value": 512}]}]

Arguments are in the kernel's order, laid out with natural alignment; tensors are contiguous.
"""

import math
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from wheel_builder.base.errors import PerfError
from wheel_builder.machine_code.emulator.formats import DTYPES, encode
from wheel_builder.machine_code.emulator.machine import Launch
from wheel_builder.machine_code.emulator.memory import Argument, Memory, Scalar

SUFFIX = ".launch.json"
BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "i32": 4, "bool": 1}
SCALARS = {"i32": "i", "i64": "q", "f32": "f", "f64": "d"}
STRICT = ConfigDict(frozen=True, extra="forbid")
Size = Annotated[int, Field(gt=0)]
Dtype = Literal["fp16", "bf16", "fp32", "i32", "bool"]
Memories = Mapping[str, Memory]


class Tensor(BaseModel):
    """A contiguous tensor.

    ``fill``: "normal" numbers, one number everywhere, "output" (unwritten), or "hidden", a mask hiding a
    random half: 0 of bool, and -inf of other dtypes.
    """

    model_config = STRICT
    name: str
    dtype: Dtype
    shape: tuple[Size, ...]
    fill: float | Literal["normal", "hidden", "output"]


class Number(BaseModel):
    """A scalar argument."""

    model_config = STRICT
    kind: Literal["i32", "i64", "f32", "f64"]
    value: float


class Described(BaseModel):
    """One entry of a launch file. ``workgroup`` is a linear index, ``flop`` this workgroup's useful work."""

    model_config = STRICT
    label: str
    kernel: str
    op: str
    dtype: str
    head_dim: Size
    grid: tuple[Size, Size, Size]
    block: tuple[Size, Size, Size]
    dynamic_lds: Annotated[int, Field(ge=0)] = 0
    workgroup: Annotated[int, Field(ge=0)] = 0
    flop: Size
    arguments: tuple[Tensor | Number, ...]


@dataclass(frozen=True)
class Workload:
    """``memory``, by name, holds the targets of pointers in ``arguments``.

    ``flop`` is computed after the run.

    ``others``: workgroups with the same work, divided differently among waves. The schedule plays them too.
    """

    label: str
    kernel: str
    op: str
    dtype: str
    head_dim: int
    launch: Launch
    arguments: tuple[Argument, ...]
    memory: Memories
    flop: Callable[[Memories], int]
    workgroup: int = 0
    others: tuple[int, ...] = ()


def read_workloads(code_object: Path) -> tuple[Workload, ...]:
    """The launches of a foreign code object. Raises ``PerfError`` with all problems of its launch file."""
    path = code_object.with_name(code_object.name + SUFFIX)
    try:
        rows = TypeAdapter(tuple[Described, ...]).validate_json(path.read_bytes())
    except OSError as error:
        title = f"{code_object}: its launches are not described"
        raise PerfError(
            title, [str(error)], advice="see perf/workloads/workload.py for the file beside it"
        ) from error
    except ValidationError as errors:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in errors.errors()]
        title = f"{path}: not a description of launches"
        raise PerfError(title, problems) from errors
    return tuple(from_description(row) for row in rows)


def from_description(row: Described) -> Workload:
    """The launch with its memory made and filled. The same description gives the same bytes."""
    made = [_argument(argument, seed) for seed, argument in enumerate(row.arguments)]
    return Workload(
        label=row.label,
        kernel=row.kernel,
        op=row.op,
        dtype=row.dtype,
        head_dim=row.head_dim,
        launch=Launch(row.grid, row.block, row.dynamic_lds),
        arguments=tuple(made),
        memory={argument.name: argument for argument in made if isinstance(argument, Memory)},
        flop=lambda _: row.flop,
        workgroup=row.workgroup,
    )


def filled(tensor: Tensor, seed: int) -> Memory:
    """The tensor in device memory."""
    count = prod(tensor.shape)
    if tensor.fill == "output":
        return Memory.output(count * BYTES[tensor.dtype], tensor.name)
    generator = random.Random(seed)  # noqa: S311 - test data
    if tensor.fill == "normal":
        values = [generator.gauss() for _ in range(count)]
    elif isinstance(tensor.fill, str):
        kinds = (0.0, 1.0) if tensor.dtype == "bool" else (-math.inf, 0.0)
        values = [kinds[generator.getrandbits(1)] for _ in range(count)]
    else:
        values = [tensor.fill] * count
    return Memory.of(encoded(values, tensor.dtype), tensor.name)


def encoded(values: list[float], dtype: str) -> bytes:
    """The numbers as the dtype's bytes."""
    if dtype in DTYPES:
        return encode(values, dtype)
    if dtype == "bool":
        return bytes(map(int, values))
    if dtype == "i32":
        return struct.pack(f"<{len(values)}i", *map(int, values))
    return struct.pack(f"<{len(values)}f", *values)


def _argument(argument: Tensor | Number, seed: int) -> Memory | Scalar:
    if isinstance(argument, Tensor):
        return filled(argument, seed)
    kind = SCALARS[argument.kind]
    return Scalar(kind, argument.value if kind in "fd" else int(argument.value))

"""Cross-compiles the Triton peer without a GPU. Its Python needs only the released triton.

    python peer.py --arch gfx942 --isa cdna3 --wave 64 --out DIR

writes a code object and its launches (extras/perf/workloads/workload.py) for each kernel of ``plan``. Folders
``counters`` and ``reference`` get each kernel of ``counters_plan`` and ``reference_plan``.

    python peer.py --arch gfx942 --isa cdna3 --wave 64 --out DIR --tiles 64x32x4 128x64x4

tries other tiles instead (queries x keys x warps, then x stages): fp16 forwards of each in a folder, for
``python -m wheel_builder perf DIR``.
"""

import argparse
import json
import math
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as cross_compile

sys.path.insert(0, str(Path(__file__).parent))
import triton_attention

SEQLEN = 512
LOG2E = math.log2(math.e)
KERNELS = {
    "fwd": triton_attention.forward,
    "fwd_masked bool": triton_attention.masked,
    "fwd_masked bias": triton_attention.masked,
    "bwd_delta": triton_attention.backward_delta,
    "bwd_dkdv": triton_attention.backward_dkdv,
    "bwd_dq": triton_attention.backward_dq,
}
# Products of rows x keys x head_dim formed by each kernel. fwd: QK, PV.
PRODUCTS = {"fwd": 2, "fwd_masked bool": 2, "fwd_masked bias": 2, "bwd_delta": 0, "bwd_dkdv": 4, "bwd_dq": 3}


@dataclass(frozen=True)
class Case:
    """One kernel to compile: its tile's queries and keys, its warps, the stages of its loads, and the
    workgroups to model.
    """

    op: str
    head_dim: int
    block_m: int
    block_n: int
    warps: int
    stages: int = 1
    dtype: str = "fp16"
    causal: bool = False
    seqlen: int = SEQLEN
    workgroups: tuple[int, ...] = (0,)

    @property
    def rows(self) -> int:
        """Rows of queries (for dK and dV: of keys) per workgroup."""
        return self.block_n if self.op == "bwd_dkdv" else self.block_m

    @property
    def kind(self) -> str:
        return f"{self.op} causal" if self.causal else self.op

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.dtype}_d{self.head_dim}".replace(" ", "_")

    @property
    def groups(self) -> int:
        return self.seqlen // self.rows

    def flop(self, workgroup: int) -> int:
        """Useful FLOP of a workgroup."""
        if self.op == "bwd_delta":
            return 2 * self.rows * self.head_dim
        whole = self.rows * self.seqlen
        seen = (
            self.rows * (self.rows * workgroup) + self.rows * (self.rows + 1) // 2 if self.causal else whole
        )
        return 2 * PRODUCTS[self.op] * seen * self.head_dim


def plan(isa: str) -> list[Case]:
    """The kernels for the table. Causal ones run the last workgroup: its rows see the most keys."""
    dtypes, dims = ("fp16", "bf16"), (64, 128)
    cases = [Case("fwd", d, *TILES["fwd"][isa][d], dtype=t) for t in dtypes for d in dims]
    tiles = TILES["fwd causal"][isa]
    causal = [Case("fwd", d, *tiles[d], dtype=t, causal=True) for t in dtypes for d in dims]
    cases += [replace(case, workgroups=(case.groups - 1,)) for case in causal]
    for op in ("fwd_masked bool", "fwd_masked bias", "bwd_delta", "bwd_dkdv", "bwd_dq"):
        cases += [Case(op, d, *TILES[op][isa][d]) for d in dims]
    return cases


def counters_plan(isa: str) -> list[Case]:
    """The kernels for the comparison with published counters: at AOTriton's tile sizes for CDNA 3."""
    known = {"causal": True, "seqlen": 2048, "workgroups": (3, 15)}
    tiles = {64: (128, 128, 4), 128: (128, 64, 4)}
    return [Case("fwd", d, *tiles[d], **known) for d in (64, 128)] if isa == "cdna3" else []


def reference_plan(isa: str) -> list[Case]:
    """Forwards at the tiles of an independent emulator's figures (test_modelled.py)."""
    return [Case("fwd", d, *tile) for d, tile in REFERENCE.get(isa, {}).items()]


# (block_m, block_n, warps, then stages) by ISA and head dim.
REFERENCE = {
    "cdna1": {64: (128, 64, 4), 128: (128, 64, 4)},
    "cdna2": {64: (128, 64, 4), 128: (128, 64, 4)},
    "cdna3": {64: (128, 64, 4), 128: (128, 64, 4)},
    "cdna4": {64: (128, 64, 4), 128: (128, 64, 4)},
    "rdna2": {64: (128, 64, 8), 128: (32, 32, 8)},
    "rdna3": {64: (128, 64, 8), 128: (128, 64, 4)},
}
# Likewise: the best of a few by the schedule.
TILES = {
    "fwd": {
        "cdna0": {64: (64, 32, 4), 128: (64, 32, 4)},
        "cdna1": {64: (128, 64, 4), 128: (64, 32, 2)},
        "cdna2": {64: (64, 32, 2), 128: (64, 64, 2)},
        "cdna3": {64: (128, 64, 4), 128: (128, 32, 4)},
        "cdna4": {64: (128, 64, 4, 2), 128: (128, 64, 4, 2)},
        "rdna2": {64: (64, 32, 4), 128: (32, 16, 4)},
        "rdna3": {64: (128, 64, 8), 128: (128, 32, 8)},
    },
    "fwd causal": {
        "cdna0": {64: (64, 32, 4), 128: (128, 32, 8)},
        "cdna1": {64: (64, 32, 2), 128: (64, 32, 2)},
        "cdna2": {64: (64, 32, 2), 128: (64, 32, 2)},
        "cdna3": {64: (128, 128, 4), 128: (128, 32, 4)},
        "cdna4": {64: (128, 64, 4, 2), 128: (128, 64, 4, 2)},
        "rdna2": {64: (32, 32, 4), 128: (32, 32, 8)},
        "rdna3": {64: (64, 64, 4), 128: (64, 32, 4)},
    },
    "bwd_delta": {
        "cdna0": {64: (64, 64, 4), 128: (64, 64, 4)},
        "cdna1": {64: (64, 64, 4), 128: (64, 64, 4)},
        "cdna2": {64: (64, 64, 4), 128: (64, 64, 4)},
        "cdna3": {64: (64, 64, 4), 128: (64, 64, 4)},
        "cdna4": {64: (64, 64, 4), 128: (64, 64, 4)},
        "rdna2": {64: (64, 64, 4), 128: (64, 64, 4)},
        "rdna3": {64: (64, 64, 4), 128: (64, 64, 4)},
    },
    "bwd_dkdv": {
        "cdna0": {64: (32, 32, 4), 128: (32, 32, 4)},
        "cdna1": {64: (32, 64, 2), 128: (64, 128, 4)},
        "cdna2": {64: (32, 128, 4), 128: (32, 64, 2)},
        "cdna3": {64: (32, 64, 2), 128: (32, 128, 4)},
        "cdna4": {64: (32, 128, 4, 2), 128: (32, 64, 2, 2)},
        "rdna2": {64: (32, 32, 4), 128: (32, 32, 8)},
        "rdna3": {64: (16, 64, 4), 128: (16, 64, 4)},
    },
    "bwd_dq": {
        "cdna0": {64: (32, 32, 4), 128: (32, 32, 4)},
        "cdna1": {64: (128, 32, 4), 128: (128, 64, 4)},
        "cdna2": {64: (128, 32, 4), 128: (128, 32, 4)},
        "cdna3": {64: (128, 32, 4), 128: (128, 32, 4)},
        "cdna4": {64: (128, 32, 4, 2), 128: (128, 32, 4, 2)},
        "rdna2": {64: (32, 32, 8), 128: (32, 32, 8)},
        "rdna3": {64: (128, 32, 8), 128: (64, 16, 4)},
    },
}  # fmt: skip
TILES["fwd_masked bool"] = TILES["fwd_masked bias"] = dict(TILES["fwd"])
# RDNA 3.5 has RDNA 3's matrix instructions and registers.
for each in (REFERENCE, *TILES.values()):
    each["rdna3_5"] = each["rdna3"]
    each["rdna4"] = each["rdna3"]


def arguments(case: Case) -> list[dict]:
    """The launch's arguments.  lse and delta are made up, with values of a realistic size."""
    n, d = case.seqlen, case.head_dim
    scale = d**-0.5

    def tensor(name, fill="normal", dtype=case.dtype, shape=(1, n, d)):
        return {"name": name, "dtype": dtype, "shape": shape, "fill": fill}

    def row(name, fill):
        return tensor(name, fill, "fp32", (1, n))

    sizes = [{"kind": "i32", "value": n}] * 2
    scales = [{"kind": "f32", "value": scale * LOG2E}, {"kind": "f32", "value": scale}]
    inputs = [tensor("q"), tensor("k"), tensor("v")]
    outputs = [tensor("out", "output"), row("lse", "output")]
    known = [tensor("dout"), row("lse", math.log2(n) + 1), row("delta", 0.0)]
    found = {
        "fwd": [*inputs, *outputs, *sizes, scales[0]],
        "fwd_masked bool": [*inputs, tensor("mask", "hidden", "bool", (n, n)), *outputs, *sizes, scales[0]],
        "fwd_masked bias": [*inputs, tensor("mask", "hidden", shape=(n, n)), *outputs, *sizes, scales[0]],
        "bwd_delta": [tensor("out"), tensor("dout"), row("delta", "output"), sizes[0]],
        "bwd_dkdv": [*inputs, *known, tensor("dk", "output"), tensor("dv", "output"), *sizes, *scales],
        "bwd_dq": [*inputs, *known, tensor("dq", "output"), *sizes, *scales],
    }[case.op]
    return [*found, *HIDDEN]


# Triton appends the addresses of a global and a profiling scratch buffer. Both are unused.
HIDDEN = [{"kind": "i64", "value": 0}] * 2
POINTERS = {"fp16": "*fp16", "bf16": "*bf16", "fp32": "*fp32", "bool": "*i8"}
SCALARS = {"i32": "i32", "f32": "fp32"}


def source(case: Case) -> ASTSource:
    """The kernel with its types. Addresses and lengths are multiples of 16."""
    kernel, given = KERNELS[case.op], arguments(case)[: -len(HIDDEN)]
    kinds = [POINTERS[a["dtype"]] if "name" in a else SCALARS[a["kind"]] for a in given]
    constants = {
        "D": case.head_dim, "BLOCK_M": case.block_m, "BLOCK_N": case.block_n, "CAUSAL": case.causal,
        "BIAS": case.op == "fwd_masked bias",
    }  # fmt: skip
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    names = [name for name in kernel.arg_names if name not in constants]
    signature = dict(zip(names, kinds, strict=True)) | dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(kinds) if kind != "fp32"}
    return ASTSource(kernel, signature, constexprs=constants, attrs=aligned)


def build(arch: str, wave: int, case: Case, out: Path) -> None:
    """Compile one case for ``arch`` with waves of ``wave`` lanes into ``out``."""
    options = {"num_warps": case.warps, "num_stages": case.stages}
    compiled = cross_compile(source(case), target=GPUTarget("hip", arch, wave), options=options)
    stages = f", {case.stages} stages" if case.stages > 1 else ""
    launch = {
        "label": f"triton {triton.__version__}, {case.block_m}x{case.block_n}, {case.warps} warps{stages}",
        "kernel": compiled.metadata.name,
        "op": case.kind,
        "dtype": case.dtype,
        "head_dim": case.head_dim,
        "grid": [case.groups, 1, 1],
        "block": [case.warps * wave, 1, 1],
        "dynamic_lds": compiled.metadata.shared,
        "arguments": arguments(case),
    }
    rows = [{**launch, "workgroup": group, "flop": case.flop(group)} for group in case.workgroups]
    (out / f"{case.name}.hsaco").write_bytes(compiled.asm["hsaco"])
    (out / f"{case.name}.hsaco.launch.json").write_text(json.dumps(rows, indent=1) + "\n")


def trial_plan(tile: str) -> list[Case]:
    """Forwards at one tile, to choose among several."""
    sizes = [int(size) for size in tile.split("x")]
    cases = [Case("fwd", d, *sizes, causal=causal) for d in (64, 128) for causal in (False, True)]
    return [replace(case, workgroups=(case.groups - 1,)) for case in cases]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--isa", required=True, choices=TILES["fwd"])
    parser.add_argument("--wave", required=True, type=int, choices=(32, 64))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiles", nargs="+", default=())
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    plans = {
        "": plan(args.isa),
        "counters": counters_plan(args.isa),
        "reference": reference_plan(args.isa),
    }
    if args.tiles:
        plans = {tile: trial_plan(tile) for tile in args.tiles}
    for name, cases in plans.items():
        folder = args.out / name
        folder.mkdir(parents=True, exist_ok=True)
        for case in cases:
            build(args.arch, args.wave, case, folder)


if __name__ == "__main__":
    main()

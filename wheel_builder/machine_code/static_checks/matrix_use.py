"""Required and allowed matrix instructions of a kernel, from the kernels' own table of archs."""

import re
from collections import Counter
from collections.abc import Iterator

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.machine_code.disassembly.kernels import Kernel
from wheel_builder.machine_code.static_checks.findings import Finding
from wheel_builder.tables.archs import Arch, arch_named
from wheel_builder.tables.kinds import FP8, INT8, known_kinds

CHECK = "matrix instructions"
MATRIX = re.compile(r"v_(mfma|smfmac|wmma|swmmac|dot\d|dual_dot)")
# Kernels of dk and dv begin with a product of fp32, which spreads a number for each row over its columns.
# With loads straight into LDS, the number is a sum of three bf16, and the product is of bf16.
SPREADING, SPREADS = ("fa_bwd_dkdv_", "fa_bwd_fused_"), r"|v_mfma_f32_32x32x2_?f32"
SPREADS_PARTS = r"|v_mfma_f32_32x32x8_bf16"
# On ISAs without dot products, two of these are one. Conversions use it, too.
MIXED = "v_fma_mix_f32"
STEP = 16  # kK of MFMA's Layout (kernels/device/mma/layout.hpp)
SHORT = {"fp16": "f16", "bf16": "bf16", FP8: "fp8_fp8", INT8: "fp8_fp8"}
# Of scores in int8, by unit. Probabilities are fp8, or fp16 without such instructions.
COUNTS = {
    "mfma": "v_mfma_i32_32x32x{k}_i8", "wmma_split": "v_wmma_i32_16x16x16_iu8", "dot2": "v_dot4c?_i32_i8",
}  # fmt: skip
LONGEST_INT8 = 32  # elements of an instruction. With longer ones of fp8, a step has two
INSTANCE = re.compile(r"fa_(?P<op>[a-z0-9]+(?:_[a-z0-9]+)*)_(?P<dtype>fp16|bf16)(?P<head_dim>_d\d+)?")


def check_matrix_use(arch: str, kernel: Kernel) -> tuple[Finding, ...]:
    """Check for the matrix instructions of the dtype of its products, and for the absence of others.

    Kernels for any head dim have none, because the compiler does not know their sizes.
    """
    dtype, beside = _dtypes_of_tiles(kernel.name)
    hardware = arch_named(arch)
    # RDNA2's two-term products lack a bf16 form. Kernels may turn bf16 into fp16 if exact
    # (kernels/device/scores/narrow.hpp).
    needed = dtype != "bf16" or not hardware.isa.unit.startswith("dot2")
    spreads = ""
    if kernel.name.startswith(SPREADING) and hardware.isa.unit == "mfma":
        spreads = SPREADS + (SPREADS_PARTS if hardware.isa.direct_loads else "")
    found, more = matrix_instructions(arch, kernel), spreads + _halves(hardware, dtype)
    if not hardware.isa.packed_dots:
        more += f"|{MIXED}"
    longest = min(hardware.isa.fp8_k, LONGEST_INT8)
    # Of its second kind of products.
    second = COUNTS[hardware.isa.unit].format(k=longest) if dtype == INT8 else _expected(hardware, beside)
    if second:
        more += f"|{second}"
    texts = [*_problems(found, _expected(hardware, dtype), more, needed=needed)]
    if second and not any(re.fullmatch(second, name) for name in found):
        texts.append(f"no matrix instruction of {beside or INT8}, expected {second}")
    return tuple(Finding(CHECK, arch, kernel.name, text) for text in texts)


def matrix_instructions(arch: str, kernel: Kernel) -> Counter[str]:
    """Each matrix instruction in the kernel's code, with its count."""
    mixed = () if arch_named(arch).isa.packed_dots else (MIXED,)
    reached = [kernel.instructions[number].operations for number in kernel.reached]
    names = Counter([operation.mnemonic for operations in reached for operation in operations])
    return Counter({name: count for name, count in names.items() if MATRIX.match(name) or name in mixed})


def _problems(found: Counter[str], expected: str, more: str, *, needed: bool) -> Iterator[str]:
    words = f"expected {expected}" if expected else "expected none"
    if expected and needed and not any(re.fullmatch(expected, name) for name in found):
        yield f"no matrix instruction of its type, {words}"
    for name, count in sorted(found.items()):
        if not re.fullmatch(expected + more, name):
            yield f"{count} of {name}, {words}"


def _dtypes_of_tiles(name: str) -> tuple[str, str]:
    """The dtypes of the kernel's products, and of a second kind of them. Empty for a kernel without tiles."""
    match = INSTANCE.fullmatch(name)
    if match is None:
        title = f"{name} is not an instance's name"
        raise DeviceCodeError(title, ["expected fa_<op>_<dtype>_d<head dim> or fa_<op>_<dtype>"])
    if not match["head_dim"]:
        return "", ""
    kind = known_kinds().get(match["op"])
    return (kind.multiplies or match["dtype"], kind.beside) if kind else (match["dtype"], "")


def _expected(arch: Arch, dtype: str) -> str:
    """A pattern for the names. Empty if the arch lacks such an instruction. All accumulate in fp32."""
    if not dtype:
        return ""
    short = _short(arch, dtype)
    if arch.isa.unit == "mfma":
        longest = _longest(arch, dtype)
        return f"v_mfma_f32_(32x32x{longest}|16x16x{2 * longest})_?{short}(_1k)?"
    if arch.isa.unit in ("wmma", "wmma_split"):
        return f"v_wmma_f32_16x16x16_{short}"
    if not arch.isa.packed_dots:
        return MIXED
    return "v_(dot2c?_f32_f16|dual_dot2acc_f32_f16)"


def _longest(arch: Arch, dtype: str) -> int:
    of_codes = arch.isa.fp8_k
    return {"fp16": arch.isa.fp16_k, "bf16": arch.isa.bf16_k, FP8: of_codes, INT8: of_codes}[dtype]


def _short(arch: Arch, dtype: str) -> str:
    wide = dtype in (FP8, INT8) and arch.isa.fp8_k > STEP  # one instruction for several formats
    return "f8f6f4" if wide else SHORT[dtype]


def _halves(arch: Arch, dtype: str) -> str:
    """A pattern for other instructions on half of a matrix step, if the whole step is one instruction."""
    if dtype not in ("fp16", "bf16") or arch.isa.unit != "mfma" or _longest(arch, dtype) != STEP:
        return ""
    return f"|v_mfma_f32_32x32x{STEP // 2}_{SHORT[dtype]}"

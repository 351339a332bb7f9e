"""What compute units do, and how many GPUs have."""

# Generated from kernels/tables/*.toml by wheel_builder/tables/generated.py: change it there.
# By arch with machine code of its own, the fields of ``Rate``.
RATES = {
    "gfx906": (256, 1800000000, 16000000000),
    "gfx908": (1024, 1502000000, 10240000000),
    "gfx90a": (1024, 1700000000, 14894545455),
    "gfx942": (2048, 2100000000, 17434210526),
    "gfx950": (4096, 2400000000, 31250000000),
    "gfx1010": (128, 1905000000, 11200000000),
    "gfx1012": (256, 1845000000, 10181818182),
    "gfx1030": (256, 2250000000, 6400000000),
    "gfx1100": (512, 2500000000, 10000000000),
    "gfx1102": (512, 2655000000, 9000000000),
    "gfx1151": (512, 2900000000, 6400000000),
    "gfx1201": (1024, 2970000000, 10000000000),
}
# Compute units of the largest GPU of each gfx name.
LARGEST = {
    "gfx906": 64,
    "gfx908": 120,
    "gfx90a": 110,
    "gfx942": 304,
    "gfx950": 256,
    "gfx1010": 40,
    "gfx1011": 36,
    "gfx1012": 22,
    "gfx1030": 80,
    "gfx1031": 40,
    "gfx1032": 32,
    "gfx1033": 8,
    "gfx1034": 16,
    "gfx1035": 12,
    "gfx1036": 2,
    "gfx1100": 96,
    "gfx1101": 60,
    "gfx1102": 32,
    "gfx1103": 12,
    "gfx1150": 16,
    "gfx1151": 40,
    "gfx1152": 8,
    "gfx1153": 2,
    "gfx1200": 32,
    "gfx1201": 64,
}
# The archs whose matrix unit takes denormals of fp16 and bf16 as zero.
FLUSHING = ["gfx90a"]
# The archs whose instructions read 8-bit floats in OCP's formats only: e4m3fn and e5m2.
OCP = ["gfx950", "gfx1201"]
# The least that kernels with products of fp8 make a row's largest probability.
FP8_TOPS = {"gfx942": 16, "gfx950": 32, "gfx1201": 56}
# Visible pairs of a query and a key, for each row of q and k, from which on products of int8 pay.
INT8_PAIRS = {"gfx942": 4096, "gfx950": 16384, "gfx1030": 1024, "gfx1201": 2048}
# The GPUs that AMD's builds of PyTorch have a package for.
AMD_TORCH = (
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1103",
    "gfx1150",
    "gfx1151",
    "gfx1152",
    "gfx1153",
    "gfx1200",
    "gfx1201",
)

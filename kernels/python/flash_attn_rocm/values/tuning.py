"""When a row replaces another one, the calls that are timed, and the regimes of forward calls."""

# Generated from kernels/tables/tuning.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
# The mean gain over bins, and the loss in any of them.
LEAST_GAIN, MOST_LOSS = 0.02, 0.01
# Of timed calls: lengths, heads of q for a head of k, tokens and heads of q, batch of a decode.
LENGTHS, WIDTHS = (512, 2048, 8192), (1, 4)
TOKENS, HEADS, DECODE_BATCH = 16384, 16, 16
# By op: their kind, whether they are causal, and their masks.
CALLS = {
    "fwd": ("forward", (False, True), ("",)),
    "fwd_tall": ("forward", (False, True), ("",)),
    "fwd_wide": ("forward", (False, True), ("",)),
    "fwd_uneven": ("forward", (False, True), ("",)),
    "fwd_masked": ("forward", (False,), ("bool", "bias")),
    "decode": ("decode", (False,), ("",)),
    "decode_8bit": ("decode", (False,), ("",)),
    "bwd_dkdv": ("backward", (False, True), ("",)),
    "bwd_dq": ("backward", (False, True), ("",)),
    "bwd_fused": ("backward", (False, True), ("",)),
    "bwd_dkdv_uneven": ("backward", (False, True), ("",)),
    "bwd_dq_uneven": ("backward", (False, True), ("",)),
    "bwd_dkdv_masked": ("backward", (False,), ("bool", "bias")),
    "bwd_dq_masked": ("backward", (False,), ("bool", "bias")),
}
# Bounds of queries, keys and heads of q for a head of k, no end if the second is 0; causal or not.
REGIMES = {
    "decode": ((0, 16), (0, 0), (0, 0), None),
    "long-causal": ((2048, 0), (2048, 0), (0, 0), True),
    "long-gqa": ((2048, 0), (2048, 0), (2, 0), None),
    "long": ((2048, 0), (2048, 0), (0, 0), None),
    "causal": ((0, 0), (0, 0), (0, 0), True),
    "gqa": ((0, 0), (0, 0), (2, 0), None),
    "short": ((0, 0), (0, 0), (0, 0), None),
}
# Evidence by regimes, archs, dtypes and head dims. Empty ones fit all calls; the first row holds.
EVIDENCE = (
    ("modelled", (), (), (), (576,)),
    ("modelled", ("decode",), ("gfx906",), (), (32, 64, 96)),
    ("modelled", ("decode",), ("gfx906",), ("bf16",), (128,)),
    ("modelled", ("decode",), (), (), ()),
    ("modelled", ("long-causal", "long-gqa", "long"), (), (), ()),
    ("modelled", (), (), (), ()),
)

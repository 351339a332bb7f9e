"""When a row replaces another one, and the regimes of forward calls with their evidence."""

# Generated from kernels/tables/tuning.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
# The mean gain over bins, and the loss in any of them.
LEAST_GAIN, MOST_LOSS = 0.02, 0.01
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
    ("modelled", ("decode",), (), (), ()),
    ("modelled", ("long-causal", "long-gqa", "long"), (), (), ()),
    ("modelled", (), (), (), ()),
)

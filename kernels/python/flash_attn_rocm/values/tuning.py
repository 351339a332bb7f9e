"""When a row replaces another one: its mean gain over bins, and its loss in any of them."""

# Generated from kernels/tables/tuning.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
LEAST_GAIN, MOST_LOSS = 0.02, 0.01

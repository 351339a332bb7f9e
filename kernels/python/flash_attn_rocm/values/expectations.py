"""What errors say is expected of an argument."""

# Generated from kernels/tables/calls.toml by wheel_builder/tables/generated.py: change it there.
DROPOUT_P = "0 <= dropout_p < 1"
HEADS = "a positive number of heads that is a multiple of"
PAGES = "pages of a multiple of"
SOFTCAP = "0 (none) or a positive number"
SOFTMAX_SCALE = "a finite number"

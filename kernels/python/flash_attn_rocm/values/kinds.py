"""The op of the kernels that answer a call, by its path or variant."""

# Generated from kernels/tables/kinds.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
MASKED = "masked"
UNEVEN = "uneven"
ATTENDING = {
    "matrix": "fwd",
    "tiled": "fwd",
    "tall": "fwd_tall",
    "wide": "fwd_wide",
    "uneven": "fwd_uneven",
    "masked": "fwd_masked",
    "split": "decode",
    "latent": "mla",
    "reference": "reference",
}
GRADIENTS = {
    "separate": "bwd_dq",
    "fused": "bwd_fused",
    "uneven": "bwd_dq_uneven",
    "masked": "bwd_dq_masked",
}

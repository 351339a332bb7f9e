"""The op of the kernels that answer a call, by its path or variant."""

# Generated from kernels/tables/kinds.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
MASKED = "masked"
CODED = "coded"
CODED_LATENT = "coded_latent"
PACKED_LATENT = "packed_latent"
UNEVEN = "uneven"
ATTENDING = {
    "matrix": "fwd",
    "tiled": "fwd",
    "tall": "fwd_tall",
    "fp8": "fwd_fp8",
    "int8": "fwd_int8",
    "wide": "fwd_wide",
    "uneven": "fwd_uneven",
    "masked": "fwd_masked",
    "split": "decode",
    "coded": "decode_8bit",
    "latent": "mla",
    "coded_latent": "mla_8bit",
    "packed_latent": "mla_rows",
    "reference": "reference",
}
GRADIENTS = {
    "separate": "bwd_dq",
    "fused": "bwd_fused",
    "uneven": "bwd_dq_uneven",
    "masked": "bwd_dq_masked",
}
# Ops for calls without softcap, ALiBi, dropout and pages.
PLAIN = ("fwd_tall", "fwd_fp8", "fwd_int8", "fwd_wide", "fwd_uneven", "bwd_dq_uneven")
# Ops with a kernel for each head dim.
TILED = (
    "fwd",
    "fwd_tall",
    "fwd_fp8",
    "fwd_int8",
    "fwd_wide",
    "fwd_uneven",
    "fwd_masked",
    "decode",
    "decode_8bit",
    "mla",
    "mla_8bit",
    "mla_rows",
    "bwd_dkdv",
    "bwd_dq",
    "bwd_fused",
    "bwd_dkdv_uneven",
    "bwd_dq_uneven",
    "bwd_dkdv_masked",
    "bwd_dq_masked",
)
# Of an op in GRADIENTS, all kernels of a call in the order of their launches.
LAUNCHES = {
    "bwd_dq": ("bwd_delta", "bwd_dkdv", "bwd_dq"),
    "bwd_fused": ("bwd_delta", "bwd_fused", "bwd_convert"),
    "bwd_dq_uneven": ("bwd_delta", "bwd_dkdv_uneven", "bwd_dq_uneven"),
    "bwd_dq_masked": ("bwd_delta", "bwd_dkdv_masked", "bwd_dq_masked"),
}
# The rows of canary/rows.py that check an op.
CANARY = {
    "fwd": "ATTENTION",
    "fwd_tall": "TALL",
    "fwd_fp8": "CODED_PRODUCTS",
    "fwd_int8": "QUANTISED",
    "quantise": "QUANTISED",
    "fwd_wide": "WIDE",
    "fwd_uneven": "UNEVEN",
    "fwd_masked": "MASKS",
    "decode": "ATTENTION",
    "decode_8bit": "CODES",
    "mla": "LATENT",
    "mla_8bit": "CODED_LATENT",
    "mla_rows": "PACKED_LATENT",
    "reference": "ATTENTION",
    "append": "APPENDS",
    "append_8bit": "CODED_APPENDS",
    "widen": "CODES",
    "bwd_dq": "GRADIENTS",
    "bwd_fused": "GRADIENTS",
    "bwd_dq_uneven": "UNEVEN_GRADIENTS",
    "bwd_dq_masked": "MASKED_GRADIENT_ROWS",
}

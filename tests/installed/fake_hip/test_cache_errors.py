"""Root mean squares of errors over caches of 8 bits, against float64 on the numbers of the codes."""

import pytest
from test_caches_8_bit import ATTEND, CACHE

# docs/caches-8-bit.md has these, in thousandths of out's: of 3 queries and of 20. Archs differ by up to 7 %.
ROOT_MEAN_SQUARES = {
    ("few", "float16"): 0.36, ("few", "bfloat16"): 1.7,
    ("more", "float16"): 0.37, ("more", "bfloat16"): 3.0,
    ("latent", "bfloat16"): 1.7,
    ("rows", "bfloat16"): 1.7,
    ("packed", "bfloat16"): 3.2,
}  # fmt: skip
ROWS = {"few": 3, "more": 20}
KERNELS = {
    "few": "fa_decode_8bit_{}_d64",
    "more": "fa_fwd_{}_d64",
    "latent": "fa_mla_8bit_{}_d576",
    "rows": "fa_mla_rows_{}_d576",
    "packed": "fa_mla_{}_d576",
}
NAMES = {"float16": "fp16", "bfloat16": "bf16"}
ERRORS = """
def report(found, expected):
    shown["kernels"] = [launch.kernel for launch in fake_hip.report().launches]
    error, square = (found.double() - expected).square().mean(), expected.square().mean()
    shown["error"] = 1000 * (error / square).sqrt().item()
"""
LATENT = """
x = random(2, 80, 1, 576).float()
descale = x.abs().amax((1, 3)) / LARGEST[torch.int8]
codes = rounded(x / descale[:, None, :, None], torch.int8)
numbers = codes.double() * descale[:, None, :, None].double()
q = random(2, 1, 16, 576, dtype=torch.bfloat16)
with kernels_on_host_memory(fake_hip):
    found = mla_decode(q, codes, torch.tensor(LENGTHS, dtype=torch.int32), num_splits=1, kv_descale=descale)
numbers = numbers.expand(-1, -1, 8, -1)
report(found, formula(q, (numbers, numbers))[..., :512])
"""
PACKED = """
rows, numbers = packed(1.0, 1.0, 1.0)
q = random(2, 1, 16, 576, dtype=torch.bfloat16)
with kernels_on_host_memory(fake_hip):
    found = mla_decode(q, rows, torch.tensor(LENGTHS, dtype=torch.int32), num_splits=1)
numbers = numbers.expand(-1, -1, 8, -1)
report(found, formula(q, (numbers, numbers))[..., :512])
"""
TEXTS = {"latent": LATENT, "rows": PACKED, "packed": PACKED}
# The archs whose kernels read what latent attention has.
OF_LATENT = {
    "latent": ("gfx90a", "gfx942", "gfx950", "gfx1100"),
    "rows": ("gfx90a", "gfx942", "gfx950"),
    "packed": ("gfx1100", "gfx1201"),  # widened first
}
CALLS = [
    (arch, *call)
    for arch in ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
    for call in ROOT_MEAN_SQUARES
    if arch in OF_LATENT.get(call[0], arch)
]


@pytest.mark.parametrize(("arch", "call", "kept"), CALLS)
def test_errors_are_those_of_the_page(scenario, arch, call, kept):
    given = {"dtype": "int8", "per_key": True, "head_dim": 64, "layout": "", "parts": 1}
    text = TEXTS.get(call) or ATTEND.format(**given, rows=ROWS[call], kept=kept)
    shown = scenario(CACHE + ERRORS + text, arch=arch)
    assert shown["kernels"][-1] == KERNELS[call].format(NAMES[kept])
    assert shown["error"] == pytest.approx(ROOT_MEAN_SQUARES[call, kept], rel=0.08)

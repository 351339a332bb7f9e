"""How many calls the check at first use has, as CONTRIBUTING.md says it."""

import importlib.util
import re

from tests.conftest import CHECKOUT

ROWS = CHECKOUT / "kernels/python/flash_attn_rocm/_canary_rows.py"
SAID = re.compile(
    r"(\d+) calls with \d+ launches for attention .*?, (\d+) with \d+ for separate gradients, "
    r"(\d+) with \d+ for fused ones, (\d+) with \d+ for gradients with masks, "
    r"(\d+) with \d+ for writing into a cache, and (\d+) with \d+ for masks \(of bf16 (\d+) with"
)


def test_the_numbers_of_calls_are_those_of_its_rows():
    spec = importlib.util.spec_from_file_location("_canary_rows", ROWS)
    rows = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rows)
    plain = [row for row in rows.GRADIENTS if not row.featured]
    tables = (
        rows.ATTENTION, rows.GRADIENTS, plain, rows.MASKED_GRADIENT_ROWS, rows.APPENDS, rows.MASKS,
        rows.MASKS_OF_BF16,
    )  # fmt: skip
    [said] = SAID.findall(" ".join((CHECKOUT / "CONTRIBUTING.md").read_text().split()))
    assert [int(number) for number in said] == [len(table) for table in tables]

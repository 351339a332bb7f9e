"""How many calls the check at first use has, as docs/dev/mutants.md says it."""

import importlib.util
import re
import tomllib

from tests.conftest import CHECKOUT

ROWS = CHECKOUT / "kernels/python/flash_attn_rocm/_canary_rows.py"


def test_the_numbers_of_calls_are_those_of_its_rows():
    spec = importlib.util.spec_from_file_location("_canary_rows", ROWS)
    rows = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rows)
    plain = [row for row in rows.GRADIENTS if not row.featured]
    tables = (
        rows.ATTENTION, rows.GRADIENTS, plain, rows.MASKED_GRADIENT_ROWS, rows.APPENDS, rows.MASKS,
        rows.MASKS_OF_BF16,
    )  # fmt: skip
    page = (CHECKOUT / "docs/dev/mutants.md").read_text()
    _, _, said = page.partition("| family | calls | launches |")
    numbers = re.findall(r"^\| [\w ,]+ \| (\d+) \|", said.partition("\n\n")[0], re.MULTILINE)
    assert [int(number) for number in numbers] == [len(table) for table in tables]


def test_recorded_runs_of_mutants_can_be_typed_again():
    records = tomllib.loads((CHECKOUT / "tests/mutation/records.toml").read_text(encoding="utf-8"))
    for run in records["runs"]:
        assert re.fullmatch(r"python -m tests\.mutation(\.canary)?( --\w+ \w+)+ --seed \d+", run["command"])
        assert run["scores"]
        for score in run["scores"].values():
            found, judged = map(int, score.split("/"))
            assert 0 < found <= judged

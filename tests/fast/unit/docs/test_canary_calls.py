"""The number of calls of the first-use check, as stated in docs/dev/mutants.md."""

import re
import tomllib

from tests.conftest import CHECKOUT
from wheel_builder.tables.package import package_module


def test_the_numbers_of_calls_are_those_of_its_rows():
    rows = package_module("canary.rows")
    plain = [row for row in rows.GRADIENTS if not row.featured]
    fp16 = [row for row in rows.MASKS if not row.tiny]
    tables = (
        rows.ATTENTION, rows.GRADIENTS, plain, rows.MASKED_GRADIENT_ROWS, rows.APPENDS, fp16, rows.MASKS
    )  # fmt: skip
    page = (CHECKOUT / "docs/dev/mutants.md").read_text()
    _, _, said = page.partition("| family | calls | launches |")
    numbers = re.findall(r"^\| [\w ,]+ \| (\d+) \|", said.partition("\n\n")[0], re.MULTILINE)
    assert [int(number) for number in numbers] == [len(table) for table in tables]


def test_recorded_runs_of_mutants_can_be_typed_again():
    records = tomllib.loads((CHECKOUT / "tests/tools/mutation/records.toml").read_text(encoding="utf-8"))
    for run in records["runs"]:
        assert re.fullmatch(
            r"python -m tests\.tools\.mutation(\.canary)?( --\w+ \w+)+ --seed \d+", run["command"]
        )
        assert run["scores"]
        for score in run["scores"].values():
            found, judged = map(int, score.split("/"))
            assert 0 < found <= judged

"""The rules of tuning: what is refused, and that both sides read them."""

import runpy

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import TuningError
from wheel_builder.tables.tuning import known_tuning, parse_tuning, python_tuning

GOOD = "[better]\nleast_gain = 0.25\nmost_loss = 0.125\n"


def test_the_package_has_the_limits(tmp_path):
    file = tmp_path / "tuning.py"
    file.write_text(python_tuning(parse_tuning(GOOD)))
    found = runpy.run_path(str(file))
    assert (found["LEAST_GAIN"], found["MOST_LOSS"]) == (0.25, 0.125)


def test_the_documents_say_todays_limits():
    better = known_tuning().better
    gain, loss = f"{100 * better.least_gain:g} %", f"{100 * better.most_loss:g} %"
    text = " ".join((CHECKOUT / "docs/dev/tuning.md").read_text().split())
    assert f"two machines gain {gain} or more" in text
    assert f"no bin of any machine is {loss} slower or worse" in text
    text = " ".join((CHECKOUT / "docs/on-your-gpu.md").read_text().split())
    assert f"if it is {gain} faster or more in the geometric mean, and in no call slower by {loss}" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "tuning.toml: no better"),
        ("[better", "tuning.toml: "),
        (GOOD + "more = 1\n", "tuning.toml.better: not a field: more"),
        (GOOD + "[other]\n", "tuning.toml: not a field: other"),
        (GOOD.replace("0.25", "'2 %'"), "tuning.toml.better: least_gain is '2 %', expected float"),
        (GOOD.replace("0.25", "2"), "tuning.toml: better.least_gain is 2, expected a share between 0 and 1"),
        (GOOD.replace("0.125", "0"), "tuning.toml: better.most_loss is 0, expected a share between 0 and 1"),
    ],
)
def test_other_rules_are_refused(text, words):
    with pytest.raises(TuningError) as error:
        parse_tuning(text)
    assert words in str(error.value)
    assert "kernels/tables/tuning.toml does not describe rules of tuning" in str(error.value)
    assert error.value.advice == "its head explains the keys"

"""The rules of tuning: what is refused, and that both sides read them."""

import runpy
from itertools import product

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import TuningError
from wheel_builder.extras.tune.works import works
from wheel_builder.tables.tuning import (
    Better,
    cpp_tuning,
    exact,
    known_tuning,
    parse_tuning,
    python_tuning,
    timed_calls,
)

GOOD = """
[better]
least_gain = 0.25
most_loss = 0.125
[timed]
lengths = [40, 80]
widths = [1]
tokens = 160
heads = 2
decode_batch = 3
[regimes.decode]
queries = [0, 4]
[regimes.shared]
queries = [0, 64]
keys = [512, 0]
width = [8, 0]
[regimes.later]
causal = true
[regimes.rest]
[[choices]]
kernels = "split"
regimes = ["decode", "shared"]
archs = ["gfx942"]
dtypes = ["bf16"]
head_dims = [64, 128]
evidence = "two reports"
places = 3
[[choices]]
kernels = "whole"
evidence = "modelled"
"""


def test_a_choice_is_a_row_for_each_of_its_calls():
    text = cpp_tuning(parse_tuning(GOOD))
    assert "kFewQueries = 4;" in text
    assert '    {"shared", {0, 64}, {512, kNoEnd}, {8, kNoEnd}, std::nullopt},\n' in text
    assert '    {"later", {0, kNoEnd}, {0, kNoEnd}, {0, kNoEnd}, true},\n' in text
    row = "    {%d, Gfx::gfx942, DType::bf16, %d, Chosen::split, 0.9, 3, 512, 64},\n"
    assert text.count("Chosen::split") == 4
    assert all(row % each in text for each in product((0, 1), (64, 128)))
    assert "    {-1, std::nullopt, std::nullopt, 0, Chosen::whole, 0.9, 2, 512, 64},\n};\n" in text


def test_the_package_has_the_limits(tmp_path):
    file = tmp_path / "tuning.py"
    file.write_text(python_tuning(parse_tuning(GOOD)))
    found = runpy.run_path(str(file))
    assert (found["LEAST_GAIN"], found["MOST_LOSS"]) == (0.25, 0.125)
    assert (found["LENGTHS"], found["WIDTHS"]) == ((40, 80), (1,))
    assert (found["TOKENS"], found["HEADS"], found["DECODE_BATCH"]) == (160, 2, 3)
    assert found["CALLS"]["fwd_masked"] == ("forward", (False,), ("bool", "bias"))
    assert found["REGIMES"]["shared"] == ((0, 64), (512, 0), (8, 0), None)
    assert found["REGIMES"]["later"] == ((0, 0), (0, 0), (0, 0), True)


def test_kernels_that_are_tuned_are_timed():
    assert timed_calls().keys() == works().keys()


def test_the_limits_are_exact():
    """In floats 5.05 is less than 1.01 times 5.0, and 0.707 is not 1.01 times 0.7."""
    better = Better(0.02, 0.01)
    for shipped, row, lost in ((5.0, 5.05, True), (0.7, 0.707, True), (0.7, 0.7069, False)):
        assert better.lost(exact(shipped) / exact(row)) is lost
    assert better.gained([exact(5.1) / exact(5.0)] * 12)
    assert not better.gained([exact(5.1) / exact(5.0)] * 11 + [exact(5.0999) / exact(5.0)])


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
        ("", "tuning.toml: table: no better"),
        ("[better", "tuning.toml: "),
        ("more = 1\n" + GOOD, "table: not a field: more"),
        (GOOD + "[other]\n", "tuning.toml: table: not a field: other"),
        (GOOD.replace("0.25", "'2 %'"), "least_gain is '2 %', expected float"),
        (GOOD.replace("0.25", "2"), "better.least_gain is 2, expected a share between 0 and 1"),
        (GOOD.replace("0.125", "0"), "better.most_loss is 0, expected a share between 0 and 1"),
        (GOOD.replace("[40, 80]", "[40, 0]"), "timed.lengths is (40, 0), expected positive numbers"),
        (GOOD.replace("[1]", "[]"), "timed.widths is (), expected positive numbers"),
        (GOOD.replace("heads = 2", "heads = 0"), "timed.heads is 0, expected positive numbers"),
        (GOOD.replace('["gfx942"]', '["gfx1"]'), "archs is 'gfx1', expected one of gfx906, "),
        (GOOD.replace('"bf16"', '"fp8"'), "dtypes is 'fp8', expected one of fp16, bf16"),
        (GOOD.replace('"whole"', '"all"'), "kernels is 'all', expected one of latent, split, tall, whole"),
        (GOOD.replace('"shared"]', '"other"]'), "choices 0: regimes has other, expected one of decode, "),
        (GOOD.replace("places = 3", "places = 0"), "choices 0: places is 0, expected a positive number"),
        (GOOD.replace("[0, 4]", "[4, 0]"), "the first regime has no most queries, or other bounds, too"),
        (GOOD.replace("[0, 4]", "[0, 4, 5]"), "queries is [0, 4, 5], expected "),
        (GOOD.replace("[regimes.rest]", ""), "the last regime has bounds"),
        (GOOD.replace("= true", "= 'yes'"), "causal is 'yes', expected bool | None"),
        (GOOD + "head_dims = [64]\n", "the last choice does not fit all calls"),
    ],
)
def test_other_rules_are_refused(text, words):
    with pytest.raises(TuningError) as error:
        parse_tuning(text)
    assert words in str(error.value)
    assert "kernels/tables/tuning.toml does not describe rules of tuning" in str(error.value)
    assert error.value.advice == "its head explains the keys"

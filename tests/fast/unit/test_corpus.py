"""The corpus: fuzz cases picked by what they show."""

import json

import pytest

from tests.tools.corpus import CORPUS, SCORING, choose, combined, merged, to_text

KERNEL = "fa_fwd_fp16_d64"


def call(number, ran, *features, executed=1, outcomes=0):
    return {
        "kernel": KERNEL,
        "number": number,
        "ran": {KERNEL: hex(ran)},
        "outcomes": {KERNEL: hex(outcomes)},
        "features": features,
        "executed": executed,
    }


def test_the_file_has_a_line_for_each_kernel():
    text = CORPUS.read_text()
    assert text == to_text(json.loads(text))
    assert '  "fa_append_fp16": [6, 10, ' in text


def numbers(calls):
    return [each["number"] for each in choose(calls)]


def test_cheap_calls_that_show_everything_are_taken():
    assert numbers([call(0, 0b111, executed=9), call(1, 0b011), call(2, 0b110), call(3, 0b010)]) == [1, 2]


def test_what_only_one_call_shows_is_taken_even_where_it_takes_long():
    assert numbers([call(0, 0b01), call(1, 0b11, executed=1000)]) == [1]
    assert numbers([call(0, 0b1), call(1, 0b1, "paged", executed=1000)]) == [1]


def test_some_more_time_goes_to_new_outcomes():
    calls = [call(0, 0b11, executed=8), call(1, 0b1, outcomes=0b01), call(2, 0b1, outcomes=0b11)]
    assert numbers(calls) == [0, 2]
    assert numbers([*calls[:2], call(2, 0b1, outcomes=0b11, executed=3)]) == [0, 1]


def test_calls_that_show_no_new_outcome_are_not_added():
    assert numbers([call(0, 0b1, outcomes=0b1), call(1, 0b1, outcomes=0b1)]) == [0]


def test_two_features_of_scores_meet():
    alone = [call(0, 0b1, "ALiBi"), call(1, 0b1, "window on the left")]
    both = call(2, 0b1, "ALiBi", "window on the left", executed=1000)
    assert numbers([*alone, both]) == [2]
    assert numbers([*alone, call(2, 0b1, "ALiBi", "paged")]) == [1, 2]


@pytest.mark.parametrize("features", [[], ["paged", "ragged"], ["paged", "softcap"]])
def test_other_features_make_no_pairs(features):
    assert combined(features) == set(features)


def test_pairs_are_of_what_works_on_scores():
    assert combined(["softcap", "ALiBi", "paged"]) == {"softcap", "ALiBi", "paged", "ALiBi with softcap"}
    assert len(combined(SCORING)) == len(SCORING) * (len(SCORING) + 1) // 2


def test_what_works_on_scores_meets_several_sequences():
    assert "several sequences with ALiBi" in combined(["ALiBi", "several sequences"])
    assert combined(["paged", "several sequences"]) == {"paged", "several sequences"}


def test_an_arch_that_shares_the_corpus_of_another_one_keeps_calls_of_its_own_kernels_besides():
    first = merged("gfx1100", {"fa_fwd_tall_fp16_d64": [1]})
    assert first == {"like": "gfx1100", "kernels": {"fa_fwd_tall_fp16_d64": [1]}}
    again = merged(first, {"fa_fwd_tall_fp16_d64": [2], "fa_fwd_tall_bf16_d64": [3]})
    assert again["kernels"] == {"fa_fwd_tall_fp16_d64": [2], "fa_fwd_tall_bf16_d64": [3]}
    assert merged({"fa_fwd_fp16_d64": [1]}, {"fa_fwd_fp16_d32": [2]}) == {
        "fa_fwd_fp16_d64": [1], "fa_fwd_fp16_d32": [2],
    }  # fmt: skip

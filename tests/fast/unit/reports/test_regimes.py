"""Other kernels for a regime of calls: two machines, 2 % or more, no call worse by 1 %."""

import tomllib

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.tunings import ARCH, NOW, another, as_bytes, call, report, signed, tuned
from wheel_builder.extras.timings import evidence
from wheel_builder.extras.timings.regimes import proposals, words_of
from wheel_builder.matrix.tuned.calls import calls_of
from wheel_builder.matrix.tuned.form import parse_tuning as parse_report
from wheel_builder.tables.tuning import TUNING, choice_of, parse_tuning, regime_of

USUAL, TALL = "fa_fwd_fp16_d64", "fa_fwd_tall_fp16_d64"
RULES = (CHECKOUT / TUNING).read_text()


def of_machine(make, times, more=(), **values):
    """A report of both kernels: by length, their milliseconds. ``more``: other facts of these calls."""
    calls = [({"length": length, **PLAIN, **dict(more)}, both) for length, both in times.items()]
    return of_calls(make, calls, **values)


PLAIN = {"causal": False, "width": 1}


def of_calls(make, calls, without=None, **values):
    """A report of both kernels: facts of some calls with the kernels' milliseconds. Others are equal.

    ``without``: facts of calls that it lacks.
    """

    def told(each):
        facts = each._asdict()
        return next((both for some, both in calls if some.items() <= facts.items()), (9.0, 9.0))

    kernels = {}
    for n, name in enumerate((USUAL, TALL)):
        every = [
            each for each in calls_of(USUAL) if not without or not without.items() <= each._asdict().items()
        ]
        bins = (call(name, (told(each)[n],), **each._asdict()) for each in every)
        kernels[name] = tuned(name, *bins)
    for kernel in kernels.values():
        kernel["candidates"] = {row: {"state": "wrong", "words": "x"} for row in kernel["candidates"]}
    return signed(parse_report(as_bytes(make(**{"kernels": kernels, **values})), NOW))


BOTH = (report, another)


def both(times, more=()):
    return [of_machine(make, times, more) for make in BOTH]


def test_better_kernels_of_a_regime_are_proposed_with_their_row():
    found = proposals(both({512: (1.03, 1.0)}))
    [each] = found
    assert (each.place.arch, each.place.regime, each.kernels) == (ARCH, "short", "tall")
    assert [gain for _, gain in each.gains] == pytest.approx([0.03] * 2)
    first, second, *row = words_of(found).splitlines()
    assert first == (
        f"{ARCH} fp16 d64, regime short: tall is better: +3.0% on AMD Radeon RX 7900 XTX, "
        "+3.0% on AMD Radeon RX 7900 XTX"
    )
    assert second == "  put this before the other choices of kernels/tables/tuning.toml:"
    [choice] = tomllib.loads("\n".join(row))["choices"]
    assert choice == {
        "kernels": "tall", "regimes": ["short"], "archs": [ARCH], "dtypes": ["fp16"], "head_dims": [64],
        "evidence": "2 reports",
    }  # fmt: skip


OF = {
    "causal": ({"causal": True}, "causal"),
    "GQA": ({"width": 4}, "gqa"),
    "both": ({"causal": True, "width": 4}, "causal"),
}


@pytest.mark.parametrize("which", OF)
@pytest.mark.parametrize("length", [512, 2048])
def test_causal_masks_and_shared_heads_have_regimes_of_their_own(which, length):
    more, regime = OF[which]
    regime = f"long-{regime}" if length == 2048 else regime
    better = (1.06, 1.0) if length == 512 else (8.0, 9.0)
    [each] = proposals(both({length: better}, more))
    assert (each.place.regime, each.kernels) == (regime, "tall" if length == 512 else "whole")
    row = "\n".join(words_of([each]).splitlines()[2:])
    rules = parse_tuning(RULES.replace("[[choices]]", f"{row}\n[[choices]]", 1))
    assert choice_of(rules, regime, ARCH, "fp16", 64).kernels == each.kernels
    plain = "long" if length == 2048 else "short"
    assert choice_of(rules, plain, ARCH, "fp16", 64).kernels == ("tall" if plain == "long" else "whole")


KINDS = {"causal": {"causal": True}, "gqa": {"width": 4, "causal": False}, "short": PLAIN}


@pytest.mark.parametrize("better", KINDS)
@pytest.mark.parametrize("others", [1.0, 1.2])
def test_kinds_of_calls_of_one_report_are_judged_apart(better, others):
    """``tune`` times all of them. Tall workgroups gain in one kind, and are equal or lose in the others."""
    calls = [
        ({"length": 512, **facts}, (1.06, 1.0) if kind == better else (1.0, others))
        for kind, facts in KINDS.items()
    ]
    [each] = proposals(of_calls(make, calls) for make in BOTH)
    assert (each.place.regime, each.kernels) == (better, "tall")
    assert [gain for _, gain in each.gains] == pytest.approx([0.06] * 2)


def test_with_that_row_in_the_table_nothing_is_proposed_any_more():
    reports = both({512: (1.06, 1.0)})
    found = proposals(reports)
    row = "\n".join(words_of(found).splitlines()[2:])
    rules = parse_tuning(RULES.replace("[[choices]]", f"{row}\n[[choices]]", 1))
    assert choice_of(rules, "short", ARCH, "fp16", 64).kernels == "tall"
    assert choice_of(rules, "short", ARCH, "bf16", 64).kernels == "whole"
    assert proposals(reports, rules) == ()


def test_the_usual_kernels_are_proposed_where_tall_ones_are_slower():
    [each] = proposals(both({2048: (8.0, 8.4)}))
    assert (each.place.regime, each.kernels) == ("long", "whole")


def test_report_merge_prints_them(tmp_path, monkeypatch):
    found = {f"{n}.json": each for n, each in enumerate(both({512: (1.06, 1.0)}))}
    monkeypatch.setattr(evidence, "signed_tunings", lambda _checkout: found)
    (tmp_path / evidence.EVIDENCE).parent.mkdir(parents=True)
    assert f"{ARCH} fp16 d64, regime short: tall is better: " in evidence.merge(tmp_path)


LACKING = {
    "too little": {512: (1.019, 1.0)},
    "a call is worse": {2048: (8.0, 9.0), 8192: (9.09, 9.0)},
    "the table has it": {2048: (9.0, 8.0)},
}


@pytest.mark.parametrize("why", LACKING)
def test_nothing_is_proposed(why):
    assert proposals(both(LACKING[why])) == ()


def test_kernels_that_no_report_compares_stay():
    rules = parse_tuning(RULES.replace('regimes = ["decode"]\nevidence', "evidence"))
    assert choice_of(rules, "short", ARCH, "fp16", 64).kernels == "split"
    assert proposals(both({512: (1.2, 1.0)}), rules) == ()


def test_a_report_without_some_calls_of_a_regime_says_nothing_about_it():
    """Tall workgroups lose in the calls that a forged report leaves out."""
    calls = [({"length": 2048, **PLAIN}, (8.0, 8.4)), ({"length": 8192, **PLAIN}, (9.0, 8.0))]
    assert proposals(of_calls(make, calls) for make in BOTH) == ()
    without = {"length": 8192, **PLAIN}
    assert proposals(of_calls(make, calls, without) for make in BOTH) == ()
    [each] = proposals(of_calls(make, calls[:1], {"length": 512}) for make in BOTH)
    assert (each.place.regime, each.kernels) == ("long", "whole")


def test_one_machine_is_not_enough():
    times = {512: (1.06, 1.0)}
    assert proposals([of_machine(report, times)]) == ()
    assert proposals([of_machine(report, times), of_machine(report, times, seconds=41.0)]) == ()
    assert len(proposals(both(times))) == 1


@pytest.mark.parametrize(
    ("sizes", "regime"),
    [
        ((16, 9, 1, False), "decode"),
        ((16, 9, 8, True), "decode"),
        ((17, 9, 1, False), "short"),
        ((17, 9, 1, True), "causal"),
        ((17, 9, 2, False), "gqa"),
        ((17, 9, 2, True), "causal"),
        ((2048, 2048, 1, False), "long"),
        ((2048, 2048, 2, False), "long-gqa"),
        ((2048, 2048, 2, True), "long-causal"),
        ((2048, 2047, 1, False), "short"),
    ],
)
def test_regimes_are_those_of_the_table(sizes, regime):
    *sizes, causal = sizes
    assert regime_of(parse_tuning(RULES), *sizes, causal=causal) == regime

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.counters import Line
from wheel_builder.extras.perf.published import (
    ERRORS,
    PRODUCTS,
    RATES,
    Kernel,
    Rate,
    read_rates,
    report,
    summary,
)

# 1000 FLOP a clock for the plain schedule, 800 for the exclusive one, at any length.
KERNEL = Kernel(Line(0, 1000), (Line(0, 1), Line(0, 1.25)))
KERNELS = {(product, causal): KERNEL for product in PRODUCTS for causal in (False, True)}


def rate(product, tflops, **changed):
    call = {"batch": 1, "heads": 8, "heads_k": 8, "seqlen": 1024, "causal": False, **changed}
    return Rate(product, **call, tflops=tflops)


def test_every_published_row_is_read_for_both_gpus():
    rates = read_rates(CHECKOUT / RATES)
    assert len(rates) == 188
    assert rates[0] == rate("MI300X", 338.07, heads=32)
    assert {r.product for r in rates} == set(PRODUCTS)


def test_rates_assume_all_compute_units_at_the_clock_on_paper():
    assert KERNEL.tflops("MI300X", 4096) == pytest.approx((638.4, 510.72))


def words(line):
    return " ".join(line.split())


def test_the_report_has_the_worst_range_first_and_then_every_row():
    rates = [rate("MI300X", 600), rate("MI300X", 500, batch=4), rate("MI355X", 307.2, causal=True)]
    text = report(rates, KERNELS)
    _, worst, better = map(words, summary(text).splitlines())
    assert worst == "causal, 1 shapes MI355X 1024 307 to 307 614 +100% to +100% 492 +60% to +60%"
    assert better == "all keys, 2 shapes MI300X 1024 500 to 600 638 +6% to +28% 511 -15% to +2%"
    rows = text.removeprefix(summary(text)).strip().splitlines()[1:]
    assert words(rows[0]) == "MI300X no 1 8 8 1024 600.0 638.4 +6% 510.7 -15%"
    assert len(rows) == 3


def test_the_accepted_report_has_all_rows():
    text = (CHECKOUT / ERRORS).read_text()
    assert len(text.splitlines()) == len(summary(text).splitlines()) + 2 + 188


def test_the_documented_errors_are_those_of_the_figures():
    """Modelled over published, of the plain schedule."""
    _, rows = (CHECKOUT / ERRORS).read_text().split("\n\n")
    cells = [row.split() for row in rows.splitlines()[1:]]
    times = [
        (int(keys), causal, 1 + int(error.rstrip("%")) / 100)
        for _, causal, *_, keys, _, _, error, _, _ in cells
    ]
    assert len(times) == 188
    long = [each for keys, _, each in times if keys >= 8192]
    short = [each for keys, causal, each in times if (keys, causal) == (1024, "yes")]
    text = " ".join((CHECKOUT / "docs/modelled.md").read_text().split())
    assert f"AMD's own assembly is {min(long):.1f} to {max(long):.1f} times as fast in the schedule" in text
    assert f"up to {max(short):.1f} times on causal ones of 1,024 keys" in text

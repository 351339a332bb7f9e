import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.counters import Line
from wheel_builder.extras.perf.published import (
    ERRORS,
    OPS,
    PRODUCTS,
    RATES,
    Kernel,
    Rate,
    Row,
    read_rates,
    report,
    rows_of,
    summary,
)

# 1000 FLOP a clock for the plain schedule, 900 with the port, 800 for the exclusive one, at any length.
KERNEL = Kernel(Line(0, 900), (Line(0, 0.9), Line(0, 1), Line(0, 1.125)))
LONG, SHORT = 8192, 1024
KERNELS = {(product, op, causal): KERNEL for product in PRODUCTS for op in OPS for causal in (False, True)}


def rate(product, tflops, **changed):
    call = {"op": "fwd", "batch": 1, "heads": 8, "heads_k": 8, "seqlen": 1024, "causal": False, **changed}
    return Rate(product, **call, tflops=tflops)


def test_every_published_row_is_read_for_each_op_and_gpu():
    rates = read_rates(CHECKOUT / RATES)
    assert len(rates) == 3 * 188
    assert rates[0] == rate("MI300X", 338.07, heads=32)
    assert {r.product for r in rates} == set(PRODUCTS)
    last = {"batch": 1, "heads": 64, "heads_k": 4, "seqlen": 16384, "causal": True}
    assert rate("MI300X", 458.065, op="bwd_a16", **last) in rates
    assert rates[-1] == rate("MI355X", 809.685, op="bwd_a32", **last)


def test_rates_assume_all_compute_units_at_the_clock_on_paper():
    assert KERNEL.tflops("MI300X", 4096) == pytest.approx((638.4, 574.56, 510.72))


def words(line):
    return " ".join(line.split())


def test_the_report_has_the_worst_range_first_and_then_every_row():
    rates = [
        rate("MI300X", 600), rate("MI300X", 500, batch=4),
        rate("MI355X", 307.2, causal=True), rate("MI300X", 400, op="bwd_a32"),
    ]  # fmt: skip
    text = report(rates, KERNELS)
    _, worst, gradients, better = map(words, summary(text).splitlines())
    causal = (
        "fwd causal, 1 shapes MI355X 1024 307 to 307 614 +100% to +100% 553 +80% to +80% 492 +60% to +60%"
    )
    assert worst == causal
    assert gradients.startswith("bwd_a32 all keys, 1 shapes MI300X 1024 400 to 400 638 +60% to +60%")
    spread = "638 +6% to +28% 575 -4% to +15% 511 -15% to +2%"
    assert better == f"fwd all keys, 2 shapes MI300X 1024 500 to 600 {spread}"
    rows = text.removeprefix(summary(text)).strip().splitlines()[1:]
    assert words(rows[0]) == "MI300X fwd no 1 8 8 1024 600.0 638.4 +6% 574.6 -4% 510.7 -15%"
    assert len(rows) == 4
    assert [*rows_of(text)][2] == Row("MI355X", "fwd", True, 1024, 307.2, 614.4, 553.0, 491.5)


def test_the_accepted_report_has_all_rows():
    text = (CHECKOUT / ERRORS).read_text()
    assert len([*rows_of(text)]) == 3 * 188
    assert len(text.splitlines()) == len(summary(text).splitlines()) + 2 + 3 * 188


@pytest.fixture(scope="module")
def document():
    return " ".join((CHECKOUT / "docs/modelled.md").read_text().split())


@pytest.fixture(scope="module")
def accepted():
    return [*rows_of((CHECKOUT / ERRORS).read_text())]


def times(rows):
    """Modelled over published, of the plain schedule: the least and the most, as the document has them."""
    errors = [row.modelled / row.published for row in rows]
    return f"{min(errors):.1f} to {max(errors):.1f} times"


def test_the_documented_errors_are_those_of_the_figures(accepted, document):
    forwards = [row for row in accepted if row.op == "fwd"]
    long = times(row for row in forwards if row.seqlen >= LONG)
    short = times(row for row in forwards if row.seqlen == SHORT and row.causal)
    assert f"AMD's own assembly forward is {long} as fast in the schedule" in document
    assert f"up to {short.partition(' to ')[2]} on causal ones of 1,024 keys" in document


def test_the_documented_errors_of_gradients_are_those_of_the_figures(accepted, document):
    a16, a32 = (
        times(row for row in accepted if row.op == op and row.seqlen >= LONG) for op in ("bwd_a16", "bwd_a32")
    )
    assert f"Its backward is {a16} as fast with sums of dq in bf16, {a32} in fp32" in document

"""The longest launch where Windows resets GPUs, and how launches are split.

Tests of the functions with tensors are in tests/installed/wheel/serving/test_resets.py.
"""

import math
from itertools import product

import pytest

from tests.fast.unit.kernels.test_screens import package  # noqa: F401 - a fixture
from wheel_builder.tables.archs import known_archs

# An RX 7600: 32 compute units.
CODE, UNITS = "gfx1102", 32


@pytest.fixture
def resets(package):  # noqa: F811
    return package("serving.resets")


def sizes(resets, **changed):
    """Sizes of an image model's call: 24 heads of 128, 16,384 tokens, twice."""
    found = resets.Sizes(2, 16384, 16384, 16384, 24, 24, 128, -1, -1, packed=False)
    return found._replace(**changed)


def forward(resets, *, reference=False, splits=1, dropout=False, **changed):
    return resets.forward(sizes(resets, **changed), reference=reference, splits=splits, dropout=dropout)


def seen(rows, keys, left, right):
    """Counted one by one, by the kernels' rule: the diagonal is aligned to the bottom right corner."""
    found = 0
    for row, key in product(range(rows), range(keys)):
        diagonal = row + keys - rows
        found += (left < 0 or key >= diagonal - left) and (right < 0 or key <= diagonal + right)
    return found


@pytest.mark.parametrize("rows", [1, 2, 7, 12])
@pytest.mark.parametrize("keys", [1, 3, 7, 20])
@pytest.mark.parametrize(("left", "right"), [(-1, -1), (-1, 0), (-1, 2), (2, 0), (3, 3), (4, -1)])
def test_no_pair_is_left_out_of_the_estimate(resets, rows, keys, left, right):
    exact, found = seen(rows, keys, left, right), resets.pairs(rows, keys, left, right)
    assert exact <= found <= rows * keys
    if left < 0:
        assert found == exact


def test_the_rate_is_that_of_the_units_on_paper(resets):
    work = forward(resets)
    assert work.flop == 4 * 2 * 24 * 16384**2 * 128
    rate = 512 * 2.655e9 * UNITS * resets.SHARE
    assert resets.seconds(work, CODE, UNITS) == pytest.approx(work.flop / rate)
    assert resets.seconds(work, CODE, 2 * UNITS) == pytest.approx(resets.seconds(work, CODE, UNITS) / 2)
    assert resets.seconds(work, CODE, 0) == 0, "host memory of tests"
    assert resets.seconds(work, "gfx900", UNITS) == 0, "no kernels, no launch"


def test_every_arch_has_a_rate(resets):
    assert set(resets.RATES) == set(known_archs())


# Peak TFLOP/s from AMD's data sheets: dense half-precision matrices.
@pytest.mark.parametrize(
    ("code", "units", "tflops"),
    [
        ("gfx908", 120, 184.6), ("gfx90a", 110, 191.5), ("gfx942", 304, 1307.4), ("gfx950", 256, 2516.6),
        ("gfx1030", 80, 46.1), ("gfx1100", 96, 122.9), ("gfx1102", 32, 43.5), ("gfx1151", 40, 59.4),
        ("gfx1201", 64, 194.6),
    ],
)  # fmt: skip
def test_rates_are_those_of_the_data_sheets(resets, code, units, tflops):
    rate = resets.RATES[code]
    assert rate.flop * rate.clock * units / 1e12 == pytest.approx(tflops, rel=0.01)


@pytest.mark.parametrize("code", ["gfx1030", "gfx1100", "gfx1201"])
def test_the_slow_kernel_takes_far_longer(resets, code):
    fast, slow = (resets.seconds(forward(resets, reference=on), code, UNITS) for on in (False, True))
    assert slow > 20 * fast


def test_gradients_take_longer_than_the_forward(resets):
    times = (resets.backward(sizes(resets), dropout=False), forward(resets))
    backward, ahead = (resets.seconds(work, CODE, UNITS) for work in times)
    assert backward == pytest.approx(2.5 * ahead)


def test_packed_sequences_have_no_more_rows_than_there_are(resets):
    many = forward(resets, packed=True, batch=1000, rows=16384, max_seqlen_q=1024, max_seqlen_k=1024)
    alone = forward(resets, packed=False, batch=16, rows=1024, max_seqlen_q=1024, max_seqlen_k=1024)
    assert many.flop == alone.flop
    assert (many.batch, many.heads) == (1, 24), "no call has some of its sequences only"


def test_decoding_takes_the_time_of_its_bytes(resets):
    """32 GiB of keys and values at a twentieth of 288 GB/s."""
    work = forward(resets, batch=64, max_seqlen_q=1, rows=1, max_seqlen_k=1 << 17, nheads=8, nheads_k=8)
    assert work.memory == 32 << 30
    assert resets.seconds(work, CODE, UNITS) == pytest.approx((32 << 30) / (288e9 * resets.SHARE))
    near = forward(resets, batch=64, max_seqlen_q=1, rows=1, window_left=1023, window_right=0, nheads_k=8)
    assert near.memory == 2 * 2 * 64 * 1024 * 8 * 128


def test_writing_into_a_cache_takes_the_time_of_its_bytes(resets):
    work = resets.append(1 << 30)
    assert resets.seconds(work, CODE, UNITS) == pytest.approx((4 << 30) / (288e9 * resets.SHARE))
    assert resets.warning(work, CODE, UNITS) == ""
    assert "writing into a cache: a launch may take up to 1.2 s" in resets.warning(
        resets.append(1 << 32), CODE, UNITS
    )


@pytest.mark.parametrize(
    ("longest", "batch", "heads", "expected"),
    [
        (1.0, 4, 24, (4, 24)),  # as it is
        (1.1, 4, 24, (2, 24)),  # two halves instead of three sequences and one
        (4.0, 4, 24, (1, 24)),
        (4.1, 4, 24, (1, 12)),  # 23 heads would fit, and so would two equal launches
        (96.0, 4, 24, (1, 1)),
        (500.0, 4, 24, (1, 1)),  # at least one
        (5.0, 1, 1, (1, 1)),
    ],
)
def test_how_a_call_is_cut(resets, longest, batch, heads, expected):
    work = resets.Work("forward", batch, heads, 1)
    assert resets.steps(work, longest) == expected


def test_no_launch_is_too_long_where_it_can_be_cut(resets):
    for batch, heads, longest in product((1, 2, 3, 7), (1, 5, 24), (0.5, 1.01, 3.3, 17.0, 160.0)):
        work = resets.Work("forward", batch, heads, 1)
        some, of_heads = step = resets.steps(work, longest)
        part = longest * some * of_heads / (batch * heads)
        assert part <= resets.LONGEST or step == (1, 1)
        assert of_heads == heads or some == 1, "the log-sum-exp of a launch is contiguous"
        assert resets.launches(work, step) == math.ceil(batch / some) * math.ceil(heads / of_heads)


def test_what_is_cut_is_not_warned_of(resets):
    work = forward(resets)
    assert resets.seconds(work, CODE, UNITS) > 3 * resets.LONGEST
    assert resets.warning(work, CODE, UNITS) == ""
    assert resets.words(work, CODE, UNITS) == (
        "divided into 4 launches, the longest of at most 0.76 s by a cautious estimate"
    )


def test_a_short_call_is_one_launch(resets):
    words = resets.words(forward(resets, max_seqlen_q=1024, max_seqlen_k=1024, rows=1024), CODE, UNITS)
    assert words == "one launch of at most 0.012 s by a cautious estimate"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"dropout": True}, "dropout's numbers depend on all heads of all sequences"),
        ({"splits": 4}, "its keys are already split"),
    ],
)
def test_what_cannot_be_cut_is_warned_of(resets, changed, why):
    work = forward(resets, **changed)
    words = resets.warning(work, CODE, UNITS)
    assert words.startswith(
        "forward: a launch may take up to 3 s on this GPU (gfx1102, 32 compute units; a cautious estimate, "
        f"not a measurement), and Windows resets a GPU after two seconds (not divided, because {why})."
    )
    assert "TdrDelay" in words
    assert f"not divided, because {why}" in resets.words(work, CODE, UNITS)


def test_one_head_that_is_too_long_is_warned_of(resets):
    work = forward(resets, max_seqlen_q=1 << 19, max_seqlen_k=1 << 19, rows=1 << 19)
    words = resets.warning(work, CODE, UNITS)
    assert words.startswith("forward: a launch may take up to 65 s on this GPU")
    assert "divided into 48 launches, the longest of at most 65 s" in resets.words(work, CODE, UNITS)


@pytest.mark.parametrize(
    ("system", "release", "expected"),
    [
        ("linux", "6.8.0-48-generic", False),
        ("linux", "5.15.167.4-microsoft-standard-WSL2", True),
        ("win32", "", True),
    ],
)
def test_where_gpus_are_reset(resets, monkeypatch, tmp_path, system, release, expected):
    file = tmp_path / "proc/sys/kernel/osrelease"
    file.parent.mkdir(parents=True)
    file.write_text(release)
    monkeypatch.setattr(resets.sys, "platform", system)
    assert resets.threaten(tmp_path) is expected

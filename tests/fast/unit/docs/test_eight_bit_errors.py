"""Tolerances of attention in 8 bits come from simulated errors, and wrong methods exceed them."""

import ast
import re
from contextlib import suppress
from functools import cache

import pytest

from tests.conftest import CHECKOUT
from tests.tools import eight_bit_errors as simulated
from tests.tools.eight_bit_errors import CHANNELS, FNUZ, FP8, NORMAL, OUTLIERS, SAGE, SAGE_BF16, SCORES, SINKS

OF_KERNELS = "tests/engine/emulator/kernels/test_{}.py"
OF_CALLS = "tests/installed/fake_hip/test_{}.py"
SUITE = "kernels/python/flash_attn_rocm/suite/eight_bits.py"
# A bound is the largest simulated error and a tenth more for other draws, to two digits. The suite's is a
# fifth more, because its calls have fewer numbers.
MORE, MORE_OF_SUITE = (1.03, 1.15), (1.03, 1.25)
BOUNDS = [
    *(
        (OF_KERNELS.format("int8"), "MOST_RMS", kind, (SAGE, SAGE_BF16), MORE)
        for kind in (NORMAL, OUTLIERS, SINKS)
    ),
    *((OF_KERNELS.format("int8"), "OF_SCORES", kind, (SCORES,), MORE) for kind in (NORMAL, OUTLIERS, SINKS)),
    (OF_KERNELS.format("fp8"), "MOST_RMS", NORMAL, (FP8, FNUZ), MORE_OF_SUITE),
    (OF_CALLS.format("int8"), "MOST", "gfx1201", (SAGE, SAGE_BF16), MORE),
    (OF_CALLS.format("int8"), "MOST", "gfx942", (SAGE, SAGE_BF16), MORE),
    (OF_CALLS.format("int8"), "MOST", "gfx1030", (SCORES,), MORE),
    (SUITE, "MOST_RMS", NORMAL, (FP8, FNUZ), MORE_OF_SUITE),
]
errors = cache(simulated.root_mean_squares)


@cache
def constants(path):
    """Constants of a file that need nothing from elsewhere."""
    found = {}
    for each in ast.parse((CHECKOUT / path).read_text("utf-8")).body:
        if isinstance(each, ast.Assign):
            with suppress(NameError, AttributeError):
                exec(compile(ast.Module([each], []), path, "exec"), found)
    return found


def bound(path, name, of):
    found = constants(path)[name]
    return found[of] if isinstance(found, dict) else found


@pytest.mark.parametrize(("path", "name", "of", "methods", "more"), BOUNDS)
def test_a_bound_is_the_simulated_error_and_a_little_more(path, name, of, methods, more):
    kind = of if of in simulated.KINDS else NORMAL
    most = max(max(errors(kind)[method]) for method in methods)
    least, largest = more
    assert least * most <= bound(path, name, of) <= largest * most


def test_the_largest_error_of_calls_in_fp8():
    found = [simulated.largest(20, 64, dim) for dim in (64, 128)]
    most = max(each[name] for each in found for name in (FP8, FNUZ))
    assert 1.2 * most <= bound(OF_CALLS.format("fp8"), "MOST", "") <= 2 * most


def test_wrong_methods_exceed_every_bound_where_a_first_key_takes_most():
    of_kernels = OF_KERNELS.format("int8")
    sinks = {name: min(each) for name, each in errors(SINKS).items()}
    for name in (simulated.AS_IT_IS, simulated.IN_U8):
        assert sinks[name] > 3 * bound(of_kernels, "MOST_RMS", SINKS)
    assert sinks[simulated.NOT_ROTATED] > bound(of_kernels, "OF_SCORES", SINKS)


def test_other_draws_of_the_calls_of_the_page_in_fp8():
    """tests/installed/fake_hip/test_fp8.py holds what kernels give, docs/caches-8-bit.md shows it."""
    own = constants(OF_CALLS.format("fp8"))["ROOT_MEAN_SQUARES"]
    for found in own.values():
        for kind, name in ((NORMAL, "normal"), (CHANNELS, "outliers"), (SINKS, "sinks")):
            most = max(errors(kind)[FP8])
            assert found[name][0] / 1000 == pytest.approx(most, rel=0.15)


def test_the_table_is_the_page_s():
    page = (CHECKOUT / "docs/dev/kernels-forward.md").read_text("utf-8")
    assert "\n".join(simulated.table(errors)) in page


@pytest.mark.parametrize(
    ("call", "begin"),
    [
        ("few", "cache, up to 16 queries | all, in bf16 without RX 5000"),
        ("more", "cache, more queries | all"),
        ("latent", "`mla_decode` | MI200, MI300, MI350, RX 7000, RX 9000, Ryzen with RDNA 3"),
        ("rows", "`mla_decode` over rows of 656 bytes | MI200, MI300, MI350"),
        ("packed", "`mla_decode` over rows of 656 bytes | RX 7000, RX 9000, Ryzen with RDNA 3"),
    ],
)
def test_the_page_has_the_errors_over_caches(call, begin):
    page = (CHECKOUT / "docs/caches-8-bit.md").read_text("utf-8")
    own = constants(OF_CALLS.format("cache_errors"))["ROOT_MEAN_SQUARES"]
    wanted = [own.get((call, kept)) for kept in ("float16", "bfloat16")]
    (found,) = re.findall(rf"^\| {re.escape(begin)} \|[^|]+\| (.+?) \|", page, re.MULTILINE)
    assert found == ", ".join("-" if each is None else f"{each:.2g}" for each in wanted)

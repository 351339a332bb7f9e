"""The table of products of fp8 in docs/caches-8-bit.md: accepted figures, and the errors of the tests."""

import ast
import re

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.golden import EXCLUSIVE, FIGURES, FLOP, parse_figures
from wheel_builder.extras.site.modelled import OURS

PAGE = (CHECKOUT / "docs/caches-8-bit.md").read_text("utf-8")
ROWS = re.findall(r"^\| head dim (\d+) \| (.+?) \| `fp8` \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
ARCHS = {"MI300X": "gfx942", "MI350": "gfx950", "RX 9000": "gfx1201"}
ALONE = "exponentials alone "  # on GPUs with a second figure


def errors():
    """ROOT_MEAN_SQUARES of the tests with kernels: (arch, head dim) -> kind of numbers -> of fp8, of bf16."""
    tree = ast.parse((CHECKOUT / "tests/installed/fake_hip/test_fp8.py").read_text("utf-8"))
    (found,) = (
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "ROOT_MEAN_SQUARES"
    )
    return ast.literal_eval(found)


def speeds(arch, head_dim, what):
    """Of products of fp8, and of the fastest kernel of fp16, with 2,048 keys."""
    figures = parse_figures(arch, (CHECKOUT / FIGURES / f"{arch}.toml").read_text("utf-8"))
    found = {each.kernel: each.value for each in figures if (each.what, each.maker) == (what, OURS)}
    plain = max(found.get(f"{op} 2048 fp16 d{head_dim}", 0) for op in ("fwd", "fwd_tall"))
    return f"{found[f'fwd_fp8 2048 bf16 d{head_dim}']} : {plain}"


def test_it_has_a_row_of_each_kernel():
    assert {(ARCHS[gpu], int(dim)) for dim, gpu, *_ in ROWS} == errors().keys()


@pytest.mark.parametrize(("dim", "gpu", "shown", "speed"), ROWS)
def test_a_row_has_the_accepted_figures(dim, gpu, shown, speed):
    first, *alone = speed.split(f", {ALONE}")
    assert first == speeds(ARCHS[gpu], dim, FLOP)
    assert alone == ([] if gpu == "RX 9000" else [speeds(ARCHS[gpu], dim, EXCLUSIVE)])
    of_fp8 = [values[0] for values in errors()[ARCHS[gpu], int(dim)].values()]
    assert shown == ", ".join(f"{each:.2g}" for each in of_fp8)

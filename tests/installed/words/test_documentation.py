"""``help`` of each public function is complete for callers, and correct.

These run on every wheel.  Its other tests ignore docstrings: a changed docstring does not repeat them.
"""

import inspect
import re
import typing
from pathlib import Path

import flash_attn_rocm
import pytest
import torch
from flash_attn_rocm import flash_attn_func, flash_attn_interface, mla_decode

FUNCTIONS = [
    "attention",
    *(name for name in flash_attn_rocm.__all__ if name.startswith("flash_attn_")),
]
pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")


def function(name):
    return getattr(flash_attn_rocm, name)


def arguments(text):
    """The text of each argument."""
    listed = text.partition("\nArgs:\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_explained(name):
    found = arguments(function(name).__doc__)
    assert sorted(found) == sorted(inspect.signature(function(name)).parameters)
    assert all(len(text) > 10 for text in found.values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_has_shapes_dtypes_formulas_results_errors_and_the_source(name):
    text = inspect.getdoc(function(name))
    assert max(map(len, text.splitlines())) <= 110
    for words in (
        "headdim)", "torch.float16", "torch.bfloat16", "headdim ** -0.5", "j <= i + seqlen_k - seqlen_q",
        "softcap * tanh(s / softcap)", "both ends included", "\nReturns:\n    out", "+inf",
        "\nRaises:\n    FlashAttnArgumentError", "FlashAttnUnsupportedError", "\nSource:\n    ", "arXiv:",
    ):  # fmt: skip
        assert words in text, words


def test_latent_attention_is_explained():
    text = inspect.getdoc(mla_decode)
    assert max(map(len, text.splitlines())) <= 110
    for name in inspect.signature(mla_decode).parameters:
        assert re.search(rf"^    {name}: ", text, re.MULTILINE), name
    for words in ("\nReturns:\n    out", "+inf", "\nRaises:\n    FlashAttnArgumentError", "\nSource:\n    "):
        assert words in text, words


def test_a_parameter_without_words_is_found():
    def unexplained(q, causal=False):
        """Something.

        Args:
            q: (batch, seqlen_q, nheads, headdim).
        """

    assert sorted(arguments(inspect.getdoc(unexplained))) == ["q"]


def visible(rows, keys, **options):
    """The visible keys (columns) of each query: equal scores have equal weights."""
    q, k = torch.zeros(1, rows, 1, 8).half(), torch.zeros(1, keys, 1, 8).half()
    v = torch.eye(keys, 8).half()[None, :, None]
    return (flash_attn_func(q, k, v, **options)[0, :, 0, :keys] > 0).int().tolist()


def test_the_pictures_of_the_causal_mask_are_what_is_computed():
    lines = re.findall(r"^ {12}([ 01]+)$", inspect.getdoc(flash_attn_func), re.MULTILINE)
    rows = [re.fullmatch(r"((?:[01] ){4}[01])? *([01] [01])", line) for line in lines]
    left = [[int(x) for x in row[1].split()] for row in rows if row[1]]
    right = [[int(x) for x in row[2].split()] for row in rows]
    assert left == visible(2, 5, causal=True)
    assert right == visible(5, 2, causal=True)


@pytest.mark.filterwarnings("ignore:window_size")  # an unbounded side is reported once
@pytest.mark.parametrize(("rows", "keys"), [(2, 5), (5, 2), (4, 4)])
@pytest.mark.parametrize("window", [(1, 0), (0, 1), (-1, 0), (2, -1), (-1, -1), (5, 5), (0, 3)])
def test_the_formula_of_the_window_is_what_is_computed(rows, keys, window):
    """i + seqlen_k - seqlen_q - left <= j <= i + seqlen_k - seqlen_q + right. seqlen_k is no limit."""
    left, right = (bound if bound < keys else -1 for bound in window)
    wanted = [
        [
            int(
                (left < 0 or i + keys - rows - left <= j) and (right < 0 or j <= i + keys - rows + right)
            )
            for j in range(keys)
        ]
        for i in range(rows)
    ]  # fmt: skip
    assert visible(rows, keys, window_size=window) == wanted


def test_the_formulas_of_softcap_alibi_and_the_log_sum_exp_are_what_is_computed():
    q, k, v = torch.randn(3, 1, 4, 2, 16, dtype=torch.float64)
    slopes = torch.tensor([0.5, 0.25])
    _, lse, _ = flash_attn_func(
        q, k, v, softmax_scale=2.0, softcap=3.0, alibi_slopes=slopes, return_attn_probs=True
    )
    s = 2.0 * q[0].transpose(0, 1) @ k[0].transpose(0, 1).mT
    distance = (torch.arange(4)[:, None] - torch.arange(4)).abs()
    score = 3.0 * torch.tanh(s / 3.0) - slopes[:, None, None] * distance
    assert torch.allclose(lse[0], score.exp().sum(-1).log(), rtol=1e-12, atol=0)


# Then the stub's overloads are the module's.
STUB = Path(flash_attn_interface.__file__).with_suffix(".pyi")
exec(STUB.read_text(), {"__name__": flash_attn_interface.__name__})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_overloads_have_the_names_and_defaults_of_the_function(name):
    wanted = inspect.signature(function(name)).parameters
    overloads = typing.get_overloads(function(name))
    assert len(overloads) == 3
    for overload in overloads:
        found = inspect.signature(overload).parameters
        assert list(found) == list(wanted)
        for parameter in found.values():
            required = parameter.name.startswith("return_") and parameter.kind is parameter.KEYWORD_ONLY
            default = parameter.empty if required else wanted[parameter.name].default
            assert parameter.default == default
            if not parameter.name.startswith("return_"):
                assert parameter.annotation == wanted[parameter.name].annotation

"""The tables of docs/modelled.md from a few figures."""

import pytest

from wheel_builder.extras.perf.golden import CLOCKS, DECODE, EXCLUSIVE, FLOP, Figure
from wheel_builder.extras.site import modelled
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.extras.site.modelled import (
    by_head_dim,
    latent,
    modelled_figures,
    padded_share,
    padding,
    parts,
    plain_formula,
    tall_loads,
)
from wheel_builder.tables.archs import arch_named


def flop(maker, kernel, value):
    return Figure(FLOP, maker, kernel, value)


def test_ours_is_shown_beside_others():
    found = (
        flop("flash-attn-rocm", "fwd fp16 d64", 700), flop("triton 3.9.0", "fwd fp16 d64", 350),
        Figure(DECODE, "flash-attn-rocm", "fp16 d64", 55),
    )  # fmt: skip
    assert modelled_figures({"gfx908": found}) == markdown(
        [
            ("gfx arch", "kernel", "flash-attn-rocm", "triton"),
            ("gfx908", "fwd fp16 d64", "700", "350 (version 3.9.0; ours is 2.0 times that)"),
        ]
    )


def test_the_exclusive_figures_are_shown_where_there_are_any():
    kernel, others = "fwd fp16 d64", "triton 3.9.0"
    found = (
        flop("flash-attn-rocm", kernel, 1300), Figure(EXCLUSIVE, "flash-attn-rocm", kernel, 1000),
        flop(others, kernel, 650), Figure(EXCLUSIVE, others, kernel, 625),
    )  # fmt: skip
    other = "650 (version 3.9.0; ours is 2.0 times that), exclusive 625 (1.6 times)"
    row = f"| gfx942 | {kernel} | 1300, exclusive 1000 | {other} |"
    assert modelled_figures({"gfx942": found}).splitlines()[2:] == [row]


def test_of_backwards_the_sum_is_shown():
    names = ("bwd_delta fp16 d64", "bwd_dq causal fp16 d64", "separate fp16 d64")
    shown = modelled_figures({"gfx908": [flop("flash-attn-rocm", name, 7) for name in names]})
    assert shown.splitlines()[2:] == ["| gfx908 | separate fp16 d64 | 7 |"]


def test_a_row_for_each_head_dim_and_an_empty_cell_for_a_missing_kernel():
    """Rows of Triton's kernels, of any version."""
    found = (
        flop("flash-attn-rocm", "fwd fp16 d64", 7), flop("flash-attn-rocm", "fwd fp16 d128", 8),
        flop("triton 3.9.0", "fwd fp16 d128", 5), Figure(EXCLUSIVE, "flash-attn-rocm", "fwd fp16 d64", 1),
    )  # fmt: skip
    columns = {"ours": "fwd fp16", "Triton": "triton fwd fp16"}
    assert by_head_dim({"gfx908": found}, columns).splitlines() == [
        "| gfx arch | head dim | ours | Triton |", "| --- | --- | --- | --- |",
        "| gfx908 | 64 | 7 |  |", "| gfx908 | 128 | 8 | 5 |",
    ]  # fmt: skip
    only = by_head_dim({"gfx908": found}, columns, needs="triton fwd fp16")
    assert only.splitlines()[2:] == ["| gfx908 | 128 | 8 | 5 |"]


def half_as_fast(mask_ranges):
    """Figures of kernels that take twice the time without padding, with linearly growing clocks."""
    ours = "flash-attn-rocm"
    for dim in (64, 128):
        for keys in ("", " 2048"):
            yield flop(ours, f"fwd{keys} fp16 d{dim}", 500)
            yield flop(ours, f"fwd_masked padding{keys} fp16 d{dim}", 1000)
    yield Figure(CLOCKS, ours, "mask_ranges fp16 k4096", mask_ranges)
    yield flop(ours, "fwd_masked bool fp16 d64", 1000)


def test_padding_of_half_the_keys():
    arch = arch_named("gfx942")
    found = (*half_as_fast(0),)
    moved = 4096**2 / arch.model.memory
    whole = 16 * 4 * 4096**2 * 64 / (500 * arch.compute_units * arch.model.clock)
    assert padded_share(arch, found, 64) == pytest.approx(0.5 + moved / whole)
    clocks = round(arch.model.clock / 1000)
    shown = padding({"gfx942": (*half_as_fast(clocks),)})
    assert shown.splitlines()[2].endswith("| 1000 |"), "microseconds of a kernel that takes a millisecond"


def test_the_plain_formula_moves_the_scores_six_times():
    arch = arch_named("gfx908")
    kernel = 4 * 64 / (1000 * arch.compute_units * arch.model.clock)
    share = 12 / arch.model.memory / kernel
    shown = plain_formula({"gfx908": (*half_as_fast(0),)})
    assert shown.splitlines()[2:] == [f"| gfx908 | {arch.model.name} | {share:.1f} |"]


def test_tall_workgroups_load_keys_half_as_often():
    """256 rows and 2048 keys: 524,288 bytes of keys and 32,768 of rows, for 134,217,728 FLOP."""
    arch = arch_named("gfx1151")
    found = [flop("flash-attn-rocm", f"{op} 2048 fp16 d64", 500) for op in ("fwd", "fwd_tall")]
    shares = (
        500 * loaded / work * arch.compute_units * arch.model.clock / arch.model.memory
        for loaded, work in ((524_288 + 16_384, 67_108_864), (524_288 + 32_768, 134_217_728))
    )
    assert tall_loads({"gfx1151": found, "gfx942": found[:1]}).splitlines()[2:] == [
        f"| gfx1151 | 64 | {' | '.join(f'{share:.2f}' for share in shares)} |"
    ]


def test_one_heading_is_true_of_all_tall_workgroups(monkeypatch):
    found = [
        flop("flash-attn-rocm", f"{op} 2048 fp16 d{dim}", 500)
        for op in ("fwd", "fwd_tall")
        for dim in (64, 128)
    ]
    assert "| 128 rows | 256 rows |" in tall_loads({"gfx1151": found})
    monkeypatch.setattr(modelled, "_rows", lambda _arch, _op, head_dim: head_dim)
    with pytest.raises(ValueError, match="too many values"):
        tall_loads({"gfx1151": found})


def test_parts_take_a_quarter_of_the_time_where_all_run_at_once():
    """64 workgroups in 4 parts on 304 compute units. gfx90a has 104."""
    arch = arch_named("gfx942")
    clocks = 4 * 64 * 4096 * 512 // 800
    found = [flop("flash-attn-rocm", "fwd_wide fp16 d512", 800)]
    whole, moved = clocks / arch.model.clock * 1e6, 2 * 33_554_432 / arch.model.memory * 1e6
    assert parts({"gfx942": found, "gfx90a": found}).splitlines()[2:] == [
        f"| gfx942 | {arch.model.name} | {whole:.0f} | {whole / 4:.0f} | {moved:.0f} |"
    ]


def test_latent_attention_is_shown_where_it_has_kernels():
    found = [Figure(DECODE, "flash-attn-rocm", f"{dtype} d576", 90) for dtype in ("fp16", "bf16")]
    other = [Figure(DECODE, "flash-attn-rocm", "fp16 d64", 55)]
    shown = latent({"gfx90a": found, "gfx1030": other})
    assert shown.splitlines()[2:] == ["| gfx90a | 0.90 | 0.90 |"]

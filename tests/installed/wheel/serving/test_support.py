"""The answering implementation: the registry decides, with a reason in words.

One warning each, an error in strict mode.
"""

import json
import re
import warnings
from dataclasses import replace

import flash_attn_rocm
import pytest
import torch
from archs import ARCH, archs_with
from flash_attn_rocm import (
    FlashAttnFallbackWarning,
    FlashAttnUnsupportedError,
    attention,
    explain,
    flash_attn_func,
    is_supported,
    set_strict,
)
from flash_attn_rocm.autograd import recall
from flash_attn_rocm.library import host, plans, regimes, tuned
from flash_attn_rocm.library.host import gpus, instances, row_ids
from flash_attn_rocm.library.plans import Plan
from flash_attn_rocm.serving import machine, support
from flash_attn_rocm.values.kinds import ATTENDING, MASKED, TILED


def forward():
    """The kernels for one head dim."""
    return [each for each in instances() if each.op == "fwd"]


def archs():
    return list(dict.fromkeys(arch for each in instances() for arch in each.archs))


def test_the_registry_is_not_empty():
    rows = json.loads(torch.ops.flash_attn_rocm.instances())
    assert rows
    for row in rows:
        head_dim = f"_d{row['head_dim']}" if row["head_dim"] else ""  # 0: any
        assert row["name"] == f"fa_{row['op']}_{row['dtype']}{head_dim}"
    assert all(row["archs"] for row in rows)


def test_every_kernel_for_one_head_dim_has_a_row_id_on_each_of_its_archs():
    tiled = {(arch, each.name) for each in instances() if each.op in TILED for arch in each.archs}
    assert row_ids().keys() == tiled
    assert len(set(row_ids().values())) == len(tiled) > 0
    assert all(re.fullmatch("[0-9a-f]{8}", row) for row in row_ids().values())


def test_the_compiler_selects_the_rows(monkeypatch):
    """Of gfx942's forward, which has a row for compilers before clang 22."""
    [one, *_] = forward()
    found = []
    for clang in (21, 22):
        made = replace(one, name="fa_fwd_fp16_d64", archs=("gfx942",), clang=clang)
        monkeypatch.setattr(host, "instances", lambda made=made: (made,))
        found.append(host.row_ids.__wrapped__()["gfx942", "fa_fwd_fp16_d64"])
    assert len(set(found)) == 2


def test_explain_names_the_row_and_its_reports(qkv, kernels_on, monkeypatch):
    arch = arch_with_kernels()
    kernels_on(arch)
    found = explain(*qkv)
    name = f"fa_{ATTENDING[found.path]}_fp16_d64"
    row = row_ids()[arch, name]
    monkeypatch.setattr(support, "measured", dict)
    assert explain(*qkv).row == f"{name}: row {row}, modelled; measured by 0 reports"
    monkeypatch.setattr(support, "measured", lambda: {row: 1})
    assert explain(*qkv).row == f"{name}: row {row}, modelled; measured by 1 report"


# Queries, keys, heads of q and of k, and a causal mask.
REGIMES = {
    (1, 4096, 8, 8, False): "decode",
    (16, 4096, 8, 1, True): "decode",
    (17, 4096, 8, 1, False): "gqa",
    (17, 4096, 8, 1, True): "causal",
    (4096, 2047, 1, 1, False): "short",
    (2048, 2048, 1, 1, False): "long",
    (2048, 2048, 1, 1, True): "long-causal",
    (2048, 2048, 2, 1, False): "long-gqa",
}


@pytest.mark.parametrize("sizes", REGIMES)
def test_explain_names_the_regime_and_its_evidence(kernels_on, sizes):
    kernels_on(arch_with_kernels())
    queries, keys, heads, heads_k, causal = sizes
    q, k = (torch.zeros(1, rows, n, 64).half() for rows, n in ((queries, heads), (keys, heads_k)))
    found = explain(q, k, k, causal=causal)
    assert found.regime == f"{REGIMES[sizes]}: modelled"
    assert (found.path == "split") == (REGIMES[sizes] == "decode")


def test_evidence_is_that_of_the_first_row_that_fits(monkeypatch):
    rows = (
        ("two reports", ("long",), ("gfx942",), ("fp16",), (64, 128)),
        ("one report", (), ("gfx942",), (), ()),
        ("modelled", (), (), (), ()),
    )
    monkeypatch.setattr(regimes, "EVIDENCE", rows)
    call = ("long", "gfx942:sramecc+:xnack-", "fp16", 128)
    assert regimes.evidence_of(*call) == "two reports"
    for place, other in enumerate(("short", "gfx90a", "bf16", 256)):
        words = "modelled" if other == "gfx90a" else "one report"
        assert regimes.evidence_of(*call[:place], other, *call[place + 1 :]) == words


def test_a_regime_holds_both_ends_of_its_bounds(monkeypatch):
    every = ((0, 0), (0, 0), (0, 0))
    bounds = {"shared": ((2, 4), (0, 0), (8, 0), False), "rest": (*every, None)}
    monkeypatch.setattr(regimes, "REGIMES", bounds)
    of, sizes = regimes.regime_of, [(queries, 1, width) for queries in (1, 2, 4, 5) for width in (7, 8)]
    found = [of(*each, causal=False) for each in sizes]
    assert found == ["rest", "rest", "rest", "shared", "rest", "shared", "rest", "rest"]
    assert {of(*each, causal=True) for each in sizes} == {"rest"}


def test_a_masked_calls_row_is_that_of_the_masked_kernel(qkv, kernels_on):
    arch = arch_with_kernels()
    kernels_on(arch)
    q, k, v = qkv
    mask = torch.rand(q.shape[0], 1, q.shape[1], k.shape[1]) > 0.5
    name = f"fa_{ATTENDING[MASKED]}_fp16_d64"
    found = explain(attention, q, k, v, attn_mask=mask).row
    assert found.startswith(f"{name}: row {row_ids()[arch, name]}, modelled")


# Options, head dims of q and v, the path, and what launches.
GRADIENTS_OF = {
    "separate": ({"deterministic": True}, (64, 64), ("bwd_dkdv", "bwd_dq"), 64),
    "fused": ({}, (64, 64), ("bwd_fused",), 64),
    "padded": ({"deterministic": True}, (40, 40), ("bwd_dkdv", "bwd_dq"), 64),
    "uneven": ({}, (192, 128), ("bwd_dkdv_uneven", "bwd_dq_uneven"), 192),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=pytest.mark.needs_kernels(GRADIENTS_OF[what][2][0])) for what in GRADIENTS_OF],
)
def test_the_rows_of_gradients_are_those_of_their_kernels(kernels_on, what):
    """Also that a kept row takes a place: ``tune --apply`` keeps some of gradients."""
    options, (head_dim, of_v), ops, padded = GRADIENTS_OF[what]
    arch = archs_with(ops[0])[0]
    kernels_on(arch)
    q, k, v = (torch.zeros(1, 33, 4, size, dtype=torch.float16) for size in (head_dim, head_dim, of_v))
    found = explain(q, k, v, **options).backward_row
    names = [f"fa_{op}_fp16_d{padded}" for op in ops]
    rows = [f"{name}: row {row_ids()[arch, name]}, modelled; measured by 0 reports" for name in names]
    assert found == "; ".join(rows)


@pytest.mark.needs_kernels("bwd_dq_masked")
def test_the_rows_of_masked_gradients(qkv, kernels_on):
    kernels_on(archs_with("bwd_dq_masked")[0])
    q, k, v = qkv
    mask = torch.rand(q.shape[0], 1, q.shape[1], k.shape[1]) > 0.5
    names = [f"fa_{op}_fp16_d64" for op in ("bwd_dkdv_masked", "bwd_dq_masked")]
    found = explain(attention, q, k, v, attn_mask=mask).backward_row
    assert [each.partition(": ")[0] for each in found.split("; ") if each.startswith("fa_")] == names


@pytest.mark.needs_kernels("bwd_dq")
def test_a_kept_row_of_gradients_is_named(qkv, kernels_on, monkeypatch, tmp_path):
    arch = archs_with("bwd_dq")[0]
    kernels_on(arch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = "fa_bwd_dq_fp16_d64"
    winner = tuned.Winner("aaaaaaaa", row_ids()[arch, name], 1.1)
    gpu = machine.current().gpu(qkv[0].device)
    tuned.keep(gpu, "c" * 64, {name: {"decode": winner}})
    words = (
        f"; row aaaaaaaa is used instead of {winner.shipped}, kept by {tuned.COMMAND} for decode calls on "
    )
    found = explain(*qkv, causal=True, deterministic=True)
    assert f"{name}: row {winner.shipped}, modelled; measured by 0 reports{words}" in found.backward_row
    assert "aaaaaaaa" not in found.row
    tuned.kept.cache_clear()


def test_what_has_no_row_names_none(qkv, kernels_on):
    kernels_on("gfx900")
    assert explain(*qkv).row == ""
    assert explain(*qkv).backward_row == ""
    assert support.row_words(torch.device("cpu"), "reference", "fp16", 64) == ""
    assert support.row_words(torch.device("cpu"), "", "fp16", 64) == ""


def test_every_instance_is_served_on_each_of_its_archs_and_elsewhere_padded_or_by_the_reference_kernel():
    for each in forward():
        larger = [one for one in forward() if one.dtype == each.dtype and one.head_dim >= each.head_dim]
        for arch in archs():
            served = any(arch in one.archs for one in larger)
            for name in (arch, f"{arch}:sramecc+:xnack-"):
                found = is_supported(name, each.dtype, each.head_dim)
                assert (found.ok, found.path != "reference") == (True, served)


def test_dtype_may_be_torchs():
    arch = instances()[0].archs[0]
    assert is_supported(arch, torch.float16, 64) == is_supported(arch, "fp16", 64)
    assert "torch.float32" in is_supported(arch, torch.float32, 64).reason


@pytest.mark.parametrize("arch", ["gfx900", "gfx9", "gfx94", "gfx9421", "sm_90", ":xnack-"])
def test_unknown_arch_names_the_wheels_archs(arch):
    found = is_supported(arch, "fp16", 64)
    assert not found
    shown = arch.partition(":")[0] or "an arch without a name"
    assert found.reason == f"this wheel has no kernels for {shown}: it was built for {', '.join(gpus())}"


@pytest.mark.parametrize(("dtype", "head_dim"), [("fp32", 64), ("bf16", 0), ("fp16", 513), ("bf16", 2**40)])
def test_missing_instance_names_what_there_is(dtype, head_dim):
    arch = instances()[0].archs[0]
    reason = is_supported(arch, dtype, head_dim).reason
    shown = min(head_dim, 2**31 - 1)
    assert reason.startswith(f"no fwd kernel for {dtype} with head_dim {shown} on {arch}: this wheel has ")
    for each in (one for one in forward() if arch in one.archs):
        assert each.dtype in reason
        assert str(each.head_dim) in reason


def test_cpu_tensors_are_explained(qkv):
    assert explain(*qkv).reason == "the tensors are on cpu, and kernels run on AMD GPUs"


def test_one_warning_for_each_reason(qkv):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            flash_attn_func(*qkv)
            flash_attn_func(*qkv, causal=True)
            flash_attn_func(*qkv, softcap=1.0)
    assert [each.category for each in caught] == [FlashAttnFallbackWarning]
    assert "the tensors are on cpu, and kernels run on AMD GPUs" in str(caught[0].message)
    assert {each.filename for each in caught} == {__file__}


def test_strict_mode_raises_with_the_reason(qkv):
    set_strict(True)
    assert flash_attn_rocm.is_strict()
    with pytest.raises(FlashAttnUnsupportedError, match="the tensors are on cpu") as caught:
        flash_attn_func(*qkv)
    assert "next:" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "strict"),
    [("1", True), ("yes", True), ("On", True), ("0", False), ("", False), ("false", False), ("no", False)],
)
def test_strict_mode_by_the_environment(monkeypatch, value, strict):
    """FLASH_ATTN_ROCM_STRICT=false made it strict."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_STRICT", value)
    assert flash_attn_rocm.is_strict() is strict
    set_strict(not strict)
    assert flash_attn_rocm.is_strict() is not strict


def test_a_wrong_value_in_the_environment_is_an_error(monkeypatch, qkv):
    monkeypatch.setenv("FLASH_ATTN_ROCM_STRICT", "2")
    words = "FLASH_ATTN_ROCM_STRICT: expected 0, 1 or nothing, got '2'\n  next: unset it, or set it to 0 or 1"
    with pytest.raises(ValueError, match=words):
        flash_attn_func(*qkv)


def arch_with_kernels():
    """The first arch with gradients of all head dims. A wheel may lack such ones."""
    archs = instances()[0].archs
    trained = [each.archs for each in instances() if each.op == "bwd_dq"]
    return next((arch for arch in archs if all(arch in each for each in trained)), archs[0])


def test_a_device_of_an_unsupported_arch_gets_the_reason_and_an_answer(qkv, kernels_on):
    with pytest.warns(FlashAttnFallbackWarning, match="on cpu"):
        expected = flash_attn_func(*qkv, causal=True)
    kernels_on("gfx900")
    with pytest.warns(
        FlashAttnFallbackWarning, match="this wheel has no kernels for gfx900: it was built for"
    ):
        assert torch.equal(flash_attn_func(*qkv, causal=True), expected)


def test_a_device_of_an_unsupported_arch_gets_the_reason_in_strict_mode(qkv, kernels_on):
    set_strict(True)
    kernels_on("gfx900")
    with pytest.raises(FlashAttnUnsupportedError, match="this wheel has no kernels for gfx900"):
        flash_attn_func(*qkv)


def test_a_device_of_a_supported_arch_reaches_the_kernel_operator(qkv, kernels_on):
    """The operator lacks a host implementation. This error shows that nothing fell back."""
    kernels_on(arch_with_kernels())
    with pytest.raises(NotImplementedError, match=r"flash_attn_rocm::fwd.*'CPU' backend"):
        flash_attn_func(*qkv)


def test_the_kernel_path_gives_outputs_and_gradients_without_a_warning(qkv, host_fwd, host_bwd, kernels_on):
    q, k, v = (x.requires_grad_() for x in qkv)
    with pytest.warns(FlashAttnFallbackWarning):
        expected, expected_lse, _ = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    kernels_on(arch_with_kernels())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out, lse, probabilities = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
        assert not host_bwd
        found = torch.autograd.grad(out.sum(), (q, k, v))
    for (given,) in (host_fwd, host_bwd):
        assert (given["softmax_scale"], given["window_left"], given["window_right"]) == (64**-0.5, -1, 0)
    wanted = torch.autograd.grad(expected.sum(), (q, k, v))
    assert len(host_bwd) == 1
    assert torch.equal(out, expected)
    assert torch.equal(lse, expected_lse)
    assert probabilities.numel() == 0
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_probabilities_after_dropout_stay_with_the_implementation_in_pytorch(qkv, kernels_on):
    kernels_on(arch_with_kernels())
    options = {"dropout_p": 0.5, "return_attn_probs": True}
    found = explain(*qkv, **options)
    assert found.path == "pytorch"
    assert found.reason == "kernels do not return the probabilities (return_attn_probs with dropout_p > 0)"
    with pytest.warns(FlashAttnFallbackWarning, match="kernels do not return the probabilities"):
        assert flash_attn_func(*qkv, **options)[2].shape == (2, 4, 5, 7)


def test_explain_and_is_supported_agree_with_who_answers(qkv, host_fwd, kernels_on):
    for arch in (*archs(), "gfx900"):
        kernels_on(arch)
        recall.forget()
        before = len(host_fwd)
        found = explain(*qkv)
        set_strict(not found.ok)
        if found.ok:
            flash_attn_func(*qkv)
            assert found.path in {"matrix", "tiled", "split", "reference"}
            assert found.reason
        else:
            with pytest.raises(FlashAttnUnsupportedError):
                flash_attn_func(*qkv)
            assert found.path == "pytorch"
        assert len(host_fwd) - before == found.ok
        assert is_supported(arch, torch.float16, 64).ok == found.ok


@pytest.mark.parametrize(
    ("view", "copied"),
    [
        (lambda x: x, False),
        (lambda x: torch.stack([x, x], dim=2)[:, :, 1], False),
        (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), False),
        (lambda x: torch.nn.functional.pad(x, (0, 1))[..., :64], True),
        (lambda x: x.mT.contiguous().mT, True),
        (lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape), True),
    ],
)
def test_a_kernel_gets_a_copy_only_of_what_it_cannot_read(qkv, host_fwd, kernels_on, view, copied):
    q, k, v = (view(x) for x in qkv)
    kernels_on(arch_with_kernels())
    flash_attn_func(q, k, v)
    (call,) = host_fwd
    for given, passed in zip((q, k, v), (call["q"], call["k"], call["v"]), strict=True):
        assert torch.equal(given, passed)
        assert (given.data_ptr() != passed.data_ptr()) == copied
        assert passed.stride(-1) == 1
        assert all(stride % 8 == 0 for stride in passed.stride()[:-1])
        assert passed.storage_offset() % 8 == 0


@pytest.mark.parametrize("head_dim", [8, 40, 59, 111])
def test_other_head_dims_are_padded_to_a_kernels(host_fwd, kernels_on, head_dim):
    """Padding zeros add nothing to a score. The scale is that of the given head dim."""
    q, k, v = (torch.randn(2, rows, 2, head_dim).half().requires_grad_() for rows in (5, 7, 7))
    with pytest.warns(FlashAttnFallbackWarning):
        wanted, wanted_lse, _ = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    arch = arch_with_kernels()
    kernels_on(arch)
    assert is_supported(arch, "fp16", head_dim)
    out, lse, _ = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    (call,) = host_fwd
    assert call["q"].shape[-1] in {each.head_dim for each in instances()}
    assert call["q"].shape[-1] > head_dim
    assert call["softmax_scale"] == head_dim**-0.5
    assert out.shape == q.shape
    assert out.is_contiguous()
    # The zeros only change the order of fp32 sums.
    torch.testing.assert_close(out, wanted, rtol=2**-10, atol=2**-12)
    torch.testing.assert_close(lse, wanted_lse, rtol=1e-6, atol=1e-6)
    found, expected = (torch.autograd.grad(each.sum(), (q, k, v)) for each in (out, wanted))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2**-9, atol=2**-10)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (("split", 7, "32768 keys in 7 parts"), Plan("split", 7, "32768 keys in 7 parts")),
        (("", 1, "no kernel for it"), Plan("", 1, "no kernel for it")),
    ],
)
def test_the_librarys_plan_is_taken(monkeypatch, answer, expected):
    monkeypatch.setattr(plans, "PLAN", lambda *_question: answer)
    plans.plan.cache_clear()
    try:
        assert plans.plan(ARCH, "fp16", 64, 1, 1, 32768, 8, 1, 304, 0, False, True) == expected
    finally:
        plans.plan.cache_clear()


def arguments_of(function):
    """Small valid arguments."""
    q, k = torch.randn(2, 3, 2, 64).half(), torch.randn(2, 5, 2, 64).half()
    cu_q, cu_k = torch.tensor([0, 3, 6], dtype=torch.int32), torch.tensor([0, 5, 10], dtype=torch.int32)
    packed_q, packed_k = q.flatten(0, 1), k.flatten(0, 1)
    return {
        "flash_attn_func": (q, k, k),
        "flash_attn_qkvpacked_func": (torch.stack([q, q, q], 2),),
        "flash_attn_kvpacked_func": (q, torch.stack([k, k], 2)),
        "flash_attn_varlen_func": (packed_q, packed_k, packed_k, cu_q, cu_k, 3, 5),
        "flash_attn_varlen_qkvpacked_func": (torch.stack([packed_q] * 3, 1), cu_q, 3),
        "flash_attn_varlen_kvpacked_func": (packed_q, torch.stack([packed_k] * 2, 1), cu_q, cu_k, 3, 5),
        "flash_attn_with_kvcache": (q, k, k.clone()),
    }[function.__name__]


FUNCTIONS = [
    getattr(flash_attn_rocm, name) for name in flash_attn_rocm.__all__ if name.startswith("flash_attn_")
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_explain_is_for_every_function_and_computes_nothing(function):
    arguments = arguments_of(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = explain(function, *arguments, causal=True)
    assert not found
    assert found.path == "pytorch"
    assert found.reason
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError) as caught:
        function(*arguments, causal=True)
    assert found.reason in str(caught.value)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_warnings_point_to_the_caller(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments_of(function))
    assert [each.filename for each in caught] == [__file__]


def test_explain_takes_only_what_the_function_takes(qkv):
    with pytest.raises(TypeError, match="cache_seqlens"):
        explain(*qkv, cache_seqlens=3)
    with pytest.raises(TypeError, match=r"expected one of flash_attn_func, .*, got explain"):
        explain(explain, *qkv)


FOR_INFERENCE = sorted({*archs_with("fwd")} - {*archs_with("bwd_dq")})


def test_an_arch_without_gradient_kernels_says_so():
    for arch in FOR_INFERENCE:
        found = is_supported(arch, "fp16", 64)
        assert (found.path, found.backward) == ("tiled", "pytorch")
        assert found.backward_reason == (
            f"{arch} has kernels for inference only: call under torch.no_grad(), or train on another GPU"
        )
    assert not any(plans.trains(arch) for arch in FOR_INFERENCE)
    assert all(map(plans.trains, archs_with("bwd_dq")))

"""Answers in 8 bits: their way to the caller. Kernels: tests/installed/fake_hip/test_int8.py."""

import pytest
import sageattention
import torch
from exact import draw
from flash_attn_rocm import attention, explain, quantised
from flash_attn_rocm.serving.support import Support
from sageattention import sageattn

DENSE = [name for name in sageattention.__all__ if name != "sageattn_varlen"]
WORDS = "sageattention of flash-attn-rocm: q and k are rotated and quantised to int8; "


@pytest.fixture
def calls(monkeypatch):
    """Those that ``quantised`` gets. Its answer is the exact one, doubled, with a row that sees no key."""
    found = []

    def attend(*given, keeps_v, **rules):
        found.append((given, {**rules, "keeps_v": keeps_v}))
        out, lse, _ = attention(*given, **rules, return_attn_probs=True)
        lse[:, :, 3] = torch.inf
        return 2 * out, lse

    monkeypatch.setattr(quantised, "attend", attend)
    return found


@pytest.mark.parametrize("layout", ["HND", "NHD"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", DENSE)
def test_every_function_hands_it_out_in_its_layout(calls, name, causal, layout):
    tensors, function = draw(layout), getattr(sageattention, name)
    given = {"tensor_layout": layout, "is_causal": causal, "sm_scale": -0.3}
    q, k, v = (x.transpose(1, 2) if layout == "HND" else x for x in tensors)
    wanted, sums, _ = attention(q, k, v, causal=causal, softmax_scale=-0.3, return_attn_probs=True)
    wanted = 2 * (wanted.transpose(1, 2) if layout == "HND" else wanted)
    assert torch.equal(function(*tensors, **given), wanted)
    out, lse = function(*tensors, return_lse=True, **given)
    assert torch.equal(out, wanted)
    assert lse[:, :, 3].isneginf().all()
    assert torch.equal(lse[:, :, 4:], sums[:, :, 4:])
    assert [rules for _, rules in calls] == [
        {"softmax_scale": -0.3, "causal": causal, "keeps_v": "pv_fp16" in name}
    ] * 2


def test_a_mask_is_told(calls):
    mask = torch.ones(33, 33, dtype=torch.bool)
    sageattn(*draw(), attn_mask=mask)
    assert calls[0][0][3] is mask


def test_explain_says_so(monkeypatch):
    served = Support(ok=True, reason="because", path="int8")
    monkeypatch.setattr(quantised, "explain", lambda *_given, **_rules: served)
    found = explain(sageattn, *draw())
    assert (found.ok, found.path, found.reason) == (True, "int8", f"{WORDS}because")

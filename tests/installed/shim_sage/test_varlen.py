"""Packed sequences against float64."""

import pytest
import torch
from exact import attend, close, draw
from sageattention import sageattn_varlen


def places(lengths, dtype=torch.int32):
    return torch.tensor([0, *lengths], dtype=dtype).cumsum(0, dtype=dtype)


def drawn(lengths_q, lengths_k, *, dtype=torch.float16, heads=4, heads_k=2):
    generator = torch.Generator().manual_seed(1)

    def one(length, count):
        return torch.randn(length, count, 64, generator=generator).to(dtype)

    return one(sum(lengths_q), heads), one(sum(lengths_k), heads_k), one(sum(lengths_k), heads_k)


def wanted_of(tensors, lengths_q, lengths_k, *, causal=False, scale=None):
    q, *kv = (x.transpose(0, 1)[None] for x in tensors)
    parts = zip(q.split(lengths_q, 2), *(x.split(lengths_k, 2) for x in kv), strict=True)
    outs = [attend(*part, causal=causal, scale=scale)[0] for part in parts]
    return torch.cat(outs, 2)[0].transpose(0, 1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("lengths_q", "lengths_k"), [([3, 20, 1], [9, 4, 30]), ([5], [5])])
def test_lengths(lengths_q, lengths_k, dtype):
    tensors = drawn(lengths_q, lengths_k)
    cut = places(lengths_q, dtype), places(lengths_k, dtype)
    found = sageattn_varlen(*tensors, *cut, max(lengths_q), max(lengths_k))
    close(found, wanted_of(tensors, lengths_q, lengths_k))


@pytest.mark.parametrize("same", [True, False], ids=["one tensor", "two tensors"])
def test_causal(same):
    lengths = [3, 20, 1]
    tensors, of_q = drawn(lengths, lengths), places(lengths)
    of_k = of_q if same else of_q.clone()
    found = sageattn_varlen(*tensors, of_q, of_k, 20, 20, is_causal=True, sm_scale=0.2, smooth_k=False)
    close(found, wanted_of(tensors, lengths, lengths, causal=True, scale=0.2))


def test_one_mean_of_keys_is_not_taken_over_all_sequences():
    """SageAttention subtracts the mean over all sequences, so a sequence's answer depends on the others."""
    tensors = drawn([4, 6], [4, 6])
    together = sageattn_varlen(*tensors, places([4, 6]), places([4, 6]), 6, 6)
    alone = sageattn_varlen(*(x[:4] for x in tensors), places([4]), places([4]), 4, 4)
    assert torch.equal(together[:4], alone)


def test_as_wangp_packs_padded_sequences():
    """Each sequence and its padding are a pair: two sequences in places, the second of padding only."""
    q, k, v = draw("NHD", rows=10, keys=8)
    of_q, of_k = (torch.tensor(each, dtype=torch.int32) for each in ([0, 7, 10, 17, 20], [0, 5, 8, 13, 16]))
    found = sageattn_varlen(*(x.reshape(-1, *x.shape[-2:]) for x in (q, k, v)), of_q, of_k, 10, 8)
    found = found.unflatten(0, (2, 10))
    heads = [x.transpose(1, 2) for x in (q[:, :7], k[:, :5], v[:, :5])]
    close(found[:, :7].transpose(1, 2), attend(*heads)[0])

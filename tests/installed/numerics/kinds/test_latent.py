"""Latent attention through its public function (see rule.py)."""

import pytest
import torch
from flash_attn_rocm import explain, mla_decode
from flash_attn_rocm.reference import codes as reference
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from here import CODED_LATENT, LATENT, PACKED_LATENT

SCALE = 192**-0.5
SEQUENCES = 2
PAGE = 64


def tensors(target, dtype, rows, heads, keys):
    generator = torch.Generator().manual_seed(rows * heads)
    sizes = ((rows, heads), (keys, 1))
    values = (torch.randn(SEQUENCES, n, h, 576, generator=generator) for n, h in sizes)
    return [x.to(DTYPES[dtype]).to(target.device) for x in values]


def check(shown, target, name, kernel, sequences, rules):
    assert target.runtime is None or kernel in target.kernels
    judge(shown, target.answering(kernel), name, sequences, rules)


@pytest.mark.parametrize(("dtype", "head_dim"), LATENT)
@pytest.mark.parametrize("splits", [1, 2, 3])
def test_a_cache_in_use(target, shown, dtype, head_dim, splits):
    """A length past the cache's end counts as its end."""
    lengths = (170, 3)
    q, cache = tensors(target, dtype, 2, 5, 100)
    used = torch.tensor(lengths, dtype=torch.int32, device=target.device)
    options = {"softmax_scale": SCALE, "num_splits": splits, "return_softmax_lse": True}
    (out, lse), kernels = target.attend(mla_decode, q, cache, used, **options)
    kernel = f"fa_mla_{dtype}_d{head_dim}"
    wanted = (kernel,) if splits == 1 else (kernel, f"fa_combine_{dtype}")
    assert kernels is None or kernels == wanted
    keys = [cache[b, :n] for b, n in enumerate(lengths)]
    sequences = [Sequence(q[b], k, k[..., :512], out[b], lse[b]) for b, k in enumerate(keys)]
    check(shown, target, "cache", kernel, sequences, Rules(right=0, scale=SCALE))


@pytest.mark.parametrize(("dtype", "head_dim"), LATENT)
def test_blocks_of_a_layer_of_a_cache_of_several(target, shown, dtype, head_dim):
    """Rows of all layers lie side by side, and the dimension of the one head is missing."""
    q, keys = tensors(target, dtype, 1, 16, 2 * PAGE)
    layers = torch.zeros(5, PAGE, 3, 576, dtype=q.dtype, device=target.device)
    table = torch.tensor([[4, 1], [0, 2]], dtype=torch.int32, device=target.device)
    layers[:, :, 1][table.long()] = keys.view(SEQUENCES, 2, PAGE, 576)
    used = torch.tensor([97, 128], dtype=torch.int32, device=target.device)
    cache = layers[:, :, 1].unsqueeze(2)
    (out, lse), _ = target.attend(mla_decode, q, cache, used, block_table=table, return_softmax_lse=True)
    rows = [keys[b, :n] for b, n in enumerate(used.tolist())]
    sequences = [Sequence(q[b], k, k[..., :512], out[b], lse[b]) for b, k in enumerate(rows)]
    check(shown, target, "blocks", f"fa_mla_{dtype}_d{head_dim}", sequences, Rules(right=0))


@pytest.mark.parametrize(("dtype", "head_dim"), LATENT)
def test_rows_that_kernels_cannot_read_are_copied(target, shown, dtype, head_dim):
    q, cache = tensors(target, dtype, 1, 3, 40)
    narrow = torch.zeros(SEQUENCES, 40, 1, 577, dtype=q.dtype, device=target.device)[..., 1:]
    narrow.copy_(cache)
    (out, lse), _ = target.attend(mla_decode, q, narrow, causal=False, return_softmax_lse=True)
    sequences = [Sequence(q[b], cache[b], cache[b, ..., :512], out[b], lse[b]) for b in range(SEQUENCES)]
    check(shown, target, "copied", f"fa_mla_{dtype}_d{head_dim}", sequences, Rules())


# Descales: of sequences, or of keys.
@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("codes", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize(("dtype", "head_dim"), CODED_LATENT)
def test_codes(target, shown, dtype, head_dim, codes, per_key):
    """With as many heads as one rank of eight has, and with more than a workgroup has rows."""
    q, x = tensors(target, dtype, 3, 16, 100)
    x = x.float()
    descale = reference.own_descales(x, getattr(torch, codes))
    of = descale[..., None] if per_key else descale.amax(1)[:, None, :, None]
    cache = reference.encode(x, of, getattr(torch, codes))
    numbers = reference.decode(cache) * of
    options = {
        "num_splits": 2,
        "return_softmax_lse": True,
        "kv_descale": descale if per_key else descale.amax(1),
    }
    (out, lse), _ = target.attend(mla_decode, q, cache, **options)
    kernel = f"fa_mla_8bit_{dtype}_d{head_dim}"
    sequences = [Sequence(q[b], numbers[b], numbers[b, ..., :512], out[b], lse[b]) for b in range(SEQUENCES)]
    check(shown, target, f"{codes}, per key {per_key}", kernel, sequences, Rules(right=0))


@pytest.mark.parametrize(("dtype", "head_dim"), [each for each in LATENT if each[0] == "bf16"])
def test_rows_of_656_bytes(target, shown, dtype, head_dim):
    """In pages, as they are or widened to bf16. One sequence ends within a page, and behind it are NaN."""
    q, keys = tensors(target, dtype, 2, 16, 2 * PAGE)
    latent = keys[..., :512].float().unflatten(-1, (4, 128))
    scales = latent.abs().amax(-1) / 448
    codes = reference.encode(latent, scales[..., None], torch.float8_e4m3fn)
    parts = (codes.flatten(-2), scales, keys[..., 512:].contiguous())
    rows = torch.cat([x.view(torch.uint8) for x in parts], -1)
    rows[0, 97:] = 0xFF
    table = torch.tensor([[4, 1], [0, 2]], dtype=torch.int32, device=target.device)
    pages = torch.zeros(5, PAGE, 656, dtype=torch.uint8, device=target.device)
    pages[table.long()] = rows.view(SEQUENCES, 2, PAGE, 656)
    used = torch.tensor([97, 128], dtype=torch.int32, device=target.device)
    options = {"block_table": table, "num_splits": 1, "return_softmax_lse": True}
    (out, lse), kernels = target.attend(mla_decode, q, pages, used, **options)
    native = (dtype, head_dim) in PACKED_LATENT
    kernel = f"fa_mla_{'rows_' if native else ''}{dtype}_d{head_dim}"
    assert kernels is None or kernels == ((kernel,) if native else (f"fa_widen_{dtype}", kernel))
    numbers = reference.dequantised(codes, scales[..., None], torch.float32 if native else q.dtype).flatten(
        -2
    )
    k = torch.cat((numbers, keys[..., 512:]), -1)
    given = [(b, k[b, :n]) for b, n in enumerate(used.tolist())]
    sequences = [Sequence(q[b], x, x[..., :512], out[b], lse[b]) for b, x in given]
    check(shown, target, "rows of 656 bytes", kernel, sequences, Rules(right=0))


@pytest.mark.parametrize(("dtype", "_head_dim"), LATENT[:1])
def test_what_explain_says(target, dtype, _head_dim):
    q, cache = tensors(target, dtype, 1, 16, 100)
    found = explain(mla_decode, q, cache, num_splits=2)
    assert (bool(found), found.path, found.splits) == (True, "latent", 2)
    assert "100 keys" in found.reason

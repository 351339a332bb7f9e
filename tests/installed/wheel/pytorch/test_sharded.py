"""DTensors: each rank attends to its part of batch and heads. Other placements are a clear error.

A fake process group is enough for one rank's view, because ranks never communicate. Two processes with gloo
show the whole.
"""

import os

import pytest
import torch
from flash_attn_rocm import (
    FlashAttnArgumentError,
    attention,
    explain,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
BATCH, HEADS, WHOLE = Shard(0), Shard(2), Replicate()
CUT = torch.tensor([0, 2, 5], dtype=torch.int32)
RANKS = 2


@pytest.fixture(params=range(RANKS))
def rank(request):
    distributed.init_process_group("fake", rank=request.param, world_size=RANKS, store=FakeStore())
    yield request.param
    distributed.destroy_process_group()


def part(x, dim, rank):
    return x if dim is None else x.chunk(RANKS, dim)[rank]


def sharded(x, dim, rank, mesh):
    placement = WHOLE if dim is None else Shard(dim)
    return DTensor.from_local(part(x, dim, rank).contiguous(), mesh, [placement], run_check=False)


def tensors():
    return [torch.randn(2, n, heads, 64).half() for n, heads in ((5, 4), (7, 2), (7, 2))]


MASK = torch.ones(2, 1, 5, 7).tril().bool()
CALLS = {
    "plain": (flash_attn_func, {"causal": True}),
    "slopes": (flash_attn_func, {"alibi_slopes": torch.tensor([0.1, 0.2, 0.3, 0.4])}),
    "slopes of a batch": (flash_attn_func, {"alibi_slopes": torch.rand(2, 4)}),
    "mask": (attention, {"attn_mask": MASK}),
}


@pytest.mark.parametrize(("function", "options"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("dim", [0, 2, -2, None], ids=["batch", "heads", "heads from behind", "whole"])
def test_a_rank_computes_its_part(rank, dim, function, options):
    mesh, given = init_device_mesh("cpu", (RANKS,)), tensors()
    leaves = [sharded(x, dim, rank, mesh).requires_grad_() for x in given]
    found = function(*leaves, **options)
    whole = [x.requires_grad_() for x in given]
    wanted = function(*whole, **options)
    assert found.shape == wanted.shape
    assert torch.equal(found.to_local(), part(wanted, dim, rank))
    gradients = torch.autograd.grad(found, leaves, torch.ones_like(found))
    for one, other in zip(
        gradients, torch.autograd.grad(wanted, whole, torch.ones_like(wanted)), strict=True
    ):
        assert one.placements == leaves[0].placements
        assert torch.equal(one.to_local(), part(other, dim, rank))


def test_two_dimensions_of_a_mesh(rank):
    mesh = init_device_mesh("cpu", (1, RANKS))
    given = tensors()
    found = flash_attn_func(
        *(
            DTensor.from_local(part(x, 2, rank).contiguous(), mesh, [BATCH, HEADS], run_check=False)
            for x in given
        )
    )
    assert tuple(found.placements) == (BATCH, HEADS)
    assert torch.equal(found.to_local(), part(flash_attn_func(*given), 2, rank))


def test_other_functions(rank):
    mesh, qkv = init_device_mesh("cpu", (RANKS,)), torch.randn(2, 5, 3, 2, 64).half()
    found = flash_attn_qkvpacked_func(sharded(qkv, 3, rank, mesh))
    assert torch.equal(found.to_local(), part(flash_attn_qkvpacked_func(qkv), 2, rank))
    q, kv = qkv[:, :, 0], qkv[:, :, 1:]
    found = flash_attn_kvpacked_func(sharded(q, 0, rank, mesh), sharded(kv, 0, rank, mesh))
    assert torch.equal(found.to_local(), part(flash_attn_kvpacked_func(q, kv), 0, rank))
    rows = [x[0] for x in qkv.unbind(2)]
    wanted = flash_attn_varlen_func(*rows, CUT, CUT, 3, 3, return_attn_probs=True)
    found = flash_attn_varlen_func(
        *(sharded(x, 1, rank, mesh) for x in rows), CUT, CUT, 3, 3, return_attn_probs=True
    )
    assert torch.equal(found[0].to_local(), part(wanted[0], 1, rank))
    assert torch.equal(found[1].to_local(), part(wanted[1], 0, rank))
    assert found[1].shape == wanted[1].shape


def test_other_placements_are_errors(rank):
    mesh, (q, k, v) = init_device_mesh("cpu", (RANKS,)), tensors()

    def refused(*arguments, function=flash_attn_func, **options):
        with pytest.raises(FlashAttnArgumentError) as told:
            function(*arguments, **options)
        assert str(told.value).startswith(f"{function.__name__} cannot use its arguments:\n  - ")
        return str(told.value)

    even, whole = ([sharded(x, dim, rank, mesh) for x in (q, k, v)] for dim in (2, None))
    assert "q: expected shards of batch or heads, or a whole tensor, got (Shard(dim=1),)" in (
        refused(sharded(q, 1, rank, mesh), *even[1:])
    )
    assert "expected shards of batch or heads" in refused(*(sharded(x, 3, rank, mesh) for x in (q, k, v)))
    partial = DTensor.from_local(q, mesh, [Partial()], run_check=False)
    assert "q: expected shards of batch or heads, or a whole tensor, got (Partial" in refused(
        partial, *whole[1:]
    )
    assert "k: expected to be sharded like q, along ('heads',), got ('whole',)" in (
        refused(even[0], *whole[1:])
    )
    assert "k: expected a DTensor like the others, got Tensor" in refused(even[0], k, even[2])
    assert "k: expected heads that 2 ranks share evenly, got 1" in (
        refused(
            even[0],
            *(
                DTensor.from_local(
                    x[:, :, :1], mesh, [HEADS], run_check=False, shape=(2, 7, 1, 64), stride=(448, 64, 64, 1)
                )
                for x in (k, v)
            ),
        )
    )
    assert "dropout_p: expected 0 with sharded DTensors" in refused(*even, dropout_p=0.5)
    rows = [sharded(x[0].repeat(2, 1, 1)[:10], 0, rank, mesh) for x in (q, k, v)]
    assert "q: expected shards of heads, or a whole tensor, got (Shard(dim=0),)" in (
        refused(*rows, CUT, CUT, 3, 3, function=flash_attn_varlen_func)
    )
    assert "expected tensors, got DTensors" in refused(*even, function=flash_attn_with_kvcache)
    assert explain(flash_attn_func, *even) == explain(flash_attn_func, *(x.to_local() for x in even))
    with pytest.raises(FlashAttnArgumentError, match="expected tensors, got DTensors"):
        explain(flash_attn_with_kvcache, *even)


def attends_with_gloo(rank, folder):
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(0)
    given = tensors()
    wanted = flash_attn_func(*given, causal=True)
    for placement in (BATCH, HEADS):
        leaves = [distribute_tensor(x, mesh, [placement]).requires_grad_() for x in given]
        found = flash_attn_func(*leaves, causal=True)
        assert torch.equal(found.full_tensor(), wanted)
        (gradient,) = torch.autograd.grad(found.sum(), leaves[:1])
        assert gradient.full_tensor().shape == given[0].shape
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_processes(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.start_processes(attends_with_gloo, (tmp_path,), nprocs=RANKS, start_method="fork")

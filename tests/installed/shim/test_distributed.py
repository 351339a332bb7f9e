"""Collectives, and cross entropy of a vocabulary cut over ranks: two processes, with gloo."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from flash_attn.losses.cross_entropy import CrossEntropyLoss
from flash_attn.utils import distributed as d

RANKS = 2


def collectives(rank, group):
    own = torch.arange(4.0).reshape(4, 1) + 10 * rank
    both = torch.cat([own - 10 * rank, own - 10 * rank + 10])
    assert torch.equal(d.all_gather_raw(own, group)[0], both)
    assert torch.equal(d.reduce_scatter_raw(own, group)[0], (2 * own + 10 - 20 * rank)[2 * rank :][:2])
    assert torch.equal(d.all_reduce_raw(own.clone(), group)[0], 2 * (own - 10 * rank) + 10)
    output, pending = d.all_gather_raw(own, group, async_op=True)
    pending.wait()
    assert torch.equal(output, both)
    with pytest.raises(ValueError, match="expected a first dimension divisible by 2 ranks, got 3"):
        d.reduce_scatter_raw(own[:3], group)


def gradients(rank, group):
    """Gradients of a sum over both ranks. The weights of its terms differ by rank and row."""
    weights = torch.arange(1.0, 9.0).reshape(8, 1) * (rank + 1)
    own = torch.ones(4, 1, requires_grad=True)
    (d.all_gather(own, group) * weights).sum().backward()
    assert torch.equal(own.grad, torch.arange(1.0, 9.0).reshape(8, 1)[4 * rank :][:4] * 3)
    own = torch.ones(4, 1, requires_grad=True)
    (d.reduce_scatter(own, group) * (rank + 1)).sum().backward()
    assert own.grad.flatten().tolist() == [1, 1, 2, 2]
    own = torch.full((3,), rank + 1.0, requires_grad=True)
    total = d.all_reduce(own, group)
    assert total.tolist() == [3, 3, 3]
    assert own.tolist() == [rank + 1.0] * 3
    (total * 5).sum().backward()
    assert own.grad.tolist() == [5, 5, 5]


def parameters(rank, group):
    model = torch.nn.Linear(2, 1)
    model.weight._shared_params = model.bias._sequence_parallel = True
    with torch.no_grad():
        model.weight.fill_(rank + 1)
        model.bias.fill_(rank + 1)
    d.sync_shared_params(model, group)
    assert model.weight.tolist() == [[1, 1]]
    assert model.bias.tolist() == [rank + 1]
    model(torch.ones(1, 2)).sum().backward()
    d.allreduce_sequence_parallel_grad(model, group)
    assert model.bias.grad.tolist() == [2]
    assert model.weight.grad.tolist() == [[1, 1]]


def vocabulary(rank, group):
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 10), torch.tensor([0, 4, 5, 9, -100, 7])
    options = {"label_smoothing": 0.1, "logit_scale": 0.8, "lse_square_scale": 0.01}
    whole = logits.clone().requires_grad_()
    wanted = CrossEntropyLoss(**options)(whole, labels)
    part = logits[:, 5 * rank :][:, :5].clone().requires_grad_()
    found = CrossEntropyLoss(**options, process_group=group)(part, labels)
    torch.testing.assert_close(found, wanted)
    found.backward()
    wanted.backward()
    torch.testing.assert_close(part.grad, whole.grad[:, 5 * rank :][:, :5])


def rank_main(rank, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=RANKS)
    for check in (collectives, gradients, parameters, vocabulary):
        check(rank, dist.group.WORLD)
    dist.destroy_process_group()


def test_two_ranks(tmp_path):
    mp.spawn(rank_main, (str(tmp_path / "ranks"),), nprocs=RANKS)


def test_shares_of_a_dimension():
    assert [d.get_dim_for_local_rank(12, 5, rank, 2) for rank in range(5)] == [4, 2, 2, 2, 2]

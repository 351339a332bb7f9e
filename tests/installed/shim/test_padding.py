"""Padded batches to packed sequences and back. unpad_input and pad_input are tested with the wheel."""

import sys
from importlib import reload
from types import SimpleNamespace

import pytest
import torch
from flash_attn import bert_padding


@pytest.fixture
def reloaded(monkeypatch):
    """The module with a given einops, None for none."""

    def load(einops):
        monkeypatch.setitem(sys.modules, "einops", einops)
        return reload(bert_padding)

    yield load
    monkeypatch.undo()
    reload(bert_padding)


def test_rearrange_is_that_of_einops(reloaded):
    def function():
        pass

    assert reloaded(SimpleNamespace(rearrange=function)).rearrange is function


def test_without_einops_the_name_is_there_and_says_what_is_missing(reloaded):
    module = reloaded(None)
    with pytest.raises(ImportError, match="rearrange is einops' function, which is not installed") as caught:
        module.rearrange(torch.zeros(2, 3), "a b -> (a b)")
    assert "next: pip install einops" in str(caught.value)


def test_several_sequences_in_a_row():
    rows = torch.randn(3, 6, 4, requires_grad=True)
    lengths = torch.tensor([[2, 3, 0, 0, 0, 0], [3, 2, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0]])
    found, indices, ends, longest = bert_padding.unpad_input_for_concatenated_sequences(rows, lengths)
    assert torch.equal(found, torch.cat([rows[0, :5], rows[1, :5], rows[2]]))
    assert indices.tolist() == [*range(5), *range(6, 11), *range(12, 18)]
    assert (ends.tolist(), ends.dtype) == ([0, 2, 5, 8, 10, 16], torch.int32)
    assert longest == 6
    found.sum().backward()
    assert rows.grad.sum() == 16 * 4


def test_rows_and_all_of_them():
    values, indices = torch.randn(5, 3, requires_grad=True), torch.tensor([4, 0])
    found, residual = bert_padding.index_first_axis_residual(values, indices)
    assert torch.equal(found, values[indices])
    assert torch.equal(residual, values)
    (2 * found.sum() + residual.sum()).backward()
    assert values.grad[:, 0].tolist() == [3, 1, 1, 1, 3]


def test_classes():
    assert bert_padding.IndexFirstAxis.apply is bert_padding.index_first_axis
    assert bert_padding.IndexPutFirstAxis.apply is bert_padding.index_put_first_axis
    assert bert_padding.IndexFirstAxisResidual.apply is bert_padding.index_first_axis_residual

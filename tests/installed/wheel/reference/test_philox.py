"""Dropout's generator gives the published answers, for any division of the work."""

import pytest
import torch
from flash_attn_rocm import flash_attn_func
from flash_attn_rocm.reference import philox

# Known answers of Random123 for philox4x32 with 10 rounds: counter, key, words.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
STATE = torch.tensor([0x01234567, 0x89ABCDEF])


def words(text):
    return torch.tensor([int(word, 16) for word in text.split()])


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter, key, answer):
    found = philox.philox(tuple(words(counter)), words(key))
    assert torch.equal(torch.stack(found), words(answer))


def one(batch, head, row, column, p):
    """Whether this probability is kept, by the definition."""
    counter = tuple(map(torch.tensor, (column // 4, row, head, batch)))
    return philox.philox(counter, STATE)[column % 4] >= int(p * 2**32)


@pytest.mark.parametrize("columns", [range(11), range(3, 14), range(4, 8), range(5, 6), range(7, 7)])
def test_the_mask_is_that_of_the_definition(columns):
    batches = torch.tensor([0, 5])[:, None, None, None]
    heads = torch.tensor([[1, 2], [3, 4]])[:, :, None, None]
    rows = torch.tensor([0, 9, 2**31])[:, None]
    found = philox.keep(STATE, 0.4, batches=batches, heads=heads, rows=rows, columns=columns)
    assert found.shape == (2, 2, 3, len(columns))
    for index in torch.cartesian_prod(*map(torch.arange, found.shape)).tolist():
        b, h, r, c = index
        wanted = one(int(batches[b]), int(heads[b, h]), int(rows[r]), columns[c], 0.4)
        assert found[b, h, r, c] == wanted


def test_columns_of_each_sequence():
    """They rise by 0 or 1, and begin and end anywhere in a group of four."""
    batches = torch.tensor([0, 5, 6, 7])[:, None, None, None]
    columns = torch.tensor([[3, 3, 4, 5, 6, 7, 8], [0, 0, 0, 0, 0, 0, 0], [9] * 6 + [10], [*range(4, 11)]])
    for several in range(1, 8):
        found = philox.keep(
            STATE,
            0.4,
            batches=batches,
            heads=torch.tensor([2, 3])[:, None, None],
            rows=torch.arange(3)[:, None],
            columns=columns[:, None, None, :several],
        )
        assert found.shape == (4, 2, 3, several)
        for index in torch.cartesian_prod(*map(torch.arange, found.shape)).tolist():
            b, h, r, c = index
            assert found[b, h, r, c] == one(int(batches[b]), h + 2, r, int(columns[b, c]), 0.4)


def test_states_are_two_words_and_follow_the_seed():
    torch.manual_seed(7)
    first, second = (philox.new_state(torch.device("cpu")) for _ in range(2))
    torch.manual_seed(7)
    assert torch.equal(first, philox.new_state(torch.device("cpu")))
    assert not torch.equal(first, second)
    assert first.dtype == torch.int64
    assert ((first >= 0) & (first < 2**32)).all()


@pytest.mark.parametrize("p", [0.0, 0.17, 0.5, 0.999])
def test_share(p):
    zero = torch.zeros(1, dtype=torch.int64)
    kept = philox.keep(
        STATE, p, batches=zero, heads=zero, rows=torch.arange(512)[:, None], columns=range(512)
    )
    # Five standard deviations of the share of 2**18 draws.
    assert abs(kept.double().mean().item() - (1 - p)) <= 5 * (p * (1 - p) / 2**18) ** 0.5


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
def test_attention_drops_what_the_definition_says():
    q = torch.randn(2, 3, 4, 16).half()
    k = torch.randn(2, 6, 2, 16).half()
    rng = torch.get_rng_state()
    _, _, signed = flash_attn_func(q, k, k, dropout_p=0.4, return_attn_probs=True)
    torch.set_rng_state(rng)
    state = philox.new_state(torch.device("cpu"))
    batches, heads = torch.arange(2)[:, None, None, None], torch.arange(4)[:, None, None]
    kept = philox.keep(
        state, 0.4, batches=batches, heads=heads, rows=torch.arange(3)[:, None], columns=range(6)
    )
    assert torch.equal(signed > 0, kept)

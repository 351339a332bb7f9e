"""transformers with flash_attn_rocm.transformers.register(): the same models without flash-attn's name."""

from collections import Counter

import flash_attn_rocm.transformers as ours
import pytest
import torch
from agreement import agree, gradients
from test_transformers import LANGUAGE, TEXT, text, trio, whisper

NAME = ours.register()


@pytest.fixture
def used(monkeypatch):
    """Calls of the package's functions in this test, by name."""
    count = Counter()

    def counted(name):
        function = getattr(ours, name)

        def call(*arguments, **options):
            count[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(ours, name, call)

    counted("flash_attn_func")
    counted("flash_attn_varlen_func")
    return count


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", LANGUAGE)
def test_forward(name, padded, used, calls, launched):
    given = text(padded=padded)
    with torch.no_grad():
        models = trio(*LANGUAGE[name](), flash=NAME)
        found = [model(**given).logits[given["attention_mask"].bool()] for model in models]
    agree(*([x] for x in found))
    assert used == {"flash_attn_varlen_func" if padded else "flash_attn_func": 2}
    assert calls.total() == 0, "flash_attn was not asked"
    assert launched() in (None, 2)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", LANGUAGE)
def test_generate_from_a_padded_batch(name, cache, used):
    """The first tokens, which every model of the three has to choose where they are clear."""
    given, options = (
        text(padded=True),
        {"max_new_tokens": 3, "do_sample": False, "cache_implementation": cache},
    )
    flash, _, exact = trio(*LANGUAGE[name](), dtype=torch.float16, flash=NAME)
    answers = [model.generate(**given, **options)[:, TEXT:] for model in (flash, exact)]
    assert torch.equal(*answers)
    assert used.total() == 6
    assert used["flash_attn_varlen_func"] >= 4  # a window may leave the padding behind


@pytest.mark.parametrize("name", LANGUAGE)
def test_backward(name, used):
    given = text(padded=True)
    models = trio(*LANGUAGE[name](), flash=NAME)
    agree(*(gradients(m, m(**given).logits[given["attention_mask"].bool()]) for m in models))
    assert used.total() == 2


def test_sequences_packed_into_one(used):
    """Positions that begin again are another sequence: as if each were alone."""
    model = trio(*LANGUAGE["llama"](), flash=NAME)[0]
    ids = text(padded=False)["input_ids"][:1]
    positions = torch.cat([torch.arange(7), torch.arange(TEXT - 7)])[None]
    with torch.no_grad():
        packed = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        assert used["flash_attn_varlen_func"] == 2
        alone = torch.cat([model(input_ids=x).logits for x in (ids[:, :7], ids[:, 7:])], dim=1)
    assert (packed - alone).abs().max() <= 2**-5 * alone.abs().max()  # bf16 has 8 bits


def test_an_encoder_and_a_decoder(used):
    generator = torch.Generator().manual_seed(1)
    features, ids = (
        torch.randn(2, 8, 40, generator=generator),
        torch.randint(3, 97, (2, 5), generator=generator),
    )
    with torch.no_grad():
        found = [
            m(input_features=features.to(m.dtype), decoder_input_ids=ids).logits
            for m in trio(*whisper(), flash=NAME)
        ]
    agree(*([x] for x in found))
    assert used.total() == 3


def test_a_name_that_transformers_takes_for_a_kernel_of_its_hub_is_refused():
    with pytest.raises(ValueError, match="next: choose another name, such as 'rocm_fa'"):
        ours.register("my_flash")


def test_what_is_not_served_is_refused():
    q = torch.zeros(1, 1, 2, 8).half()
    with pytest.raises(ValueError, match="does not serve s_aux; use 'eager'"):
        ours.attend(None, q, q, q, None, s_aux=torch.zeros(1))

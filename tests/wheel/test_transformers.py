"""register() without transformers, which the wheel's tests do not have; with it: tests/drop_in/libraries."""

import sys

import pytest
from flash_attn_rocm import transformers


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="needs transformers with AttentionInterface") as caught:
        transformers.register()
    assert "next: python -m pip install --upgrade transformers" in str(caught.value)

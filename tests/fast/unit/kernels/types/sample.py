"""Users' code, for type checkers: a line with an ignore has to be wrong, every other one right."""
# ruff: noqa: PGH003, B018 - checkers have codes of their own for what is wrong

from typing import assert_type

import flash_attn
import torch
from flash_attn_rocm import (
    attention,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from torch import Tensor

Three = tuple[Tensor, Tensor, Tensor]


def every_function(x: Tensor, n: int) -> None:
    assert_type(flash_attn_func(x, x, x), Tensor)
    assert_type(flash_attn_qkvpacked_func(x), Tensor)
    assert_type(flash_attn_kvpacked_func(x, x), Tensor)
    assert_type(flash_attn_varlen_func(x, x, x, x, x, n, n), Tensor)
    assert_type(flash_attn_varlen_qkvpacked_func(x, x, n), Tensor)
    assert_type(flash_attn_varlen_kvpacked_func(x, x, x, x, n, n), Tensor)
    assert_type(flash_attn_with_kvcache(x, x, x), Tensor)
    assert_type(attention(x, x, x, x), Tensor)


def with_probabilities(x: Tensor, n: int) -> None:
    assert_type(flash_attn_func(x, x, x, return_attn_probs=True), Three)
    assert_type(flash_attn_qkvpacked_func(x, return_attn_probs=True), Three)
    assert_type(flash_attn_kvpacked_func(x, x, return_attn_probs=True), Three)
    assert_type(flash_attn_varlen_func(x, x, x, x, x, n, n, 0.1, return_attn_probs=True), Three)
    assert_type(flash_attn_varlen_qkvpacked_func(x, x, n, return_attn_probs=True), Three)
    assert_type(flash_attn_varlen_kvpacked_func(x, x, x, x, n, n, return_attn_probs=True), Three)
    assert_type(flash_attn_with_kvcache(x, x, x, return_softmax_lse=True), tuple[Tensor, Tensor])
    assert_type(attention(x, x, x, return_attn_probs=True), Three)


def use(q: Tensor, k: Tensor, v: Tensor, flag: bool) -> Tensor:
    out, lse, _ = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    either = flash_attn_func(q, k, v, return_attn_probs=flag)
    first = either if isinstance(either, Tensor) else either[0]
    out.sum()
    lse.sum()
    first.sum()
    flash_attn.flash_attn_func(q, k, v).sum()
    return flash_attn_func(q, k, v).sum()


def any_window_and_any_number(x: Tensor, sizes: list[int]) -> None:
    flash_attn_func(x, x, x, window_size=[3, 0])
    flash_attn_func(x, x, x, window_size=(3, 0))
    flash_attn_func(x, x, x, window_size=sizes)
    flash_attn_func(x, x, x, window_size=range(2))
    flash_attn_func(x, x, x, window_size=torch.tensor([3, 0]))
    flash_attn_func(x, x, x, 0, torch.tensor(0.1), softcap=30)
    flash_attn_varlen_func(x, x, x, x, x, torch.tensor(3), 3)
    flash_attn_with_kvcache(x, x, x, window_size=[3, 0], cache_seqlens=x)
    attention(x, x, x, window_size=[3, 0])


def mistakes(x: Tensor) -> None:
    flash_attn_func(x, x)  # type: ignore
    flash_attn_func(x, x, x, window_size="12")  # type: ignore
    flash_attn_func(x, x, x, window_size=3)  # type: ignore
    flash_attn_func(x, x, x, window_size=(1.0, 2.0))  # type: ignore
    flash_attn_func(x, x, x, softmax_scale="0.1")  # type: ignore
    flash_attn_varlen_func(x, x, x, x, x, 1.5, 3)  # type: ignore
    flash_attn_func(x, x, x).shapes  # type: ignore
    flash_attn_func(x, x, x, return_attn_probs=True).sum()  # type: ignore

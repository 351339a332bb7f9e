"""How the functions of ``flash_attn_interface`` read their arguments."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from torch import Tensor

from flash_attn_rocm.arguments import preparation
from flash_attn_rocm.arguments.normal_form import Inputs
from flash_attn_rocm.autograd.dispatch import Function


def _order(*names: str) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Sorts tensors with these names, and a None behind them, into the fields of Inputs."""
    return itemgetter(*(names.index(each) if each in names else len(names) for each in Inputs._fields))


# Every call comes through here, and a named tuple's own constructor takes three times as long as a tuple's.
NEW = tuple.__new__
QKV = "q", "k", "v"
LENGTHS = "cu_seqlens_q", "cu_seqlens_k"
DENSE_ORDER = _order(*QKV, "alibi_slopes", "sink")
VARLEN_ORDER = _order(*QKV, *LENGTHS, "block_table", "alibi_slopes", "sink")
PACKED_ORDER = _order(*QKV, *LENGTHS, "alibi_slopes", "sink")


def _dense(*tensors: Tensor | None) -> Inputs:
    return NEW(Inputs, DENSE_ORDER((*tensors, None)))


def _qkvpacked(qkv: Tensor, *rest: Tensor | None) -> Inputs:
    return NEW(Inputs, DENSE_ORDER((*qkv.unbind(2), *rest, None)))


def _kvpacked(q: Tensor, kv: Tensor, *rest: Tensor | None) -> Inputs:
    return NEW(Inputs, DENSE_ORDER((q, *kv.unbind(2), *rest, None)))


def _varlen(*tensors: Tensor | None) -> Inputs:
    return NEW(Inputs, VARLEN_ORDER((*tensors, None)))


def _varlen_qkvpacked(qkv: Tensor, cu: Tensor, *rest: Tensor | None) -> Inputs:
    return NEW(Inputs, PACKED_ORDER((*qkv.unbind(1), cu, cu, *rest, None)))


def _varlen_kvpacked(q: Tensor, kv: Tensor, *rest: Tensor | None) -> Inputs:
    return NEW(Inputs, PACKED_ORDER((q, *kv.unbind(1), *rest, None)))


# Arguments that give the lengths of both queries and keys.
ONE_LENGTH = {
    "cu_seqlens_q": "cu_seqlens", "cu_seqlens_k": "cu_seqlens",
    "max_seqlen_q": "max_seqlen", "max_seqlen_k": "max_seqlen",
}  # fmt: skip

DENSE = Function("flash_attn_func", preparation.dense, _dense)
QKVPACKED = Function("flash_attn_qkvpacked_func", preparation.qkvpacked, _qkvpacked, 3)
KVPACKED = Function("flash_attn_kvpacked_func", preparation.kvpacked, _kvpacked, 2)
VARLEN = Function("flash_attn_varlen_func", preparation.varlen, _varlen)
VARLEN_QKVPACKED = Function(
    "flash_attn_varlen_qkvpacked_func", preparation.varlen_qkvpacked, _varlen_qkvpacked, 3, ONE_LENGTH
)
VARLEN_KVPACKED = Function(
    "flash_attn_varlen_kvpacked_func", preparation.varlen_kvpacked, _varlen_kvpacked, 2
)

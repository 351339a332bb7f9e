"""How the functions of ``flash_attn_interface`` read their arguments."""

from torch import Tensor

from flash_attn_rocm.arguments import preparation
from flash_attn_rocm.arguments.normal_form import Inputs
from flash_attn_rocm.autograd.dispatch import Function


def _dense(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, sink: Tensor | None, *_descales: Tensor | None
) -> Inputs:
    return Inputs(q, k, v, slopes, sink=sink)


def _qkvpacked(qkv: Tensor, slopes: Tensor | None, sink: Tensor | None) -> Inputs:
    q, k, v = qkv.unbind(2)
    return Inputs(q, k, v, slopes, sink=sink)


def _kvpacked(q: Tensor, kv: Tensor, slopes: Tensor | None, sink: Tensor | None) -> Inputs:
    k, v = kv.unbind(2)
    return Inputs(q, k, v, slopes, sink=sink)


def _varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    table: Tensor | None,
    slopes: Tensor | None,
    sink: Tensor | None,
    _q_descale: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
) -> Inputs:
    return Inputs(q, k, v, slopes, cu_q, cu_k, None, None, table, None, None, sink, k_descale, v_descale)


def _varlen_qkvpacked(qkv: Tensor, cu: Tensor, slopes: Tensor | None, sink: Tensor | None) -> Inputs:
    q, k, v = qkv.unbind(1)
    return Inputs(q, k, v, slopes, cu, cu, sink=sink)


def _varlen_kvpacked(
    q: Tensor, kv: Tensor, cu_q: Tensor, cu_k: Tensor, slopes: Tensor | None, sink: Tensor | None
) -> Inputs:
    k, v = kv.unbind(1)
    return Inputs(q, k, v, slopes, cu_q, cu_k, sink=sink)


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

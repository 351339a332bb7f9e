"""These kernels in transformers, without the distribution flash-attn.

    flash_attn_rocm.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(…, attn_implementation="rocm_fa")

Every call of a model is served, or raises a ValueError with the unserved argument and attn_implementation.
Models with flash attention support make the same calls as for flash_attention_2. ``attention`` serves biases
and general masks with attn_mask. Causal masks, windows, chunks, padding and packed sequences need no
attn_mask.
"""

import importlib
from typing import Any

from torch import Tensor

from flash_attn_rocm.transformers import arguments, masks, missing, models
from flash_attn_rocm.transformers.arguments import NAME
from flash_attn_rocm.transformers.calls import Call, biased, masked, padded, unpadded
from flash_attn_rocm.values.given import Given


def register(name: str = NAME) -> str:
    """Make ``attn_implementation=name`` known to transformers. Returns the name.

    Raises ValueError for a name with "flash", and ImportError if transformers is missing, broken or too old.
    """
    if "flash" in name:
        message = (
            f"transformers would look for {name!r} on its kernel hub, because it contains 'flash'\n"
            f"  next: choose another name, such as {NAME!r}"
        )
        raise ValueError(message)
    try:
        transformers = importlib.import_module("transformers")
        of_attention, of_masks = transformers.AttentionInterface, transformers.AttentionMaskInterface
        models.install(name)
    except (ImportError, AttributeError, RuntimeError, OSError) as error:
        raise ImportError(missing.explained(error)) from error
    of_attention.register(name, attend)
    of_masks.register(name, masks.mask)
    return name


def attend(
    module: Given,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,  # noqa: FBT001
    s_aux: Tensor | None = None,
    deterministic: bool | None = None,  # noqa: FBT001
    position_bias: Tensor | None = None,
    **given: Given,
) -> tuple[Tensor, None]:
    """Attention of query, key and value (batch, nheads, seqlen, headdim), with the arguments of transformers.

    ``attention_mask`` is a result of ``masks.mask``, or a float mask of four dimensions: it is added to the
    scores, and the dtype's lowest number hides a key. ``position_bias`` (batch, nheads, seqlen_q, seqlen_k)
    is added to the scores as well. Its first three sizes may be 1. ``s_aux`` (nheads,) are sinks. fp32 is
    converted as in flash_attention_2. Returns out (batch, seqlen, nheads, headdim) and None. Raises
    ValueError for unknown arguments.
    """
    arguments.refuse_unknown(module, given, s_aux)
    q, k, v = (x.transpose(1, 2) for x in arguments.in_one_dtype(module, query, key, value))
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    options: dict[str, Any] = {
        "dropout_p": dropout, "softmax_scale": scale, "softcap": softcap or 0.0,
        "deterministic": bool(deterministic), "sink": s_aux,
    }  # fmt: skip
    chunked = masks.has_chunks(attention_mask)
    call = Call(module, q, k, v, options, given, module.config.attention_chunk_size if chunked else 0)
    if attention_mask is not None and attention_mask.dim() == 4:
        return masked(call, arguments.dense_mask(module, attention_mask), position_bias), None
    if attention_mask is not None and position_bias is not None:
        found = f"position_bias beside attention_mask of shape {tuple(attention_mask.shape)}, that"
        raise arguments.refusal(module, found)
    pattern = masks.pattern_of(attention_mask)
    if pattern is None:
        said = masks.is_causal(attention_mask)
        causal = arguments.is_causal(module, is_causal if said is None else said, q.shape[1])
        window = arguments.window(module, sliding_window, k.shape[1], causal=causal)
    else:
        causal, window = pattern.causal, pattern.window_size
    options.update(causal=causal, window_size=window)
    if position_bias is not None:
        return biased(call, position_bias), None
    return (unpadded(call) if attention_mask is None else padded(call, attention_mask)), None

"""Strict reading of models' arguments for attention: an unserved argument raises an error."""

from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.transformers.models import layer_types
from flash_attn_rocm.values.given import Given

NAME = "rocm_fa"
# Model arguments passed to attention, where they have no effect.
OF_OTHERS = frozenset({
    "cache_position", "logits_to_keep", "num_items_in_batch", "output_hidden_states", "output_router_logits",
    "return_dict", "seq_idx", "use_cache",
})  # fmt: skip
# Positions and ends of packed sequences. ``transformers.calls`` reads them.
OF_PACKING = frozenset({"position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"})
# A score this far below another has the probability 0 in every dtype. Float masks hide with lower numbers.
HIDDEN = -9000.0


def refusal(module: Given, what: str, instead: str = "'eager' or 'sdpa'") -> ValueError:
    """The error for an unserved argument."""
    name = getattr(getattr(module, "config", None), "_attn_implementation", None) or NAME
    return ValueError(
        f"attn_implementation={name!r} does not serve {what} of {type(module).__name__}\n"
        f"  next: load the model with attn_implementation={instead}; parts of it may differ: "
        f"attn_implementation={{'text_config': {name!r}, 'vision_config': 'sdpa'}}"
    )


def refuse_unknown(module: Given, given: dict[str, Any], sinks: Tensor | None) -> None:
    """Raise ValueError for unknown arguments, unless they are None or False."""
    unknown = sorted(
        name for name, value in given.items()
        if name not in OF_OTHERS and name not in OF_PACKING and value is not None and value is not False
    )  # fmt: skip
    if unknown == ["output_attentions"]:
        raise refusal(module, "output_attentions=True", "'eager'")
    if unknown:
        raise refusal(module, f"the argument {' and '.join(unknown)}")
    if sinks is None and getattr(module, "sinks", None) is not None:
        raise refusal(module, "sinks that are not passed as s_aux, those")


def in_one_dtype(module: Given, *tensors: Tensor) -> tuple[Tensor, ...]:
    """fp32 tensors in the dtype of autocast, of a quantized model's config, or of the module's weights.

    The rule of flash_attention_2: fp32 comes from autocast or from norms in fp32.
    """
    query = tensors[0]
    config: Any = getattr(module, "config", None)
    if query.dtype != torch.float32:
        return tensors
    dtype = query.dtype
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
    elif hasattr(config, "_is_quantized"):
        dtype = config.dtype
    elif isinstance(module, torch.nn.Module):
        layers = (layer for layer in module.modules() if isinstance(layer, torch.nn.Linear))
        dtype = next((layer.weight.dtype for layer in layers), dtype)
    return tuple(x.to(dtype) for x in tensors)


def is_causal(module: Given, given: bool | None, rows: int) -> bool:  # noqa: FBT001
    """The call's argument, or the module's default."""
    causal = getattr(module, "is_causal", None) if given is None else given
    if causal is None and rows > 1:
        raise refusal(module, "attention without is_causal, that")
    return bool(causal)


def window(module: Given, given: int | None, keys: int, *, causal: bool) -> tuple[int, int]:
    """(left, right): visible keys before and after a row's position. (-1, -1) is all.

    In causal attention ``given`` counts the row's position as well. Encoders' masks have
    config.sliding_window keys on each side (``create_bidirectional_sliding_window_mask``). Some of these
    models pass one more.
    """
    config = getattr(module, "config", None)
    own = getattr(config, "sliding_window", None)
    if not given:
        kinds, layer = layer_types(config), getattr(module, "layer_idx", None)
        windowed = isinstance(layer, int) and kinds[layer : layer + 1] == ["sliding_attention"]
        if causal and windowed and isinstance(own, int) and keys > own:
            raise refusal(module, "the window of config.sliding_window, which is not passed, in a layer")
        return -1, -1
    if causal or own is None:
        return given - 1, given - 1
    if own not in {given, given - 1}:
        raise refusal(module, f"sliding_window={given} where config.sliding_window is {own}, that")
    return own, own


def dense_mask(module: Given, mask: Tensor) -> Tensor:
    """A boolean mask from booleans, or from floats for showing and hiding. Other floats stay a bias."""
    if mask.dtype == torch.bool:
        return mask
    if not mask.dtype.is_floating_point:
        raise refusal(module, f"attention_mask of {mask.dtype} in four dimensions, that")
    shown = mask == 0
    return shown if (shown | (mask <= HIDDEN)).all() else mask

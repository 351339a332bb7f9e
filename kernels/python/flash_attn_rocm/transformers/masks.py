"""The mask requested by transformers at the start of a model. ``transformers.attend`` reads it.

transformers describes a mask by a function of positions. ``mask`` returns one of these:

* (batch, seqlen_k) with a ``Pattern``, for models with flash attention support. 0 hides a key. The dtype is
  int8 for causal rows, bool for other rows, and int16 for causal rows in chunks of
  config.attention_chunk_size keys, counted from each sequence's first key. int32 holds numbers of packed
  sequences: 2, 3, ... for causal rows, -2, -3, ... for others. The pattern overrides the module and the
  call: AIMv2's text has modules, Pegasus-X a decoder, and PaliGemma a prompt that claim the contrary. A copy
  on another device loses the pattern and keeps dtype and numbers.
* (batch, 0, window or 0) of the same dtypes, for plain masks of these models in graphs of torch.compile,
  where tensors are unreadable. All keys are visible.
* (batch, 1, seqlen_q, seqlen_k) bool, for other masks, such as images with attention in both directions.
  ``attention`` takes these as attn_mask.
* None for other models, as for sdpa.
"""

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.transformers.models import reads_patterns, supports_flash
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.values.tracing import never_traced

Rule = Callable[..., Any]
ATTRIBUTE = "_flash_attn_rocm_pattern"
DTYPES = {True: torch.int8, False: torch.bool}  # by whether rows are causal
IN_CHUNKS = torch.int16
NUMBERS = torch.int32
FIRST = 2  # first number of a packed sequence: models use 0 and 1 in their own masks


class Pattern(NamedTuple):
    """A mask computed by kernels from positions.

    Causal rows see ``window`` keys, the key at their own position included. Other rows see ``window`` keys on
    each side. ``chunk`` is an argument of ``attention``.
    """

    causal: bool
    window: int | None = None
    chunk: int | None = None
    padded: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The mask's dtype, which copies keep."""
        return IN_CHUNKS if self.chunk else DTYPES[self.causal]

    @property
    def window_size(self) -> tuple[int, int]:
        """As flash_attn_func takes it."""
        if self.window is None:
            return -1, -1
        return (self.window - 1, 0) if self.causal else (self.window, self.window)


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Given = 0,  # int, or a tensor of one element
    kv_offset: int = 0,
    mask_function: Rule | None = None,
    attention_mask: Tensor | None = None,
    config: Given = None,
    **options: Given,
) -> Tensor | None:
    """The mask of q_length rows from position q_offset on, for kv_length keys from kv_offset on.

    Registered with transformers' AttentionMaskInterface.
    """
    asked = (batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, config)
    if not torch.compiler.is_compiling():
        return _decided(*asked, **options)
    # Only plain masks come with these options. For others the function of positions decides.
    plain = options.get("allow_is_causal_skip") or options.get("allow_is_bidirectional_skip")
    chunked = getattr(config, "attention_chunk_size", None) is not None
    if plain and not chunked and attention_mask is None and kv_length == q_length and supports_flash(config):
        causal, window = bool(options.get("allow_is_causal_skip")), options.get("local_size") or 0
        return torch.empty((batch_size, 0, window), dtype=DTYPES[causal], device=options.get("device"))
    return _decided(*asked, **options)


@never_traced
def _decided(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Given,
    kv_offset: int,
    mask_function: Rule | None,
    attention_mask: Tensor | None,
    config: Given,
    **options: Given,
) -> Tensor | None:
    masks = importlib.import_module("transformers.masking_utils")
    rule = masks.causal_mask_function if mask_function is None else mask_function
    written = int(q_offset) + q_length - kv_offset
    if config is None or reads_patterns(config):
        inner, sequences = _unpacked(masks, rule)
        pattern = _pattern(masks, inner)
        if pattern and pattern.chunk and written + kv_offset <= pattern.chunk:
            pattern = pattern._replace(chunk=None)  # all keys are in the first chunk
        if pattern and _can_say(pattern, config, sequences, q_length, kv_offset):
            # A static cache has more keys than were written, invisible to rows of causal attention.
            keys = min(written, kv_length) if pattern.causal else kv_length
            known = sequences is None and attention_mask is None
            if sequences is not None:
                sequences = (sequences + FIRST) * (1 if pattern.causal else -1)
            else:
                found = _padding(attention_mask, batch_size, kv_offset, keys, options.get("device"))
                if pattern.chunk and q_length == 1:
                    found = found & _in_chunk(inner, batch_size, int(q_offset), kv_offset, keys, found.device)
                    pattern, known = pattern._replace(chunk=None), False
                sequences = found.to(pattern.dtype)
            pattern = pattern._replace(padded=not known and bool((sequences != 1).any()))
            width = pattern.window or pattern.chunk or keys
            if not pattern.padded or keys <= width or _is_contiguous(sequences != 0):
                setattr(sequences, ATTRIBUTE, pattern)
                return sequences
    # None then means a causal mask aligned to the lower right corner. In transformers it is aligned to the
    # upper left.
    aligned = written == kv_length and q_length in (1, kv_length)
    options["allow_is_causal_skip"] = options.get("allow_is_causal_skip", True) and aligned
    exact: Tensor | None = masks.sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=rule, attention_mask=attention_mask, **options,
    )  # fmt: skip
    return exact


def pattern_of(found: Tensor | None) -> Pattern | None:
    """The pattern attached by ``mask`` to a tensor, or None for copies, such as on another device."""
    if found is not None and hides_nothing(found):
        return Pattern(bool(is_causal(found)), found.shape[2] or None)
    pattern: Pattern | None = getattr(found, ATTRIBUTE, None)
    return pattern


def hides_nothing(found: Tensor) -> bool:
    """Whether this is a graph's mask, (batch, 0, window or 0)."""
    return found.dim() == 3 and found.shape[1] == 0


def is_causal(found: Tensor | None) -> bool | None:
    """Whether a mask without its pattern has causal rows, or None if only the module knows.

    Models can make their own masks, as booleans or as 0 and 1 of any dtype.
    """
    if found is not None and found.dtype == NUMBERS:
        return None if bool((found.abs() < FIRST).all()) else bool((found >= 0).all())
    return True if found is not None and found.dtype in {DTYPES[True], IN_CHUNKS} else None


def has_chunks(found: Tensor | None) -> bool:
    """Whether the dtype marks causal rows in chunks."""
    return found is not None and found.dtype == IN_CHUNKS


def _can_say(
    pattern: Pattern, config: Given, sequences: Tensor | None, q_length: int, kv_offset: int
) -> bool:
    """Whether a mask can describe the pattern's chunks.

    Chunks count from the first key, so this key must be present. For a single row, hidden keys are
    sufficient.
    """
    if not pattern.chunk:
        return True
    plain = sequences is None and pattern.chunk == getattr(config, "attention_chunk_size", None)
    return plain and (kv_offset == 0 or q_length == 1)


def _in_chunk(rule: Rule, batch: int, row: int, first: int, keys: int, device: torch.device) -> Tensor:
    """(batch, keys), whether the row at this position sees the keys from position ``first`` on."""
    sequences = torch.arange(batch, device=device)[:, None]
    at, places = torch.tensor(row, device=device), torch.arange(first, first + keys, device=device)
    found: Tensor = rule(sequences, None, at, places)
    return found


def _unpacked(masks: ModuleType, rule: Rule) -> tuple[Rule, Tensor | None]:
    """The rule inside each of several packed sequences, and the number of each key's sequence, from 0 on."""
    first, *others = _both(masks, rule)
    packed = others and _is_made_by(first, masks, "packed_sequence_mask_function", None)
    if packed and _is_made_by(others[0], masks, "remap_positions_for_packed_sequence", rule, None):
        numbers = _captured(first)["packed_sequence_mask"]
        return _captured(others[0])["mask_function"], numbers.to(NUMBERS)
    return rule, None


def _pattern(masks: ModuleType, rule: Rule) -> Pattern | None:
    """The pattern of a mask function, or None if kernels lack an equivalent."""
    causal = {masks.causal_mask_function: True, masks.bidirectional_mask_function: False}
    if rule in causal:
        return Pattern(causal[rule])
    first, *others = _both(masks, rule)
    if others == [masks.causal_mask_function] and _is_made_by(first, masks, "chunked_overlay", 1, None):
        return Pattern(True, chunk=_captured(first)["chunk_size"])  # noqa: FBT003 - a field
    for overlay, base in (
        ("sliding_window_overlay", masks.causal_mask_function),
        ("sliding_window_bidirectional_overlay", masks.bidirectional_mask_function),
    ):
        if others == [base] and _is_made_by(first, masks, overlay, 1):
            return Pattern(causal[base], _captured(first)["sliding_window"])
    return None


def _both(masks: ModuleType, rule: Rule) -> list[Rule]:
    """The rules required together by a combined rule."""
    return list(_captured(rule)["mask_functions"]) if _is_made_by(rule, masks, "and_masks", rule) else [rule]


def _is_made_by(rule: Rule, masks: ModuleType, factory: str, *arguments: Given) -> bool:
    make = getattr(masks, factory, None)
    return make is not None and getattr(rule, "__code__", None) is make(*arguments).__code__


def _captured(rule: Rule) -> dict[str, Any]:
    return dict(inspect.getclosurevars(rule).nonlocals)


def _padding(attention_mask: Tensor | None, batch: int, offset: int, keys: int, device: Given) -> Tensor:
    """(batch, keys), False for padding, including keys after the end of ``attention_mask``.

    For a static cache, generate makes a mask, and the model makes this mask from it. Generate's mask begins
    at ``offset``.
    """
    if attention_mask is None:
        return torch.ones((), dtype=torch.bool, device=device).expand(batch, keys)
    begin = 0 if attention_mask.shape[1] == keys else offset
    found = attention_mask[:, begin : begin + keys].bool()
    return torch.nn.functional.pad(found, (0, keys - found.shape[1]))


def _is_contiguous(counts: Tensor) -> bool:
    """Whether each sequence's keys are contiguous. A window would count padding between them."""
    begins = counts[:, 1:] & ~counts[:, :-1]
    return bool((begins.sum(-1) + counts[:, 0] <= 1).all())

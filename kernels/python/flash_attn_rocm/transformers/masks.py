"""The mask that transformers asks for when a model starts: what ``transformers.attend`` reads.

transformers describes a mask by a function of positions.  ``mask`` returns one of these:

* (batch, seqlen_k) for models that support flash attention, with a ``Pattern``: 0 where a key is hidden, int8
  where rows are causal, int16 where they are causal in chunks of config.attention_chunk_size keys, counted
  from each sequence's first, and bool where they are not causal, or, int32, packed sequences by number: from
  2 on where rows are causal, and from -2 down where they are not.  The pattern holds, whatever the module or
  the call says: AIMv2's text has modules, Pegasus-X a decoder, and PaliGemma a prompt that say they are not
  causal.  A copy on another device loses the pattern and keeps dtype and numbers;
* (batch, 0, window or 0) of the same dtypes for those models' plain masks in graphs of torch.compile, which
  cannot read a tensor: no key is hidden;
* (batch, 1, seqlen_q, seqlen_k) bool: anything else, such as images that see themselves both ways.
  No kernel takes it, and the PyTorch implementation does;
* None, for other models, as sdpa gets it.
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
FIRST = 2  # number of a packed sequence: 0 and 1 are what models have in masks of their own


class Pattern(NamedTuple):
    """What kernels can do with positions.

    Causal rows see ``window`` keys, their own among them; others that many on each side of it.  ``chunk`` is
    that of ``attention``.
    """

    causal: bool
    window: int | None = None
    chunk: int | None = None
    padded: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """Of the mask, which copies keep."""
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
    q_offset: Given = 0,  # an integer, or a tensor of one
    kv_offset: int = 0,
    mask_function: Rule | None = None,
    attention_mask: Tensor | None = None,
    config: Given = None,
    **options: Given,
) -> Tensor | None:
    """What q_length rows from position q_offset on see of kv_length keys from kv_offset on; a function of
    transformers' AttentionMaskInterface."""
    asked = (batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, config)
    if not torch.compiler.is_compiling():
        return _decided(*asked, **options)
    # Without these wishes, which only plain masks come with, the function of positions has to be looked at.
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
            pattern = pattern._replace(chunk=None)  # all in the first
        if pattern and _can_say(pattern, config, sequences, q_length, kv_offset):
            # A static cache has more keys than were written, which no row of causal attention sees.
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
    # None then means causal, from the lower right corner: transformers' own function has the upper left one.
    aligned = written == kv_length and q_length in (1, kv_length)
    options["allow_is_causal_skip"] = options.get("allow_is_causal_skip", True) and aligned
    exact: Tensor | None = masks.sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=rule, attention_mask=attention_mask, **options,
    )  # fmt: skip
    return exact


def pattern_of(found: Tensor | None) -> Pattern | None:
    """The pattern that ``mask`` gave with a tensor; a copy, such as on another device, has none."""
    if found is not None and hides_nothing(found):
        return Pattern(bool(is_causal(found)), found.shape[2] or None)
    pattern: Pattern | None = getattr(found, ATTRIBUTE, None)
    return pattern


def hides_nothing(found: Tensor) -> bool:
    """Whether it is the mask of a graph, whose shape says all."""
    return found.dim() == 3 and found.shape[1] == 0


def is_causal(found: Tensor | None) -> bool | None:
    """Whether a mask without its pattern says that rows are causal; None where only the module knows.

    Models that make their own masks may give them as booleans, or as 0 and 1 of any dtype, too.
    """
    if found is not None and found.dtype == NUMBERS:
        return None if bool((found.abs() < FIRST).all()) else bool((found >= 0).all())
    return True if found is not None and found.dtype in {DTYPES[True], IN_CHUNKS} else None


def has_chunks(found: Tensor | None) -> bool:
    """Whether a mask's dtype says that rows are causal in chunks."""
    return found is not None and found.dtype == IN_CHUNKS


def _can_say(
    pattern: Pattern, config: Given, sequences: Tensor | None, q_length: int, kv_offset: int
) -> bool:
    """Whether a mask can say what there is of chunks.

    They count from the first key, so that must be there; for one row it is enough to hide keys.
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
    """The pattern of a mask function, or None where kernels have no such."""
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
    """The rules of which all have to hold."""
    return list(_captured(rule)["mask_functions"]) if _is_made_by(rule, masks, "and_masks", rule) else [rule]


def _is_made_by(rule: Rule, masks: ModuleType, factory: str, *arguments: Given) -> bool:
    make = getattr(masks, factory, None)
    return make is not None and getattr(rule, "__code__", None) is make(*arguments).__code__


def _captured(rule: Rule) -> dict[str, Any]:
    return dict(inspect.getclosurevars(rule).nonlocals)


def _padding(attention_mask: Tensor | None, batch: int, offset: int, keys: int, device: Given) -> Tensor:
    """(batch, keys), False where a key is padding; keys behind the end of ``attention_mask`` are.

    Of a static cache generate makes the mask, and of that mask, which begins at ``offset``, the model makes
    it again.
    """
    if attention_mask is None:
        return torch.ones((), dtype=torch.bool, device=device).expand(batch, keys)
    begin = 0 if attention_mask.shape[1] == keys else offset
    found = attention_mask[:, begin : begin + keys].bool()
    return torch.nn.functional.pad(found, (0, keys - found.shape[1]))


def _is_contiguous(counts: Tensor) -> bool:
    """Whether no sequence has padding between its keys, across which a window counts."""
    begins = counts[:, 1:] & ~counts[:, :-1]
    return bool((begins.sum(-1) + counts[:, 0] <= 1).all())

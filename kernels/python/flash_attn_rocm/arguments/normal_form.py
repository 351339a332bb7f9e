"""The arguments of attention in one normal form, whichever function was called."""

import operator
from numbers import Real
from typing import NamedTuple, Protocol, SupportsIndex

import torch
from torch import Tensor

from flash_attn_rocm.diagnosis.notice import tell_unbounded
from flash_attn_rocm.values.given import Given

INTEGERS = (int, torch.SymInt)
NUMBERS = (float, int, torch.SymFloat, torch.SymInt, Real)
DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}  # of kernels
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
INT32_MAX = (1 << 31) - 1
WIDE = torch.float64
WITHOUT_KERNELS = (torch.float32, WIDE)  # which the PyTorch implementation alone computes


def arithmetic(dtype: torch.dtype) -> torch.dtype:
    """What the PyTorch implementation computes in, and the log-sum-exp's dtype."""
    return WIDE if dtype == WIDE else torch.float32


class FlashAttnArgumentError(ValueError, RuntimeError):
    """The arguments break the function's rules; the message has all problems.

    A RuntimeError too, because that is what flash_attn raises.  ``problems`` has one text for each.
    """

    problems: tuple[str, ...] = ()


class WindowSize(Protocol):
    """What ``pair`` takes: two integers, left and right, in a tuple, a list, a tensor or whatever else."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> SupportsIndex: ...


class Inputs(NamedTuple):
    """What attention reads; fields are named and shaped as those of the operator ``fwd``.

    Dense: q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim).  The headdim of
    v, and so of out, may be another one; no kernel takes that.
    Packed sequences, when cu_seqlens_q (batch + 1) is given: q (total_q, nheads, headdim), k and v (total_k,
    nheads_k, headdim) cut by cu_seqlens_k (batch + 1).
    With block_table (batch, max_blocks) k and v are (num_blocks, page, nheads_k, headdim).
    Keys of sequence b begin at leftpad_k[b] and end before seqused_k[b]; cache_batch_idx[b] is its row in
    a dense k and v.  Integers are int32.
    attn_mask (batch, nheads, seqlen_q, seqlen_k), with any of these 1, for dense q, k and v: bool, True where
    a query may see a key, or numbers that are added to the scores, of which -inf hides.
    sink (nheads), of any floating dtype, joins the softmax of its heads' rows after the kernels.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    alibi_slopes: Tensor | None = None
    cu_seqlens_q: Tensor | None = None
    cu_seqlens_k: Tensor | None = None
    seqused_k: Tensor | None = None
    leftpad_k: Tensor | None = None
    block_table: Tensor | None = None
    cache_batch_idx: Tensor | None = None
    attn_mask: Tensor | None = None
    sink: Tensor | None = None

    @property
    def integers(self) -> tuple[Tensor | None, ...]:
        """The tensors that cut batches: cu_seqlens_q to cache_batch_idx."""
        return self[4:10]

    @property
    def wants_gradients(self) -> bool:
        """Whether autograd will ask for gradients of q, k, v, attn_mask or sink."""
        return wants_gradients(self)

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return self.q.shape[0] if self.cu_seqlens_q is None else self.cu_seqlens_q.shape[0] - 1

    @property
    def key_capacity(self) -> int:
        """How many keys a sequence of a dense or paged cache can have."""
        return key_capacity(self)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """q's, with the headdim of v."""
        return (*self.q.shape[:-1], self.v.shape[-1])

    @property
    def head_dim(self) -> int:
        """The headdim of q and k, or of v, whichever is larger."""
        return head_dim(self)

    @property
    def lse_shape(self) -> tuple[int, ...]:
        """(batch, nheads, seqlen_q), or (nheads, total_q) of packed sequences."""
        *rows, nheads, _ = self.q.shape
        return (*rows[:-1], nheads, rows[-1])


# As functions, for what is traced: torch.compile of 2.10 reads no property of a tuple.
def wants_gradients(inputs: Inputs) -> bool:
    """``Inputs.wants_gradients``."""
    leaves = (inputs.q, inputs.k, inputs.v, inputs.attn_mask, inputs.sink)
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves)


def key_capacity(inputs: Inputs) -> int:
    """``Inputs.key_capacity``."""
    pages = inputs.block_table
    return inputs.k.shape[1] if pages is None else pages.shape[1] * inputs.k.shape[1]


def head_dim(inputs: Inputs) -> int:
    """``Inputs.head_dim``."""
    of_q, of_v = inputs.q.shape[-1], inputs.v.shape[-1]
    return max(of_q, of_v)


class Options(NamedTuple):
    """How to attend; fields are named as the arguments of the operator ``fwd``.

    Row i, whose diagonal is d = i + seqlen_k - seqlen_q, sees the keys d - window_left <= j <= d +
    window_right; -1 is no bound, so causal attention is (-1, 0).  The seqlens are those of the sequence, the
    ``max_`` ones the largest of the batch.  ``num_splits`` is the number of parts that the keys are cut into;
    0 fills the device.  It does not change the answer.  ``deterministic`` gradients have the same bits each
    time.  With ``chunk`` a row sees only keys j of its own chunk: j // chunk == d // chunk; 0 is none.
    """

    softmax_scale: float
    window_left: int = -1
    window_right: int = -1
    softcap: float = 0.0
    dropout_p: float = 0.0
    max_seqlen_q: int = 0
    max_seqlen_k: int = 0
    num_splits: int = 0
    deterministic: bool = False
    chunk: int = 0

    @property
    def causal(self) -> bool:
        """Whether the mask is causal and nothing else."""
        return is_causal(self)

    @property
    def windowed(self) -> bool:
        """Whether the mask is more than causal."""
        return self.window_left >= 0 or self.window_right > 0


def is_causal(options: Options) -> bool:
    """``Options.causal``."""
    return (options.window_left, options.window_right) == (-1, 0)


class BackwardCall(NamedTuple):
    """What gradients are computed from: that of out, and what the forward pass read and wrote.

    In the order of the operators' arguments; ``rng_state`` is the key of dropout.
    """

    dout: Tensor
    out: Tensor
    lse: Tensor
    inputs: Inputs
    options: Options
    rng_state: Tensor | None = None


class New(NamedTuple):
    """What ``flash_attn_with_kvcache`` writes into the cache, as given and checked."""

    k: Tensor
    v: Tensor
    cos: Tensor | None
    sin: Tensor | None
    interleaved: bool


def is_featured(inputs: Inputs, options: Options) -> bool:
    """Whether kernels need their slower loop, which has ALiBi, softcap and dropout."""
    return inputs.alibi_slopes is not None or options.softcap != 0.0 or options.dropout_p > 0.0


def pair(window_size: Given) -> tuple[int, int] | None:  # that it is one is the question
    """The two integers of a tuple, a list, a tensor or whatever else has two; None for anything else."""
    try:
        if len(window_size) != 2:
            return None
        left, right = integer(window_size[0]), integer(window_size[1])
    except (TypeError, LookupError):
        return None
    return None if left is None or right is None else (left, right)


def real(value: Given) -> Given:
    """The number that a number or a tensor of one element is; None for anything else."""
    if isinstance(value, NUMBERS):
        return value
    if not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: of a tensor, many elements or no memory
        return None


def requires_gradient(value: object) -> bool:
    """Whether autograd would be asked for a gradient of a number."""
    return isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled()


def integer(value: Given) -> int | None:
    """The integer that is meant by whatever says so; None for anything else."""
    if isinstance(value, INTEGERS):
        return None if isinstance(value, bool) else value
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):  # RuntimeError: a tensor without memory
        return None


def _bounds(
    window: tuple[int, int], max_seqlen_q: int, max_seqlen_k: int, *, literal: bool
) -> tuple[int, int]:
    """window_size as bounds; one at least as wide as the longest keys is none, as in flash_attn.

    Only this function has that rule: operators and kernels take windows as they are.  On the right it shows,
    where there are more queries than keys; ``literal`` keeps the bound there.
    """
    left, right = (each if 0 <= each < max_seqlen_k else -1 for each in window)
    if max_seqlen_k <= window[1] < max_seqlen_q - 1:
        if literal:
            return left, window[1]
        tell_unbounded()
    return left, right


def resolve(
    q: Tensor,
    *,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: Given,  # what ``real`` takes, or None
    causal: bool,
    window_size: Given,  # what ``pair`` takes
    softcap: Given,
    dropout_p: Given = 0.0,
    num_splits: int = 0,
    deterministic: Given = False,
    chunk: Given = 0,  # what ``integer`` takes
    literal: bool = False,
) -> Options:
    """The normal form of checked arguments; ``literal`` takes window_size at its word (``_bounds``)."""
    window = pair(window_size)
    assert window is not None, "checked before"
    if causal:
        window = window[0], 0
    left, right = _bounds(window, max_seqlen_q, max_seqlen_k, literal=literal)
    width = integer(chunk)
    assert width is not None, "checked before"
    return Options(
        softmax_scale=q.shape[-1] ** -0.5 if softmax_scale is None else real(softmax_scale),
        window_left=left,
        window_right=0 if causal else right,
        softcap=real(softcap),
        dropout_p=real(dropout_p),
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        num_splits=num_splits,
        deterministic=bool(deterministic),
        chunk=min(width, INT32_MAX),  # a wider one has all keys, too
    )

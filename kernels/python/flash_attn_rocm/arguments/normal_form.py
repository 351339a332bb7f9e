"""Attention's arguments in one normal form, for all public functions."""

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
CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.int8)  # of caches, 8 bits
QUERY_CODES = CODES[:2]  # of q, k and v
DEQUANTISED = torch.bfloat16  # what q, k and v of 8 bits become, as in FlashAttention 3
OF_KEYS = 3  # dimensions of descales, if each key has one
INT32_MAX = (1 << 31) - 1
LEAST_SCALE = 2.0**-120  # a log-sum-exp up to 177, divided by it, is a number of fp32
WIDE = torch.float64
WITHOUT_KERNELS = (torch.float32, WIDE)  # only in the PyTorch implementation


def arithmetic(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the PyTorch implementation's arithmetic and of the log-sum-exp."""
    return WIDE if dtype == WIDE else torch.float32


class FlashAttnArgumentError(ValueError, RuntimeError):
    """The arguments break the function's rules. The message lists all problems.

    Also a RuntimeError, the class of flash_attn's errors. ``problems`` has one text for each problem.
    """

    problems: tuple[str, ...] = ()


class WindowSize(Protocol):
    """Two integers, left and right, in a tuple, a list, a tensor or another sequence."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> SupportsIndex: ...


class Inputs(NamedTuple):
    """The tensors that attention reads. Names and shapes are those of the operator ``fwd``.

    Dense: q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim). v and out may
    have another headdim than q and k.

    Packed, with cu_seqlens_q (batch + 1): q (total_q, nheads, headdim), k and v (total_k, nheads_k, headdim),
    cut by cu_seqlens_k (batch + 1).

    Paged, with block_table (batch, max_blocks): k and v (num_blocks, page, nheads_k, headdim).

    Keys of sequence b begin at leftpad_k[b] and end before seqused_k[b]. cache_batch_idx[b] is the row of
    sequence b in a dense k and v. Integers are int32.

    attn_mask (batch, nheads, seqlen_q, seqlen_k), any size may be 1, for dense q, k and v: bool, True for
    visible keys, or numbers to add to the scores. -inf hides a key.

    sink (nheads), of any floating dtype, joins the softmax of its heads' rows. Kernels read it in fp32.

    k and v of a cache may hold codes of 8 bits (CODES): k_descale and v_descale times the codes are k and v.
    Both are fp32 (batch, nheads_k), or, for each key, shaped like k without its headdim. By default they are
    1.
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
    k_descale: Tensor | None = None
    v_descale: Tensor | None = None

    @property
    def integers(self) -> tuple[Tensor | None, ...]:
        """The tensors that describe sequences: cu_seqlens_q to cache_batch_idx."""
        return self[4:10]

    @property
    def wants_gradients(self) -> bool:
        """Whether autograd will ask for gradients of q, k, v, attn_mask or sink."""
        return wants_gradients(self)

    @property
    def coded(self) -> bool:
        """Whether k and v hold codes of 8 bits."""
        return is_coded(self)

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
        """The larger headdim of q and v."""
        return head_dim(self)

    @property
    def lse_shape(self) -> tuple[int, ...]:
        """(batch, nheads, seqlen_q), or (nheads, total_q) of packed sequences."""
        *rows, nheads, _ = self.q.shape
        return (*rows[:-1], nheads, rows[-1])


# The fields that autograd sees. A cache of 8 bits has no gradients.
LEAVES = Inputs._fields.index("sink") + 1


# Functions for traced code: torch.compile of 2.10 cannot read properties of a tuple.
def wants_gradients(inputs: Inputs) -> bool:
    """``Inputs.wants_gradients``."""
    leaves = (inputs.q, inputs.k, inputs.v, inputs.attn_mask, inputs.sink)
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves)


def is_coded(inputs: Inputs) -> bool:
    """``Inputs.coded``."""
    return inputs.k.dtype in CODES


def is_quantised(inputs: Inputs) -> bool:
    """Whether q has 8 bits, too."""
    return inputs.q.dtype in QUERY_CODES


def key_capacity(inputs: Inputs) -> int:
    """``Inputs.key_capacity``."""
    pages = inputs.block_table
    return inputs.k.shape[1] if pages is None else pages.shape[1] * inputs.k.shape[1]


def head_dim(inputs: Inputs) -> int:
    """``Inputs.head_dim``."""
    of_q, of_v = inputs.q.shape[-1], inputs.v.shape[-1]
    return max(of_q, of_v)


class Options(NamedTuple):
    """The numbers of a call. Names are those of the operator ``fwd``.

    Row i has the diagonal d = i + seqlen_k - seqlen_q and sees keys j with d - window_left <= j <= d +
    window_right. -1 is no bound. Causal attention is (-1, 0). seqlen_q and seqlen_k are the sequence's
    lengths, the ``max_`` ones the batch's maxima. ``num_splits`` is the number of parts of the keys, or 0 for
    as many as fill the device. Every number gives the same answer. ``deterministic`` gradients are bitwise
    reproducible. With ``chunk`` > 0 a row sees only keys of its chunk: j // chunk == d // chunk.
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
        """Whether the mask is exactly causal."""
        return is_causal(self)

    @property
    def windowed(self) -> bool:
        """Whether the mask is more than causal."""
        return self.window_left >= 0 or self.window_right > 0


def is_causal(options: Options) -> bool:
    """``Options.causal``."""
    return (options.window_left, options.window_right) == (-1, 0)


class BackwardCall(NamedTuple):
    """The inputs of the backward pass: the gradient of out, and the tensors of the forward pass.

    In the order of the operators' arguments. ``rng_state`` is dropout's key.
    """

    dout: Tensor
    out: Tensor
    lse: Tensor
    inputs: Inputs
    options: Options
    rng_state: Tensor | None = None


class New(NamedTuple):
    """Checked tensors that ``flash_attn_with_kvcache`` writes into the cache."""

    k: Tensor
    v: Tensor
    cos: Tensor | None
    sin: Tensor | None
    interleaved: bool


def is_featured(inputs: Inputs, options: Options) -> bool:
    """Whether kernels need their slower loop with ALiBi, softcap and dropout."""
    return inputs.alibi_slopes is not None or options.softcap != 0.0 or options.dropout_p > 0.0


def pair(window_size: Given) -> tuple[int, int] | None:
    """The two integers of a tuple, a list, a tensor or another sequence, else None."""
    try:
        if len(window_size) != 2:
            return None
        left, right = integer(window_size[0]), integer(window_size[1])
    except (TypeError, LookupError):
        return None
    return None if left is None or right is None else (left, right)


def real(value: Given) -> Given:
    """The number in a number or a tensor of one element, else None."""
    if isinstance(value, NUMBERS):
        return value
    if not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    # RuntimeError: a tensor with many elements or without memory
    except (TypeError, ValueError, RuntimeError):
        return None


def requires_gradient(value: object) -> bool:
    """Whether autograd would be asked for a gradient of a number."""
    return isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled()


def integer(value: Given) -> int | None:
    """An int, or the integer of an object with __index__, else None."""
    if isinstance(value, INTEGERS):
        return None if isinstance(value, bool) else value
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):  # RuntimeError: a tensor without memory
        return None


def _bounds(
    window: tuple[int, int], max_seqlen_q: int, max_seqlen_k: int, *, literal: bool
) -> tuple[int, int]:
    """window_size as bounds. A bound of at least the longest keys is -1, as in flash_attn.

    Only this function applies the rule. Operators and kernels take windows literally. With more queries than
    keys the rule changes the result on the right. ``literal`` keeps that bound.
    """
    left, right = (each if 0 <= each < max_seqlen_k else -1 for each in window)
    if max_seqlen_k <= window[1] < max_seqlen_q - 1:
        if literal:
            return left, window[1]
        tell_unbounded()
    return left, right


def scale_of(given: Given, head_dim: int) -> Given:
    """The factor of scores. ``given``: an argument of ``real``, or None.

    Numbers below LEAST_SCALE become 0, whose results are the same while q k^T is below 2^96: parts of kernels
    divide by them, and parts flush subnormal ones.
    """
    scale = head_dim**-0.5 if given is None else real(given)
    return 0.0 if abs(scale) < LEAST_SCALE else scale


def _cap(softcap: float) -> float:
    """A positive softcap that fp32 can divide by. Below it all scores are as good as equal."""
    return LEAST_SCALE if 0.0 < softcap < LEAST_SCALE else softcap


def resolve(
    q: Tensor,
    *,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: Given,  # an argument of ``real``, or None
    causal: bool,
    window_size: Given,  # an argument of ``pair``
    softcap: Given,
    dropout_p: Given = 0.0,
    num_splits: int = 0,
    deterministic: Given = False,
    chunk: Given = 0,  # an argument of ``integer``
    literal: bool = False,
) -> Options:
    """The normal form of checked arguments. ``literal`` keeps wide right bounds (``_bounds``)."""
    window = pair(window_size)
    assert window is not None, "checked before"
    if causal:
        window = window[0], 0
    left, right = _bounds(window, max_seqlen_q, max_seqlen_k, literal=literal)
    width = integer(chunk)
    assert width is not None, "checked before"
    return Options(
        softmax_scale=scale_of(softmax_scale, q.shape[-1]),
        window_left=left,
        window_right=0 if causal else right,
        softcap=_cap(real(softcap)),
        dropout_p=real(dropout_p),
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        num_splits=num_splits,
        deterministic=bool(deterministic),
        chunk=min(width, INT32_MAX),  # a wider one has all keys, too
    )

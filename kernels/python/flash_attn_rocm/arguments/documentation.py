"""The common parts of the public functions' docstrings, written once.

A function's docstring ends with its special arguments. ``documented`` adds the common arguments in the order
of the signature, and the results, errors and sources.
"""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
WIDTH = 106

ARGUMENTS = {
    "cu_seqlens_q": """
        (batch + 1,), torch.int32, on q's device: sequence b has the rows cu_seqlens_q[b] to
        cu_seqlens_q[b + 1] - 1 of q. The first is 0, and the numbers never fall.
        """,
    "cu_seqlens_k": "(batch + 1,), torch.int32: the same for the keys, rows of k and v.",
    "max_seqlen_q": "Length of the longest sequence of queries, in rows, or more.",
    "max_seqlen_k": "Length of the longest sequence of keys, in rows, or more.",
    "dropout_p": """
        Probability of dropping a weight, 0 <= dropout_p < 1. Kept weights are divided by 1 - dropout_p.
        torch.manual_seed seeds it. Excludes softcap. Pass 0.0 to evaluate a model.
        """,
    "softmax_scale": """
        Factor of q k^T, a finite number. None is headdim ** -0.5. A tensor of one element is read as a
        number, on a GPU after waiting for it. A tensor that requires a gradient raises an error: multiply q
        by it, and pass 1.0.
        """,
    "causal": """
        If True, query i sees key j only if j <= i + seqlen_k - seqlen_q: the last query sees all keys. With
        2 queries and 5 keys, and with 5 queries and 2 keys (1: seen):
            1 1 1 1 0        0 0
            1 1 1 1 1        0 0
                             0 0
                             1 0
                             1 1
        """,
    "window_size": """
        (left, right), in keys: query i sees key j only if
        i + seqlen_k - seqlen_q - left <= j <= i + seqlen_k - seqlen_q + right, both ends included. -1 and
        seqlen_k (packed: max_seqlen_k) or more mean no limit. A tuple, a list, a tensor or another sequence
        of two integers. causal sets right to 0.
        """,
    "softcap": """
        If positive, the scores s = softmax_scale * q k^T become softcap * tanh(s / softcap). 0.0: off.
        """,
    "alibi_slopes": """
        (nheads,) or (batch, nheads), torch.float32: reduces the score of query i and key j by
        slope * |i + seqlen_k - seqlen_q - j|, after softcap. Gets no gradient.
        """,
    "deterministic": """
        If True, the gradients are bitwise reproducible, as always under
        torch.use_deterministic_algorithms(True). Otherwise kernels may add dq up in any order, which is
        faster. explain() says whether they do, and FLASH_ATTN_ROCM_BACKWARD=separate or fused chooses.
        """,
    "sink": """
        (nheads,), of any floating-point dtype: the score, in all rows of a head, of one more key with value
        0. So the weights of a row sum to less than 1. It is used as it is, without scale and softcap, and
        finite or -inf, which turns it off. softmax_lse includes it. A row without a visible key stays 0, with
        a softmax_lse of +inf. Functions with gradients give it one. Costs one pass over out after the kernel.
        Keyword only, an addition to flash_attn.
        """,
    "chunk": """
        If positive, query i sees key j only if j and i + seqlen_k - seqlen_q are in one chunk: divided by it
        and rounded down, they give the same integer. Kernels skip all other keys. Chunks count from each
        sequence's first key. window_size and causal may hide more. Excludes block_table. Keyword only, an
        addition to flash_attn, called attention_chunk in FlashAttention 3.
        """,
    "return_attn_probs": "If True, return a tuple of three tensors, see below. For tests.",
    "block_table": """
        (batch, max_blocks), torch.int32: k and v are then a paged cache, (num_blocks, page, nheads_k,
        headdim) with a page of a multiple of 16 rows. The keys of sequence b are in the blocks
        block_table[b], and cu_seqlens_k gives only their number. No gradients. The cache may have 8 bits:
        torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2 or torch.int8.
        """,
    "q_descale": """
        of q, k and v of 8 bits, all torch.float8_e4m3fn or all torch.float8_e4m3fnuz: torch.float32, (batch,
        nheads_k), with any strides, as in FlashAttention 3. Elements of q times it are queries, for all heads
        that read a head of k. None is 1. out is in torch.bfloat16. MI300X with a headdim of 128, MI350 and RX
        9000 with 64 and 128 multiply the codes (docs/caches-8-bit.md). Otherwise q, k and v are dequantised
        to torch.bfloat16 before each call, so it takes longer than with torch.bfloat16. No gradients, no
        dropout. Keyword only, an addition to flash_attn.
        """,
    "k_descale": "likewise of k.",
    "v_descale": "likewise of v, in the form of k_descale.",
}
TENSORS = """
    q, k and v are on one device and of one dtype, and nheads is a multiple of nheads_k: query head h reads
    key head h // (nheads / nheads_k). Kernels take torch.float16 and torch.bfloat16 with a headdim of 1 to
    256, and up to 512 for the forward without softcap, ALiBi, dropout and pages. PyTorch computes
    torch.float32, torch.float64 (for torch.autograd.gradcheck) and larger headdims. v may have another
    headdim: kernels have some pairs, and others are padded. seqlen_q and seqlen_k are those of the sequence.
    """
OUT = "    out, in q's shape and dtype, with the headdim of v. A row without a visible key is 0."
PROBABILITIES = """
    With return_attn_probs=True a tuple (out, softmax_lse, S_dmask):
    softmax_lse: {lse}, torch.float32 (torch.float64 for such q): the natural
        logarithm of the sum of exp(score) over the visible keys of a row, +inf without one. No gradient
        flows through it.
    S_dmask: with dropout_p > 0 the weights, (batch, nheads, max_seqlen_q, max_seqlen_k), in q's dtype:
        negative where they were dropped. Their magnitudes sum to 1 over the keys (flash_attn's lack a factor
        for each row). Otherwise empty.
    """
RAISES = """
    FlashAttnArgumentError: the arguments break these rules. A ValueError and a RuntimeError. Its message
        names the function and every problem with the expected value.
    FlashAttnUnsupportedError: no kernel serves the call, in strict mode (set_strict, or
        FLASH_ATTN_ROCM_STRICT=1). Else the PyTorch implementation answers, with the same results, and
        FlashAttnFallbackWarning says why, once for each reason.
    """
SOURCE = """
    FlashAttention-2, Tri Dao, arXiv:2307.08691; FlashAttention, Dao et al., arXiv:2205.14135. The interface
    is that of flash_attn 2.8. alibi_slopes: ALiBi, Press et al., arXiv:2108.12409; nheads_k < nheads:
    grouped-query attention, Ainslie et al., arXiv:2305.13245; softcap: Gemma 2, arXiv:2408.00118; sink:
    gpt-oss, arXiv:2508.10925.
    """


def documented(function: Function) -> Function:
    """Completes the docstring of a function with gradients."""
    lse = "(nheads, total_q)" if "varlen" in function.__name__ else "(batch, nheads, seqlen_q)"
    returns = "\n".join([OUT, _block(PROBABILITIES.format(lse=lse), 4)])
    return complete(function, ARGUMENTS, TENSORS, returns, RAISES, SOURCE)


def complete(
    function: Function, arguments: dict[str, str], tensors: str, returns: str, raises: str, source: str
) -> Function:
    """Adds the missing arguments and the sections after them to the docstring."""
    if function.__doc__ is None:  # python -OO
        return function
    own = inspect.cleandoc(function.__doc__)
    lines = [own, *_arguments(function, own, arguments), "", _block(tensors, 0)]
    for title, text in (("Returns", returns), ("Raises", raises), ("Source", source)):
        lines += ["", f"{title}:", _block(text, 4)]
    function.__doc__ = "\n".join(lines) + "\n"
    return function


def _arguments(function: Function, own: str, texts: dict[str, str]) -> Iterator[str]:
    for name in inspect.signature(function).parameters:
        if f"\n    {name}: " not in own:
            lines = inspect.cleandoc(texts[name]).splitlines()
            prose = [*takewhile(lambda line: not line.startswith(" "), lines)]
            text = " ".join([f"{name}:", *prose])
            yield textwrap.fill(text, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
            yield from (f"        {line}" for line in lines[len(prose) :])


def _block(text: str, width: int) -> str:
    return textwrap.indent(inspect.cleandoc(text), " " * width)

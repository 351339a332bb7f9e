"""What an object is, from its name: the names that Composable Kernel (CK) generates, and ours.

CK's are written by ``example/ck_tile/01_fmha/codegen/ops/*.py``; a name is its operation and then tokens
between underscores.  What no token explains is kept as ``unknown``, never guessed.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

HOST = "host code"
# Longest first: each is also the beginning of a shorter one.
OPERATIONS = {
    "fmha_fwd_splitkv_combine": "joining the parts of a forward with split keys",
    "fmha_fwd_splitkv": "forward with split keys",
    "fmha_fwd_appendkv": "appending to a cache",
    "fmha_fwd_pagedkv": "forward with a paged cache",
    "fmha_batch_prefill": "forward with a paged cache",
    "fmha_bwd_dot_do_o": "backward's sum of dO x O",
    "fmha_bwd_convert_dq": "backward's rounding of dQ",
    "fmha_fwd": "forward",
    "fmha_bwd": "backward",
}
OURS = {
    "fwd": "forward",
    "fwd_tall": "forward of long sequences",
    "fwd_wide": "forward of head dims above 256",
    "fwd_uneven": "forward with another head dim of v",
    "bwd_dkdv_uneven": "gradients of K and V with another head dim of v",
    "bwd_dq_uneven": "gradient of Q with another head dim of v",
    "fwd_masked": "forward with a mask or a bias",
    "mask_ranges": "which keys a mask shows",
    "decode": "forward for few queries, keys split",
    "mla": "latent attention for few queries, keys split",
    "combine": "joining the parts of a forward with split keys",
    "append": "appending to a cache",
    "reference": "slow forward for every call",
    "bwd_delta": "backward's sum of dO x O",
    "bwd_dkdv": "backward: dK and dV",
    "bwd_dq": "backward: dQ",
    "bwd_dkdv_masked": "backward with a mask or a bias: dK and dV",
    "bwd_dq_masked": "backward with a mask or a bias: dQ, and the bias's gradient",
    "bwd_fused": "backward: dQ, dK and dV in one pass",
    "bwd_convert": "backward's rounding of dQ",
}
# Upstream's host part: its calls from Python, and CK's choice of a kernel.
HOST_NAMES = {
    "flash_api": "the Python module",
    "flash_common": "checks of arguments",
    "mha_fwd": "the forward call",
    "mha_bwd": "the backward call",
    "mha_varlen_fwd": "the forward call for ragged batches",
    "mha_varlen_bwd": "the backward call for ragged batches",
    "mha_fwd_kvcache": "the forward call with a cache",
}
PADS = ("queries", "keys", "head dim", "head dim of V")
TOKENS: tuple[tuple[str, str], ...] = (
    ("head_dim", r"d(\d+)(?:x\d+)?"),
    ("dtype", r"fp8fp16|fp8bf16|fp8fp32|fp16|bf16|fp32|fp8|bf8"),
    ("mode", r"batch|group"),
    ("tile", r"b(\d+(?:x\d+)*)"),
    ("warps", r"r(\d+x\d+x\d+)"),
    ("instruction", r"w(\d+x\d+x\d+)"),
    ("per_cu", r"o(\d+)"),
    (
        "pipeline",
        r"qr_async_trload|qr_async|qr_nwarp_sshuffle|qr_pagedkv|qr_fp8|qr|qs|kr_ktr_vr_iglp|kr_ktr_vr|unused",
    ),
    ("values", r"v([rc])"),
    ("padding", r"npad|p(?:s)?(?:sk)?(?:d)?(?:dv)?"),
    ("softcap", r"n?logits"),
    ("bias", r"nbias|bias|alibi"),
    ("bias_gradient", r"n?dbias"),
    ("mask", r"nmask|mask|m[cg]"),
    ("lse", r"n?lse"),
    ("dropout", r"ndropout|dropout(?:_wg\d+)?(?:_storerandval)?"),
    ("skip", r"n?skip"),
    ("scale", r"n?squant"),
    ("paged", r"n?pagedkv"),
    ("deterministic", r"n?deterministic"),
    ("rotary", r"inter|half"),
    ("arch", r"gfx\w+"),
)
TOKEN = re.compile("|".join(rf"(?P<{name}>(?:{pattern}))(?=_|$)" for name, pattern in TOKENS))
OUR_NAME = re.compile(r"fa_(?P<op>\w+?)_(?P<dtype>fp16|bf16)(?:_d(?P<dim>\d+))?")
SUFFIX = re.compile(r"(?:\.(?:cpp|cu|hip|cuda|o|obj|hsaco|ptx|part))+$")


@dataclass(frozen=True)
class Described:
    """What a name says.

    ``family`` is what objects of similar cost share, ``facts`` the name's tokens by what they say (several of
    one kind joined by a comma), ``unknown`` words that are in no table.
    """

    name: str
    family: str
    operation: str
    facts: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @cached_property
    def words(self) -> str:
        """The whole in one line."""
        facts = [_word(name, value, self.operation) for name, value in self.facts.items()]
        said = [self.operation or "unknown object", *filter(None, facts)]
        return ", ".join([*said, *(f"and {word!r}, unknown here" for word in self.unknown)])


@cache
def describe(name: str) -> Described:
    """What the file or kernel ``name`` is; a path is fine."""
    stem = SUFFIX.sub("", name.rpartition("/")[2])
    if stem.endswith("_api") and (operation := OPERATIONS.get(stem.removesuffix("_api"))):
        return Described(stem, HOST, f"{HOST}: chooses a kernel for {operation}")
    if stem in HOST_NAMES:
        return Described(stem, HOST, f"{HOST}: {HOST_NAMES[stem]}")
    if (found := OUR_NAME.fullmatch(stem)) and found["op"] in OURS:
        facts = {"dtype": found["dtype"], "head_dim": f"d{found['dim'] or ''}"}
        return Described(stem, f"fa_{found['op']}", OURS[found["op"]], facts)
    for prefix, operation in OPERATIONS.items():
        if stem.startswith(f"{prefix}_"):
            facts, unknown = _facts(stem[len(prefix) + 1 :])
            return Described(stem, prefix, operation, facts, unknown)
    return Described(stem, "other", "")


def _facts(rest: str) -> tuple[dict[str, str], tuple[str, ...]]:
    facts: dict[str, str] = {}
    unknown = []
    while rest:
        found = TOKEN.match(rest)
        if found and found.lastgroup:
            before = facts.get(found.lastgroup)
            facts[found.lastgroup] = f"{before},{found[0]}" if before else found[0]
            rest = rest[found.end() + 1 :]
        else:
            word, _, rest = rest.partition("_")
            unknown.append(word)
    return facts, tuple(unknown)


def _word(name: str, value: str, operation: str) -> str:
    """One kind of token in words; empty where there is nothing to say."""
    if name == "tile":
        return _tile(value[1:].split("x"), operation)
    if name in COMPUTED:
        return COMPUTED[name](value)
    return SAID[name].get(value, "") if name in SAID else value


def _head_dim(value: str) -> str:
    return f"head dim {value[1:]}" if value[1:] else "any head dim"


def _tile(sizes: list[str], operation: str) -> str:
    if len(sizes) >= 6 or operation == OPERATIONS["fmha_fwd_appendkv"]:
        return f"tile of {sizes[0]} queries x {sizes[1]} keys"
    return f"tile of {' x '.join(sizes)}"


def _warps(value: str) -> str:
    return f"{max(math.prod(map(int, one[1:].split('x'))) for one in value.split(','))} warps"


def _instruction(value: str) -> str:
    return f"matrix instruction {' and '.join(one[1:] for one in dict.fromkeys(value.split(',')))}"


def _padding(value: str) -> str:
    found = re.fullmatch(r"p(s)?(sk)?(d)?(dv)?", value)
    padded = [name for name, part in zip(PADS, found.groups(), strict=True) if part] if found else []
    return f"ragged edges of {' and '.join(padded)}" if padded else ""


def _dropout(value: str) -> str:
    if value == "ndropout":
        return ""
    kept = ", keeps the random numbers" if value.endswith("storerandval") else ""
    return f"dropout{kept}"


COMPUTED: Mapping[str, Callable[[str], str]] = {
    "head_dim": _head_dim,
    "warps": _warps,
    "instruction": _instruction,
    "per_cu": lambda value: f"occupancy {value[1:]}",
    "padding": _padding,
    "dropout": _dropout,
    "arch": lambda value: f"for {value}",
}
SAID: dict[str, dict[str, str]] = {
    "mode": {"batch": "equal lengths", "group": "ragged lengths"},
    "pipeline": {
        "qr": "Q in registers",
        "qr_async": "Q in registers, K and V loaded straight to LDS",
        "qr_async_trload": "Q in registers, K and V loaded transposed",
        "qr_nwarp_sshuffle": "Q in registers, scores shared by warps",
        "qr_pagedkv": "Q in registers, pages of keys",
        "qr_fp8": "Q in registers, fp8",
        "qs": "Q in LDS",
        "kr_ktr_vr": "K and V in registers",
        "kr_ktr_vr_iglp": "K and V in registers, instructions interleaved by hand",
    },
    "values": {"vc": "V stored by columns"},
    "softcap": {"logits": "softcap"},
    "bias": {"bias": "bias of every score", "alibi": "ALiBi"},
    "bias_gradient": {"dbias": "gradient of the bias"},
    "mask": {
        "mask": "causal or window mask",
        "nmask": "no mask",
        "mc": "causal mask",
        "mg": "window mask",
    },
    "lse": {"lse": "writes the log-sum-exp"},
    "skip": {"skip": "skips short queries"},
    "scale": {"squant": "scales of fp8"},
    "paged": {"pagedkv": "paged cache"},
    "deterministic": {"deterministic": "deterministic", "ndeterministic": "dQ added atomically"},
    "rotary": {"inter": "rotary embedding, pairs interleaved", "half": "rotary embedding, halves"},
}

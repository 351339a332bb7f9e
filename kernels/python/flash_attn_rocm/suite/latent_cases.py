"""Calls of the latent attention kernels, generated like the attention calls of forward_cases.py."""

import random
from dataclasses import dataclass, replace

import torch

from flash_attn_rocm.suite import forward_cases
from flash_attn_rocm.suite.forward_cases import FAR, MAGNITUDES, PATTERNS
from flash_attn_rocm.suite.rule import Rules
from flash_attn_rocm.suite.target import arch
from flash_attn_rocm.values import kinds, paths

MLA = torch.ops.flash_attn_rocm.mla.default
ARGUMENTS = tuple(argument.name for argument in MLA._schema.arguments)
LATENT = kinds.ATTENDING[paths.LATENT]
REST = 64  # elements of K after those of V
UNITS = 0
# With all heads: less than a workgroup's rows, exactly its rows, and several workgroups.
ROWS = (1, 1, 2, 3, 5)
HEADS = (1, 5, 8, 16, 17, 33)
KEYS = (1, 5, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 97, 128, 129, 200)
PAGES = (16, 48, 64)
SPLITS = (1, 1, 2, 3, 5)
STORES = ("dense", "in use", "paged")
LAYOUTS = (*forward_cases.LAYOUTS, FAR)
MANY = 0.1  # of the calls with more parts than a wave has lanes


@dataclass(frozen=True)
class Case(forward_cases.Case):
    """``keys`` of the cache's single head. The window is unlimited or causal."""

    @property
    def features(self):
        """Names of the features in this call."""
        named = super().features
        wanted = served(self.kernel)
        before = {"rows that see no key"} if self.window[1] == 0 and self.rows[0] > min(self.keys) else set()
        first = {"a scale of 0"} if self.scale == 0.0 else set()
        blocks = {"several workgroups of rows"} if self.rows[0] * self.heads[0] > 32 else set()
        return {each for each in named | before | first | blocks if each in wanted or each == "parts"}


def served(_kernel):
    """The features to test with every latent kernel."""
    return {
        "causal", "parts", "paged", "part in use", "far strides", "a sequence without keys",
        "rows that see no key", "a scale of 0", "several workgroups of rows",
        *(f"values {each}" for each in (*MAGNITUDES, *PATTERNS, "infinite")),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number}")
    some = chance.choice
    store, layout, batch = some(STORES), some(LAYOUTS), some((1, 2, 3))
    rows, heads, splits = some(ROWS), some(HEADS), some(SPLITS)
    keys = [some(KEYS) for _ in range(batch)]
    if store == "dense":
        keys = [keys[0]] * batch
    elif chance.random() < 0.3:
        keys[chance.randrange(batch)] = 0
    if chance.random() < MANY:
        rows, keys, splits = 1, [forward_cases.MANY_KEYS], forward_cases.MANY_SPLITS
    values = some((*MAGNITUDES, *PATTERNS, "infinite"))
    scale = 1.0 if values in PATTERNS else some((None, None, 0.1, -0.05, 0.0))
    return Case(
        kernel, kernel.head_dim, (rows,) * len(keys), tuple(keys), (heads, 1), store, some(PAGES),
        "contiguous" if layout == FAR and len(keys) == 1 else layout, some(((-1, -1), (-1, 0))), 0.0, "", 0.0,
        splits, values, scale, chance.randrange(2**31),
    )  # fmt: skip


class Call(forward_cases.Call):
    """The tensors of a case, whose values are the first elements of its keys."""

    scaled = False  # rows that hold their scales

    def __init__(self, case, device):
        super().__init__(case, device)
        self.v = self.k
        self.rules = Rules(*case.window, scale=case.scale)

    def queries_and_keys(self, rows, keys):
        """Inf and NaN go to an element outside of V: inside, they could reach rows that hide the key."""
        q, k = super().queries_and_keys(rows, keys)
        if self.case.values == "infinite" and keys:
            one = k[keys // 3, 0]
            one[0], one[-1] = one[1], one[0].item()
        return q, k

    def parts(self, lse, keys):
        """Buffers for the parts of the keys. The plan decides their number."""
        case = self.case
        sizes = (len(case.rows), case.rows[0], keys, case.heads[0], UNITS, case.splits)
        plan = torch.ops.flash_attn_rocm.plan_mla
        _, splits, _ = plan(arch(), case.kernel.dtype, case.head_dim, *sizes, self.coded, self.scaled)
        if splits == 1:
            return {}
        return {
            "partial_out": lse.new_empty(splits, *lse.shape, case.head_dim - REST),
            "partial_lse": lse.new_empty(splits, *lse.shape),
        }

    def launched(self, target):
        """The sequences with their results."""
        case = self.case
        q = self.laid_out(torch.stack(self.q))
        (cache, _), stored = self.store()
        out = self.place(q[..., :-REST])
        lse = torch.empty(len(case.rows), case.heads[0], case.rows[0], device=self.device)
        table = stored.get("block_table")
        longest = cache.shape[1] if table is None else table.shape[1] * cache.shape[1]
        given = {
            "q": q, "kv_cache": cache, "cache_seqlens": stored.get("seqused_k"), "block_table": table,
            "kv_descale": self.more().get("k_descale"), "out": out, "lse": lse, **self.parts(lse, longest),
            "softmax_scale": case.head_dim**-0.5 if case.scale is None else case.scale,
            "causal": case.window[1] == 0,
        }  # fmt: skip
        target.attend(MLA, *(given.get(name) for name in ARGUMENTS))
        return self.sequences(out, lse, [None] * len(case.rows))

    def sequences(self, out, lse, weights):
        return [replace(each, v=each.v[..., :-REST]) for each in super().sequences(out, lse, weights)]

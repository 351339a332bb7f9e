"""The C interface: any arguments give a status and words. Launches stay within the hardware's limits."""

import re
import subprocess
import sys

import pytest

from tests.engine.host.interface import (
    BF16,
    BOOL,
    CHECKOUT,
    CLANG,
    FP32,
    INT32,
    INT64,
    INVALID,
    MOST_DIMS,
    OK,
    UNSUPPORTED,
    AppendCall,
    BwdCall,
    FwdCall,
    PlanCall,
    generate,
    tensor,
)
from wheel_builder.tables.archs import known_archs


def test_any_arguments(library_file):
    program = [sys.executable, "-m", "tests.engine.host.fuzzed_calls", library_file]
    done = subprocess.run(program, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"


def append(**changes):
    heads = {name: tensor([2, 3, 2, 64]) for name in ("k", "v")}
    caches = {name: tensor([2, 32, 2, 64]) for name in ("k_cache", "v_cache")}
    given = {"q": tensor([2, 5, 4, 64]), "cache_seqlens": tensor([2], INT32)}
    return AppendCall(**given | heads | caches | changes)


def rotary(**changes):
    angles = {name: tensor([40, 16]) for name in ("cos", "sin")}
    return append(**{"q_out": tensor([2, 5, 4, 64])} | angles | changes)


def forward(**changes):
    heads = {name: tensor([2, 5, 4, 64]) for name in ("q", "k", "v", "out")}
    rules = {"lse": tensor([2, 4, 5], FP32), "softmax_scale": 1.0, "window_left": -1, "window_right": -1}
    return FwdCall(**heads | rules | changes)


# 256 threads move 64 rows of 4 threads, or 8 of 32 for unaligned rows.
@pytest.mark.parametrize(
    ("call", "grid"),
    [
        (append(), (1, 2, 2)),
        (rotary(), (1, 2, 3)),
        (append(k=tensor([2, 40, 2, 64]), v=tensor([2, 40, 2, 64])), (2, 2, 2)),
        (append(k=tensor([2, 3, 2, 64], data=2)), (1, 2, 2)),
        (append(**{n: tensor([2, 40, 2, 64], data=2) for n in ("k", "v")}), (10, 2, 2)),
        (rotary(**{n: tensor([2, 2**20, 4, 64]) for n in ("q", "q_out")}), (2**16, 2, 3)),
        (append(**{n: tensor([2, 2, 2, 64], strides=(-512, 256, -64, 1)) for n in ("k", "v")}), (1, 2, 2)),
    ],
)
def test_launches_of_append(library, call, grid):
    assert library.call(call) == (OK, "", [("fa_append_fp16", grid, (256, 1, 1))])


def test_nothing_to_append_launches_nothing(library):
    nothing = {name: tensor([2, 0, 2, 64]) for name in ("k", "v")}
    assert library.call(append(**nothing)) == (OK, "", [])


def attention(rows=5, keys=7, *, heads=(4, 2), head_dim=64, **changes):
    """A forward call of batch 2."""
    q = {name: tensor([2, rows, heads[0], head_dim]) for name in ("q", "out")}
    kv = {name: tensor([2, keys, heads[1], head_dim]) for name in ("k", "v")}
    return forward(**q | kv | {"lse": tensor([2, heads[0], rows], FP32)} | changes)


def parts(splits, rows=5, nheads=4, head_dim=64):
    lse = [splits, 2, nheads, rows]
    return {"partial_out": tensor([*lse, head_dim], FP32), "partial_lse": tensor(lse, FP32)}


def odd(name, *, rows=5, keys=7, nheads=4, nheads_k=2, head_dim=64):
    """q, k, v or out with strides off multiples of 8 elements."""
    sizes = [2, rows, nheads, head_dim] if name in {"q", "out"} else [2, keys, nheads_k, head_dim]
    row = sizes[2] * (head_dim + 1)
    return {name: tensor(sizes, strides=(sizes[1] * row, row, head_dim + 1, 1))}


DROPS = {"dropout_p": 0.5, "rng_state": tensor([2], INT64)}
REFERENCE = [("fa_reference_fp16", (5, 4, 2), (64, 1, 1))]
FAR_ROWS = {"k": tensor([2, 7, 2, 64], strides=(2**28, 2**24, 64, 1))}
BACK = {"q": tensor([2, 5, 4, 64], strides=(1280, -256, 64, 1))}
PACKED = {
    **{name: tensor([300, 4, 64]) for name in ("q", "out")},
    **{name: tensor([500, 2, 64]) for name in ("k", "v")},
    **{name: tensor([3], INT32) for name in ("cu_seqlens_q", "cu_seqlens_k")},
    "lse": tensor([4, 300], FP32),
}


def uneven(rows=300, of_v=128, **changes):
    """A call whose v and out have another head dim."""
    given = {"v": tensor([2, 7, 2, of_v]), "out": tensor([2, rows, 4, of_v])}
    return attention(rows, **{"head_dim": 192, **given, **changes})


def with_mask(*sizes, rows=300, **changes):
    return attention(rows, attn_mask=tensor([*sizes, 8], **changes))


RANGES, MASKED = "fa_mask_ranges_fp16", ("fa_fwd_masked_fp16_d64", (3, 4, 2), (256, 1, 1))


# The ranges of a mask are found for 32 rows at a time, once for all rows that share it. For a bias, only if
# rows share it.
@pytest.mark.parametrize(
    ("call", "grid"),
    [
        (with_mask(2, 4, 300, dtype=BOOL), (10, 4, 2)),
        (with_mask(2, 1, 300, dtype=BOOL), (10, 1, 2)),
        (with_mask(1, 4, 1, dtype=BOOL), (1, 4, 1)),
        (with_mask(2, 4, 300, dtype=BOOL, strides=(2400, 0, 8, 1)), (10, 1, 2)),
        (with_mask(2, 1, 300), (10, 1, 2)),
        (with_mask(1, 4, 1), (1, 4, 1)),
        (with_mask(2, 4, 300), None),
        (with_mask(1, 1, 300, dtype=FP32), None),
    ],
)
def test_launches_with_a_mask(library, call, grid):
    before = [(RANGES, grid, (256, 1, 1))] if grid else []
    assert library.call(call) == (OK, "", [*before, MASKED])


# On gfx942 a workgroup of fa_fwd_* has 128 rows, and one of fa_decode_* 32 packed ones.
@pytest.mark.parametrize(
    ("call", "launches"),
    [
        (attention(17), [("fa_fwd_fp16_d64", (1, 4, 2), (256, 1, 1))]),
        (attention(300), [("fa_fwd_fp16_d64", (3, 4, 2), (256, 1, 1))]),
        # Heads in turn, of the same die, or of all if there are too few for the 8 dies.
        (attention(300, heads=(16, 8), window_right=0), [("fa_fwd_fp16_d64", (12, 4, 2), (256, 1, 1))]),
        (attention(300, heads=(6, 3), window_left=3), [("fa_fwd_fp16_d64", (6, 3, 2), (256, 1, 1))]),
        (attention(300, window_right=0), [("fa_fwd_fp16_d64", (3, 4, 2), (256, 1, 1))]),
        (attention(5, **DROPS), [("fa_fwd_fp16_d64", (1, 4, 2), (256, 1, 1))]),
        (attention(5), [("fa_decode_fp16_d64", (1, 2, 2), (128, 1, 1))]),
        (attention(16, heads=(8, 2)), [("fa_decode_fp16_d64", (2, 2, 2), (128, 1, 1))]),
        (attention(5, **parts(1)), [("fa_decode_fp16_d64", (1, 2, 2), (128, 1, 1))]),
        (
            attention(5, 300, **parts(3)),
            [("fa_decode_fp16_d64", (3, 2, 2), (128, 1, 1)), ("fa_combine_fp16", (5, 4, 2), (256, 1, 1))],
        ),
        (
            attention(300, 300, **parts(2, rows=300)),
            [("fa_decode_fp16_d64", (38, 2, 2), (128, 1, 1)), ("fa_combine_fp16", (300, 4, 2), (256, 1, 1))],
        ),
        # One of fa_fwd_wide_* has 64.
        (attention(head_dim=512), [("fa_fwd_wide_fp16_d512", (1, 4, 2), (512, 1, 1))]),
        (attention(65, head_dim=512), [("fa_fwd_wide_fp16_d512", (2, 4, 2), (512, 1, 1))]),
        (
            attention(65, 300, head_dim=512, **parts(3, rows=65, head_dim=512)),
            [("fa_fwd_wide_fp16_d512", (6, 4, 2), (512, 1, 1)), ("fa_combine_fp16", (65, 4, 2), (256, 1, 1))],
        ),
        # One of fa_fwd_uneven_* has 128, also with few queries: there a plan pads v.
        (uneven(130), [("fa_fwd_uneven_fp16_d192", (2, 4, 2), (256, 1, 1))]),
        (uneven(5), [("fa_fwd_uneven_fp16_d192", (1, 4, 2), (256, 1, 1))]),
        (attention(head_dim=80), REFERENCE),
        (attention(head_dim=1), REFERENCE),
        (attention(head_dim=80, **DROPS), REFERENCE),
        *((attention(**odd(name)), REFERENCE) for name in ("q", "k", "v", "out")),
        (attention(q=tensor([2, 5, 4, 64], data=2**20 + 8)), REFERENCE),
        (attention(**FAR_ROWS), REFERENCE),
        (attention(**BACK), REFERENCE),
        # The longest sequence comes from the caller's argument, independent of the sequence ends.
        (
            forward(**PACKED, max_seqlen_q=3, max_seqlen_k=7),
            [("fa_decode_fp16_d64", (1, 2, 2), (128, 1, 1))],
        ),
        (
            forward(**PACKED, max_seqlen_q=2**40, max_seqlen_k=2**40),
            [("fa_fwd_fp16_d64", (12, 1, 2), (256, 1, 1))],  # heads in turn
        ),
    ],
)
def test_kernels_of_the_paths(library, call, launches):
    assert library.call(call) == (OK, "", launches)


WHOLE = [("fa_fwd_fp16_d64", (1, 4, 2), (256, 1, 1))]


@pytest.mark.parametrize(
    ("call", "launches"),
    [
        (attention(17, path=b"matrix"), WHOLE),
        (attention(5, path=b"matrix"), WHOLE),  # the library's plan is split
        (attention(17, path=b"split"), [("fa_decode_fp16_d64", (2, 2, 2), (128, 1, 1))]),
        (
            attention(5, 300, path=b"split", **parts(3)),
            [("fa_decode_fp16_d64", (3, 2, 2), (128, 1, 1)), ("fa_combine_fp16", (5, 4, 2), (256, 1, 1))],
        ),
        (attention(5, path=b"reference"), REFERENCE),
        (attention(head_dim=512, path=b"wide"), [("fa_fwd_wide_fp16_d512", (1, 4, 2), (512, 1, 1))]),
        (uneven(5, path=b"uneven"), [("fa_fwd_uneven_fp16_d192", (1, 4, 2), (256, 1, 1))]),
    ],
)
def test_the_callers_path_is_taken(library, call, launches):
    assert library.call(call) == (OK, "", launches)


HIDING = {"attn_mask": tensor([1, 1, 300, 8], dtype=BOOL)}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            attention(path=b"fast"),
            (
                "expected one of matrix, tiled, tall, fp8, int8, wide, uneven, split, latent, reference, "
                "got fast"
            ),
        ),
        (attention(path=b"latent"), "latent does not take this call: it has its own calls"),
        (attention(path=b"uneven"), "uneven does not take this call: v has the head dim of q and k"),
        (attention(path=b"split", **DROPS), "split does not take this call: its kernels have no dropout"),
        (
            attention(path=b"tall", softcap=2.0),
            "tall does not take this call: its kernels have neither softcap nor ALiBi, dropout or pages",
        ),
        (
            attention(300, path=b"reference", **HIDING),
            "reference does not take this call: its kernels read no mask",
        ),
        (attention(300, path=b"tall", **HIDING), "tall does not take this call: its kernels read no mask"),
        (attention(path=b"matrix", **odd("q")), "matrix does not take this call: an address or a stride is"),
        (
            attention(5, 300, path=b"split", **parts(9)),
            "split does not take this call: expected at most 5 parts of its keys, got 9",
        ),
        (
            attention(17, path=b"matrix", **parts(2, rows=17)),
            "matrix does not take this call: expected at most 1 part of its keys, got 2",
        ),
    ],
)
def test_a_path_that_does_not_take_the_call(library, call, words):
    status, found, launches = library.call(call)
    assert (status, launches) == (INVALID, [])
    assert found.startswith(f"flash_attn_rocm::fwd cannot use its arguments:\n  - path: {words}")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            attention(head_dim=96, path=b"tall"),
            "no fwd_tall kernel for fp16 with head_dim 96 on gfx942: this wheel has",
        ),
        (attention(head_dim=80, path=b"matrix"), "no fwd kernel for fp16 with head_dim 80 on gfx942"),
        (attention(head_dim=512, path=b"matrix"), "no kernel takes this call with head_dim 512"),
    ],
)
def test_a_path_without_a_kernel(library, call, words):
    status, found, launches = library.call(call)
    assert (status, launches) == (UNSUPPORTED, [])
    assert found.startswith(words)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (attention(17, **parts(2, rows=17)), "expected none, as plan says of this call (17 query rows, keys"),
        (attention(5, **parts(2)), "expected none, as plan says of this call (5 rows of 2 heads packed for"),
        (attention(5, 300, **parts(9)), "expected 5 parts, as plan says of this call ("),
        (attention(5, 300, **parts(3), **DROPS), "as plan says of this call (dropout: keys are not split),"),
        (attention(5, 300, head_dim=80, **parts(3, head_dim=80)), "(no other kernel has head_dim 80), got 3"),
        (attention(5, 300, **odd("k", keys=300), **parts(3)), "(an address or a stride is not a multiple"),
        (forward(**PACKED, max_seqlen_q=3, max_seqlen_k=-1), "max_seqlen_k: expected at least 0, got -1"),
        (attention(q=tensor([2, 5, 4, 64], data=1)), "q: expected an address that is a multiple of its elem"),
        (
            attention(q=tensor([2, 5, 4, 64], strides=(1280, 256, 1, 4))),
            "q: expected a contiguous last dimension",
        ),
    ],
)
def test_calls_that_no_path_takes(library, call, words):
    status, found, launches = library.call(call)
    assert (status, launches) == (INVALID, [])
    assert "flash_attn_rocm::fwd cannot use its arguments:\n  - " in found
    assert words in found


LONG = 2**25
TOO_MANY = [
    (attention(LONG, 4096, **parts(16, rows=LONG)), "fa_combine_fp16 on gfx942: expected at most 16777215 x"),
    (attention(LONG, 4096, heads=(4, 1), **parts(16, rows=LONG)), f"and this call needs {LONG} x 4 x 2"),
    (
        attention(LONG, 2**20, **parts(512, rows=LONG)),
        f"65535 x 65535 workgroups in a launch, and this call needs {LONG} x 4 x 2\n  next: cut the call",
    ),
    (attention(300, head_dim=257), "no fwd kernel for fp16 with head_dim 257 on gfx942: this wheel has bf16"),
    (
        attention(softcap=5.0, head_dim=512),
        "no kernel takes this call with head_dim 512: its kernels have neither softcap nor ALiBi, dropout or",
    ),
    (
        attention(alibi_slopes=tensor([4], FP32), head_dim=512),
        "no kernel takes this call with head_dim 512: its kernels have neither softcap nor ALiBi, dropout or",
    ),
    (attention(head_dim=512, **DROPS), "head_dim 512: its kernels have neither dropout nor a mask"),
    (attention(head_dim=512, **odd("k", head_dim=512)), "head_dim 512: an address or a stride is not a mult"),
    (
        attention(300, head_dim=0),
        "; fp16 with head_dim 32, 64, 96, 128, 192, 256, and a reference kernel for",
    ),
    (uneven(of_v=64), "no kernel takes v with head_dim 64 beside q and k with head_dim 192 on gfx942: pad v"),
    (uneven(of_v=0), "no kernel takes v with head_dim 0 beside q and k with head_dim 192 on gfx942: pad v"),
    (uneven(head_dim=96), "no kernel takes v with head_dim 128 beside q and k with head_dim 96 on gfx942"),
    *(
        (
            uneven(**features),
            "no kernel takes v with head_dim 128 in this call: those that take one other than",
        )
        for features in (
            {"softcap": 5.0},
            {"alibi_slopes": tensor([4], FP32)},
            DROPS,
            odd("k", head_dim=192),
            {"path": b"tall"},
            {"attn_mask": tensor([1, 1, 300, 8], dtype=BOOL)},
            parts(2, rows=300, head_dim=128),
        )
    ),
]


@pytest.mark.parametrize(("call", "words"), TOO_MANY)
def test_more_than_a_launch_takes(library, call, words):
    status, found, launches = library.call(call)
    assert (status, launches) == (UNSUPPORTED, [])
    assert words in found


def plan_call(**changes):
    sizes = {"head_dim": 64, "batch": 2, "max_seqlen_q": 5, "max_seqlen_k": 7, "nheads": 4, "nheads_k": 2}
    names = {"arch": b"gfx942:sramecc+:xnack-", "dtype": b"fp16", "aligned": 1}
    return PlanCall(**sizes | names | changes)


LONG = {
    "arch": b"gfx1200", "head_dim": 128, "batch": 4, "max_seqlen_q": 4096, "max_seqlen_k": 4096, "plain": 1,
    "compute_units": 32,
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (plan_call(), (OK, "split", 1)),
        (plan_call(max_seqlen_q=300), (OK, "matrix", 1)),
        (plan_call(max_seqlen_q=300, arch=b"gfx1030"), (OK, "tiled", 1)),
        (plan_call(max_seqlen_k=32768, compute_units=304), (OK, "split", 137)),
        (plan_call(max_seqlen_k=32768, num_splits=3), (OK, "split", 3)),
        (plan_call(head_dim=80), (OK, "reference", 1)),
        (plan_call(aligned=0), (OK, "reference", 1)),
        (plan_call(**LONG), (OK, "tall", 1)),
        (plan_call(**LONG | {"plain": 0}), (OK, "matrix", 1)),
        (plan_call(**LONG | {"head_dim": 64}), (OK, "matrix", 1)),  # the kernel is missing
        (plan_call(**LONG | {"arch": b"gfx950"}), (OK, "matrix", 1)),
        (plan_call(**LONG | {"arch": b"gfx942"}), (OK, "tall", 1)),
        (plan_call(masked=1), (OK, "matrix", 1)),
        (plan_call(head_dim=192, v_head_dim=128, max_seqlen_q=300), (OK, "uneven", 1)),
        (plan_call(head_dim=192, v_head_dim=192, max_seqlen_q=300), (OK, "matrix", 1)),
        (plan_call(head_dim=192, v_head_dim=128), (OK, "split", 1)),
        (plan_call(head_dim=192, v_head_dim=128, max_seqlen_q=300, dropout=1), (OK, "matrix", 1)),
        (plan_call(head_dim=512), (OK, "wide", 1)),
        (plan_call(head_dim=512, max_seqlen_k=32768, num_splits=3, compute_units=304), (OK, "wide", 3)),
    ],
)
def test_plans(library, call, found):
    status, path, splits, words = library.plan(call)
    assert (status, path, splits) == found
    assert words


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        (
            plan_call(head_dim=80, masked=1),
            UNSUPPORTED,
            "no fwd_masked kernel for fp16 with head_dim 80 on gfx942: this wheel has bf16 with head_dim 64",
        ),
        (
            plan_call(aligned=0, masked=1),
            UNSUPPORTED,
            "no kernel takes this call's attn_mask: an address or a stride is not a multiple of 8 elements",
        ),
        (
            plan_call(head_dim=512, aligned=0),
            UNSUPPORTED,
            "no kernel takes this call with head_dim 512: an address or a stride is not a multiple of 8",
        ),
        (
            plan_call(head_dim=512, dropout=1),
            UNSUPPORTED,
            "no kernel takes this call with head_dim 512: its kernels have neither dropout nor a mask",
        ),
        (
            plan_call(head_dim=512, masked=1),
            UNSUPPORTED,
            "no kernel takes this call with head_dim 512: its kernels have neither dropout nor a mask",
        ),
        (
            plan_call(head_dim=192, v_head_dim=64),
            UNSUPPORTED,
            "no kernel takes v with head_dim 64 beside q and k with head_dim 192 on gfx942: pad v",
        ),
        (
            plan_call(head_dim=192, v_head_dim=128, arch=b"gfx1030"),
            UNSUPPORTED,
            "no kernel takes v with head_dim 128 beside q and k with head_dim 192 on gfx1030: pad v",
        ),
        (
            plan_call(head_dim=257),
            UNSUPPORTED,
            "no fwd kernel for fp16 with head_dim 257 on gfx942: this wheel",
        ),
        (plan_call(head_dim=2**40), UNSUPPORTED, "no fwd kernel for fp16 with head_dim 2147483647 on gfx942"),
        (
            plan_call(head_dim=-(2**40)),
            UNSUPPORTED,
            "no fwd kernel for fp16 with head_dim -1 on gfx942: this",
        ),
        (plan_call(head_dim=0), UNSUPPORTED, ", and a reference kernel for any head_dim from 1 to 256"),
        (plan_call(arch=b"gfx900"), UNSUPPORTED, "this wheel has no kernels for gfx900: it was built for"),
        (plan_call(dtype=b"fp32"), UNSUPPORTED, "no fwd kernel for fp32 with head_dim 64 on gfx942: this"),
        (
            plan_call(nheads=3),
            INVALID,
            "plan: expected nheads to be a multiple of nheads_k, which is 2, got 3",
        ),
        (plan_call(batch=-1), INVALID, "plan: expected counts from 0 to 2^31 - 1, got -1"),
    ],
)
def test_what_cannot_be_planned(library, call, status, words):
    found = library.plan(call)
    assert found[0] == status
    assert words in found[3]


def test_the_limits_are_those_of_the_headers(library):
    text = (CHECKOUT / "kernels/device/call/params.hpp").read_text()
    names = {
        "head_dim": "kMaxHeadDim", "wide_head_dim": "kMaxWideHeadDim",
        "uneven_head_dim": "kUnevenValueDim", "splits": "kMaxSplits",
        "row_stride": "kMaxRowStride", "alignment": "kAlignedElements", "page": "kPageMultiple",
    }  # fmt: skip
    values = {
        name: re.search(rf"int(?:32|64)_t {constant} = (.+);", text)[1] for name, constant in names.items()
    }
    assert values.pop("row_stride") == "int64_t{1} << 24"
    found = library.limits()
    assert "kLeastScale = 1e-6f;" in text
    assert found.pop("least_scale") == 1e-6
    assert found.pop("row_stride") == 1 << 24
    assert found == {name: int(value) for name, value in values.items()}


def test_the_registry_has_the_tables_kernels_and_their_compiler(library):
    found = library.instances()
    assert [each["name"] for each in found] == [each.name for each in generate().load_table()]
    assert {each["clang"] for each in found} == {CLANG}


# 80 is missing from the first, and present on the second
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_the_reference_kernel_takes_what_the_table_lacks(library, arch):
    """The registry decides. It comes from the support table, the only list of head dims."""
    own = (each for each in generate().load_table() if each.op == "fwd" and arch in each.archs)
    there = {each.head_dim for each in own}
    assert (80 in there) == (arch == "gfx1201")
    for head_dim in range(1, library.limits()["head_dim"] + 1):
        status, path, _, words = library.plan(plan_call(arch=arch.encode(), head_dim=head_dim))
        assert status == OK, words
        assert (path == "reference") == (head_dim not in there), head_dim


def test_every_head_dim_up_to_256_is_served(library):
    for arch in known_archs():
        calls = (plan_call(arch=arch.encode(), dtype=b"bf16", head_dim=n) for n in range(1, 257))
        assert {library.plan(call)[0] for call in calls} == {OK}
    words = ", and a reference kernel for any head_dim from 1 to 256"
    for head_dim in (-1, 0, 257):
        status, *_, found = library.plan(plan_call(head_dim=head_dim))
        assert status == UNSUPPORTED
        assert found.endswith(words)


FAR = (2**40, 2**46, 64, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (append(k=tensor([2, 3, 2, 64], BF16)), "k: expected dtype fp16, got bf16"),
        (append(v=tensor([2, 3, 2, 64], device=1)), "v: expected device 0 like q, got 1"),
        (append(q=tensor([2, 5, 4, 32])), "q: expected shape (2, 5, 4, 64), got shape (2, 5, 4, 32)"),
        (append(k=tensor([2, 3, 2, 64], data=1)), "k: expected an address that is a multiple of"),
        (append(k=tensor([2, 3, 2, 64], data=None)), "k: expected the address of its elements, got null"),
        (append(v=tensor([2, 3, 2, 64], strides=FAR)), "v: expected elements at most 2^46 apart, got shape"),
        (append(v=tensor([2, -3, 2, 64])), "v: expected sizes of at least 0, got shape (2, -3, 2, 64)"),
        (append(cache_seqlens=tensor([])), "cache_seqlens: expected 1 dimensions, got shape ()"),
        (
            append(k_cache=tensor([2, 32, 2, 64], strides=(4096, 0, 64, 1))),
            "k_cache: expected memory for each element, got a stride of 0",
        ),
        (
            append(**{n: tensor([2, 2**29, 4, 64], strides=(0, 0, 64, 1)) for n in ("k", "v")}),
            "k_cache: expected shape (2, 32, 4, 64), got shape (2, 32, 2, 64)",
        ),
        (
            rotary(**{n: tensor([2, 2**29, 4, 64]) for n in ("q", "q_out")}),
            "rows of q times its heads: expected at most",
        ),
        (forward(v=tensor([2, 5, 4, 64], data=None)), "v: expected the address of its elements, got null"),
        (forward(k=tensor([2, 5, -4, 64])), "k: expected sizes of at least 0, got shape (2, 5, -4, 64)"),
    ],
)
def test_wrong_arguments(library, call, words):
    status, found, launches = library.call(call)
    assert status == INVALID
    assert launches == []
    assert " cannot use its arguments:\n  - " in found
    assert words in found


@pytest.mark.parametrize("dims", [-1, MOST_DIMS + 1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("call", [append, forward])
def test_numbers_of_dimensions_that_cannot_be(library, call, dims):
    arguments = call()
    arguments.k.dims = dims
    status, words, _ = library.call(arguments)
    assert status == INVALID
    assert f"k: expected 0 to {MOST_DIMS} dimensions, got {dims}" in words


def backward(rows=5, keys=7, *, heads=(4, 2), head_dim=64, **changes):
    """A backward call of batch 2."""
    q = {name: tensor([2, rows, heads[0], head_dim]) for name in ("q", "out", "dout", "dq")}
    kv = {name: tensor([2, keys, heads[1], head_dim]) for name in ("k", "v", "dk", "dv")}
    sums = {name: tensor([2, heads[0], rows], FP32) for name in ("lse", "delta")}
    rules = {"softmax_scale": 1.0, "window_left": -1, "window_right": -1}
    return BwdCall(**q | kv | sums | rules | changes)


@pytest.mark.parametrize("make", [attention, backward], ids=["fwd", "bwd"])
def test_a_window_as_wide_as_the_keys_launches_what_none_does(library, make):
    """Kernels take it unchanged: kernel, grid and number of parts stay."""
    status, words, launches = library.call(make(window_left=7, window_right=7))
    assert (status, words) == (OK, "")
    assert launches == library.call(make(window_left=-1, window_right=-1))[2] != []


SEQUENCES = {
    **{name: tensor([300, 4, 64]) for name in ("q", "out", "dout", "dq")},
    **{name: tensor([500, 2, 64]) for name in ("k", "v", "dk", "dv")},
    **{name: tensor([4, 300], FP32) for name in ("lse", "delta")},
    **{name: tensor([3], INT32) for name in ("cu_seqlens_q", "cu_seqlens_k")},
}


def kernels(delta, dkdv, dq, *, dtype="fp16", head_dim=64, threads=(512, 256)):
    """Launches with these grids, except those without blocks."""
    end = f"{dtype}_d{head_dim}"
    every = (
        (f"fa_bwd_delta_{dtype}", delta, 128),
        (f"fa_bwd_dkdv_{end}", dkdv, threads[0]),
        (f"fa_bwd_dq_{end}", dq, threads[1]),
    )
    return [(name, grid, (count, 1, 1)) for name, grid, count in every if grid]


# On gfx942 a workgroup of dkdv has 128 keys up to head dim 192, one of dq 128 queries.
@pytest.mark.parametrize(
    ("call", "launches"),
    [
        (backward(), kernels((1, 4, 2), (1, 2, 2), (1, 4, 2))),
        (backward(300, 300), kernels((3, 4, 2), (3, 2, 2), (3, 4, 2))),
        (backward(300, 300, window_right=0), kernels((3, 4, 2), (6, 1, 2), (3, 4, 2))),  # heads in turn
        (
            backward(300, 300, head_dim=128),
            kernels((3, 4, 2), (3, 2, 2), (3, 4, 2), head_dim=128),
        ),
        (backward(**DROPS), kernels((1, 4, 2), (1, 2, 2), (1, 4, 2))),
        (backward(rows=0), kernels(None, (1, 2, 2), None)),
        (backward(keys=0), kernels((1, 4, 2), None, (1, 4, 2))),
        (backward(heads=(0, 0)), []),
        # Heads of packed sequences start in turn.
        (backward(**SEQUENCES, max_seqlen_q=70, max_seqlen_k=70), kernels((1, 4, 2), (2, 1, 2), (4, 1, 2))),
        (
            backward(**SEQUENCES, max_seqlen_q=2**40, max_seqlen_k=2**40),
            kernels((3, 4, 2), (8, 1, 2), (12, 1, 2)),
        ),
        (
            # Gradients in one packed tensor (2, 5, 3, 4, 64).
            backward(
                5, 5, heads=(4, 4),
                **{n: tensor([2, 5, 4, 64], strides=(3840, 768, 64, 1)) for n in ("dq", "dk", "dv")},
            ),
            kernels((1, 4, 2), (1, 4, 2), (1, 4, 2)),
        ),
    ],
)  # fmt: skip
def test_launches_of_a_backward(library, call, launches):
    assert library.call(call) == (OK, "", launches)


ALIGNED = (
    "expected a contiguous last dimension, an address and other strides that are multiples of 8 elements, "
    "and rows less than 2^24 elements apart"
)


@pytest.mark.parametrize(
    ("call", "problems"),
    [
        (
            backward(dk=tensor([2, 7, 2, 32]), dq=tensor([2, 5, 4, 63]), delta=tensor([2, 5, 4], FP32)),
            [
                "dk: expected shape (2, 7, 2, 64), got shape (2, 7, 2, 32)",
                "dq: expected shape (2, 5, 4, 64), got shape (2, 5, 4, 63)",
                "delta: expected shape (2, 4, 5), got shape (2, 5, 4)",
            ],
        ),
        (
            backward(
                dout=tensor([2, 5, 4, 64], BF16), lse=tensor([2, 4, 5]), dv=tensor([7, 2, 64]),
                out=tensor([2, 5, 4, 64], device=1), cu_seqlens_k=tensor([3], INT32), dropout_p=0.5,
            ),
            [
                "out: expected device 0 like q, got 1",
                "dout: expected dtype fp16, got bf16",
                "lse: expected dtype fp32, got fp16",
                "dv: expected 4 dimensions, got shape (7, 2, 64)",
                "cu_seqlens_q, cu_seqlens_k: expected both or none",
                "rng_state: expected together with dropout_p > 0",
            ],
        ),
        (
            backward(
                dq=tensor([2, 5, 4, 64], data=2**20 + 8), dk=tensor([2, 7, 2, 64], strides=(1024, 0, 64, 1)),
                k=tensor([2, 7, 2, 64], strides=(2**28, 2**24, 64, 1)), softcap=-1.0,
                delta=tensor([2, 4, 5], FP32, strides=(40, 10, 2)),
            ),
            [
                "softcap: expected 0 (none) or a positive number, got -1.000000",
                f"k: {ALIGNED}",
                f"dq: {ALIGNED}",
                "dk: expected memory for each element, got a stride of 0",
                "delta: expected a contiguous tensor",
            ],
        ),
        (
            backward(heads=(4, 3)),
            ["q: expected a positive number of heads that is a multiple of k's 3, got 4"],
        ),
        (backward(q=tensor([2, 5, 4, 64], FP32)), ["q: expected dtype fp16 or bf16, got fp32"]),
        (
            backward(dq=tensor([2, 5, 4, 64], data=None)),
            ["dq: expected the address of its elements, got null"],
        ),
        (backward(**SEQUENCES, max_seqlen_q=-1), ["max_seqlen_q: expected at least 0, got -1"]),
        (
            backward(**SEQUENCES | {"cu_seqlens_k": tensor([4], INT32)}),
            ["cu_seqlens_k: expected shape (3), got shape (4)"],
        ),
        (
            backward(alibi_slopes=tensor([2, 3], FP32)),
            ["alibi_slopes: expected shape (2, 4), got shape (2, 3)"],
        ),
        (
            backward(**{n: tensor([2**17, 1, 4, 64]) for n in ("q", "out", "dout", "dq")}
                     | {n: tensor([2**17, 1, 2, 64]) for n in ("k", "v", "dk", "dv")}
                     | {n: tensor([2**17, 4, 1], FP32) for n in ("lse", "delta")}),
            ["batch: expected at most 65535, got 131072"],
        ),
    ],
)  # fmt: skip
def test_wrong_arguments_of_a_backward_are_all_named(library, call, problems):
    status, words, launches = library.call(call)
    assert (status, launches) == (INVALID, [])
    title, *found = words.split("\n  - ")
    assert title == "flash_attn_rocm::bwd cannot use its arguments:"
    if problems[0].startswith("q: expected dtype"):
        found = found[:1]  # the other tensors' dtypes, now unlike q's, are also named
    assert found == problems


def fused(elements, head_dim=64):
    return {"dq_sums": tensor([elements], FP32), "head_dim": head_dim}


# On gfx942 a workgroup of the fused kernel has 128 keys.
@pytest.mark.parametrize(
    ("call", "launches"),
    [
        (
            backward(**fused(2 * 32 * 4 * 64)),
            [
                ("fa_bwd_delta_fp16", (1, 4, 2), (128, 1, 1)),
                ("fa_bwd_fused_fp16_d64", (1, 2, 2), (512, 1, 1)),
                ("fa_bwd_convert_fp16", (1, 4, 2), (256, 1, 1)),
            ],
        ),
        (
            backward(300, 300, **fused(2 * 320 * 4 * 128, 128), **DROPS),
            [
                ("fa_bwd_delta_fp16", (3, 4, 2), (128, 1, 1)),
                ("fa_bwd_fused_fp16_d128", (3, 2, 2), (512, 1, 1)),
                ("fa_bwd_convert_fp16", (3, 4, 2), (256, 1, 1)),
            ],
        ),
        (
            backward(
                **SEQUENCES, dq_sums=tensor([(300 // 32 + 2) * 32 * 4 * 64], FP32), max_seqlen_q=70,
                max_seqlen_k=70,
            ),
            [
                ("fa_bwd_delta_fp16", (1, 4, 2), (128, 1, 1)),
                ("fa_bwd_fused_fp16_d64", (2, 1, 2), (512, 1, 1)),
                ("fa_bwd_convert_fp16", (1, 4, 2), (256, 1, 1)),
            ],
        ),
        (backward(rows=0, dq_sums=tensor([0], FP32)), [("fa_bwd_fused_fp16_d64", (1, 2, 2), (512, 1, 1))]),
    ],
)  # fmt: skip
def test_launches_of_a_fused_backward(library, call, launches):
    assert library.call(call) == (OK, "", launches)


def uneven_backward(of_v=128, **changes):
    """A call whose v and out have another head dim."""
    like_v = {n: tensor([2, 70, 2, of_v]) for n in ("v", "dv")}
    like_out = {n: tensor([2, 300, 4, of_v]) for n in ("out", "dout")}
    return backward(300, 70, **{"head_dim": 192, **like_v, **like_out, **changes})


# On gfx942 a workgroup of dkdv has 128 keys, and one of dq 256 queries.
def test_launches_of_a_backward_with_another_head_dim_of_v(library):
    assert library.call(uneven_backward()) == (
        OK,
        "",
        [
            ("fa_bwd_delta_fp16", (3, 4, 2), (128, 1, 1)),
            ("fa_bwd_dkdv_uneven_fp16_d192", (1, 2, 2), (512, 1, 1)),
            ("fa_bwd_dq_uneven_fp16_d192", (2, 4, 2), (512, 1, 1)),
        ],
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            uneven_backward(64),
            "no kernel computes gradients of v with head_dim 64 beside q and k with head_dim 192",
        ),
        (
            uneven_backward(head_dim=96),
            "v with head_dim 128 beside q and k with head_dim 96 on gfx942: pad v",
        ),
        (
            uneven_backward(softcap=3.0),
            "head_dim 192 with ALiBi, softcap, dropout, attn_mask or dq_sums: pad v",
        ),
        (uneven_backward(**DROPS), "head_dim 192 with ALiBi, softcap, dropout, attn_mask or dq_sums: pad v"),
        (
            uneven_backward(dq_sums=tensor([2 * 320 * 4 * 192], FP32)),
            "head_dim 192 with ALiBi, softcap, dropout, attn_mask or dq_sums: pad v",
        ),
    ],
)
def test_what_has_no_backward_with_another_head_dim_of_v(library, call, words):
    status, found, launches = library.call(call)
    assert (status, launches) == (UNSUPPORTED, [])
    assert words in found


MASK = tensor([2, 4, 5, 8], BOOL)
BIAS, SCORES = tensor([2, 4, 5, 8]), tensor([2, 4, 5, 8], FP32)


@pytest.mark.parametrize("mask", [MASK, tensor([1, 1, 5, 8]), tensor([2, 1, 1, 8], FP32)])
def test_launches_of_a_backward_with_a_mask(library, mask):
    plain = library.call(backward())[2]
    scores = {} if mask is MASK else {"dscores": SCORES}
    for more in ({}, DROPS):
        status, words, launches = library.call(backward(attn_mask=mask, **scores, **more))
        assert (status, words) == (OK, "")
        names = ["fa_bwd_delta_fp16", "fa_bwd_dkdv_masked_fp16_d64", "fa_bwd_dq_masked_fp16_d64"]
        assert [launch.kernel for launch in launches] == names
        assert [launch.grid for launch in launches] == [launch.grid for launch in plain]


@pytest.mark.parametrize(
    ("rows", "mask", "grid"),
    [
        (1024, tensor([2, 4, 1024, 8], BOOL), (32, 4, 2)),
        (1030, tensor([1, 1, 1030, 8], BOOL), (33, 1, 1)),
        (1024, tensor([2, 1, 1024, 8]), (32, 1, 2)),
        (1024, tensor([2, 4, 1024, 8]), None),
        (1024, tensor([1, 1, 1024, 8], FP32), None),
        (1023, tensor([1, 1, 1023, 8], BOOL), None),
    ],
)
def test_gradients_of_many_rows_skip_what_a_mask_hides(library, rows, mask, grid):
    status, words, launches = library.call(backward(rows, attn_mask=mask))
    assert (status, words) == (OK, "")
    found = [(RANGES, grid, (256, 1, 1))] if grid else []
    assert launches[: len(launches) - 3] == found


MASK_OF_GRADIENTS = (
    "attn_mask: expected none of the other optional tensors but dscores and rng_state, and no softcap"
)


SMALL_SCALE = (
    "softmax_scale: expected 0, or a magnitude of at least 0.000001 beside an attn_mask that is added, got "
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"attn_mask": tensor([2, 4, 5, 7], BOOL)},
            "attn_mask: expected shape (2, 4, 5, 8), got shape (2, 4, 5, 7)",
        ),
        ({"attn_mask": MASK, "softcap": 1.0}, MASK_OF_GRADIENTS),
        ({"attn_mask": MASK, "alibi_slopes": tensor([4], FP32)}, MASK_OF_GRADIENTS),
        ({"attn_mask": MASK, "dq_sums": tensor([16384], FP32)}, MASK_OF_GRADIENTS),
        ({"dscores": SCORES}, "dscores: expected together with attn_mask"),
        (
            {"attn_mask": MASK, "dscores": SCORES},
            "dscores: expected with a bias, got a boolean attn_mask, which has no gradient",
        ),
        (
            {"attn_mask": BIAS, "dscores": tensor([2, 4, 5, 7], FP32)},
            "dscores: expected shape (2, 4, 5, 8), got shape (2, 4, 5, 7)",
        ),
        ({"attn_mask": BIAS, "dscores": MASK}, "dscores: expected dtype fp32, got bool"),
        (
            {"attn_mask": tensor([1, 1, 1, 8], FP32), "softmax_scale": 1e-7},
            f"{SMALL_SCALE}0.000000",
        ),
    ],
)
def test_wrong_masks_of_a_backward(library, changes, problem):
    status, words, launches = library.call(backward(**changes))
    assert (status, launches) == (INVALID, [])
    assert words == f"flash_attn_rocm::bwd cannot use its arguments:\n  - {problem}"


def test_a_head_dim_without_backward_kernels_with_a_mask(library):
    assert library.plan_bwd(**BWD | {"masked": 1})[:2] == (OK, "separate")
    status, path, words = library.plan_bwd(**BWD | {"masked": 1, "head_dim": 96})
    assert (status, path) == (UNSUPPORTED, "")
    assert words.startswith("no bwd_dq_masked kernel for fp16 with head_dim 96 on gfx942: this wheel has")


def test_the_sums_of_a_fused_backward_are_counted(library):
    sizes = {"nheads": 4, "head_dim": 64}
    assert library.bwd_sums(ragged=0, batch=2, rows_q=33, **sizes) == 2 * 64 * 4 * 64
    # Sequences begin in separate blocks, at any row.
    assert library.bwd_sums(ragged=1, batch=2, rows_q=33, **sizes) == (33 // 32 + 2) * 32 * 4 * 64
    status, words, _ = library.call(backward(**fused(5)))
    assert status == INVALID
    assert "dq_sums: expected shape (16384), got shape (5)" in words


def test_a_fused_backward_without_a_kernel(library):
    status, words, launches = library.call(backward(**fused(2 * 32 * 4 * 256, 256)))
    assert (status, launches) == (UNSUPPORTED, [])
    assert words.startswith("no bwd_fused kernel for fp16 with head_dim 256 on gfx942: this wheel has bf16")


FUSED_WORDS = (
    "five products instead of seven, and dq added up by atomics, a byte for {} FLOP, in no fixed order "
    "(deterministic=True: the same bits every time). Modelled to be faster while additions stay in an L2, "
    "and not measured: compare with FLASH_ATTN_ROCM_BACKWARD=separate"
)
BWD = {"arch": "gfx942:sramecc+:xnack-", "dtype": "fp16", "head_dim": 64, "wanted": ""}


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({}, "fused", f"the default of gfx942: {FUSED_WORDS.format(320)}"),
        ({"featured": 1, "head_dim": 128}, "fused", "the default of gfx942"),
        (
            {"featured": 1},
            "separate",
            "the fused kernels of gfx942 have no ALiBi, softcap and",
        ),
        ({"deterministic": 1}, "separate", "the same bits every time are wanted (deterministic)"),
        ({"deterministic": 1, "wanted": "fused"}, "separate", "the same bits every time are wanted"),
        ({"wanted": "separate"}, "separate", "separate is wanted"),
        ({"arch": "gfx1100", "wanted": "fused"}, "fused", "fused is wanted"),
        ({"arch": "gfx908"}, "separate", "the default of gfx908"),
        ({"arch": "gfx950"}, "separate", "the default of gfx950"),
        ({"arch": "gfx950", "wanted": "fused"}, "fused", "fused is wanted"),
        ({"arch": "gfx1100"}, "fused", f"the default of gfx1100: {FUSED_WORDS.format(160)}"),
        ({"arch": "gfx1100", "head_dim": 128}, "fused", "the default of gfx1100: five"),
        ({"arch": "gfx1100", "featured": 1}, "fused", "the default of gfx1100: five"),
        ({"arch": "gfx1101"}, "fused", "the default of gfx1100: five"),
        ({"arch": "gfx1103"}, "fused", "the default of gfx1102: five"),
        ({"arch": "gfx1151"}, "fused", "the default of gfx1151: five"),
        ({"arch": "gfx1100", "deterministic": 1}, "separate", "the same bits every time are wanted"),
        ({"arch": "gfx1100", "wanted": "separate"}, "separate", "separate is wanted"),
        ({"arch": "gfx1100", "head_dim": 32}, "separate", "no bwd_fused kernel for fp16 with head_dim 32 on"),
        (
            {"arch": "gfx908", "featured": 1},
            "separate",
            "the fused kernels of gfx908 have no ALiBi, softcap and",
        ),
        (
            {"arch": "gfx1030", "wanted": "fused"},
            "separate",
            "no bwd_fused kernel for fp16 with head_dim 64 on",
        ),
        ({"head_dim": 256}, "separate", "no bwd_fused kernel for fp16 with head_dim 256 on gfx942"),
        ({"masked": 1, "wanted": "fused"}, "separate", "a mask: only separate kernels read one"),
    ],
)
def test_the_path_of_a_backward_has_a_reason(library, changes, path, words):
    status, found, reason = library.plan_bwd(**BWD | changes)
    assert (status, found) == (OK, path)
    assert reason.startswith(words)


def test_a_path_of_a_backward_that_there_is_not(library):
    expected = "the backward's path: expected separate, fused or nothing, got atomic"
    assert library.plan_bwd(**BWD | {"wanted": "atomic"}) == (INVALID, "", expected)
    assert library.call(backward(path=b"atomic")) == (INVALID, expected, [])
    assert library.plan_bwd(**BWD | {"head_dim": 40})[:2] == (UNSUPPORTED, "")


def test_a_backward_takes_the_callers_path(library):
    for path, sums in ((b"separate", {}), (b"fused", fused(2 * 32 * 4 * 64))):
        assert library.call(backward(**sums, path=path)) == library.call(backward(**sums))
        other = {b"separate": b"fused", b"fused": b"separate"}[path]
        words = f"dq_sums: expected exactly with the path fused, got the path {other.decode()}"
        status, found, launches = library.call(backward(**sums, path=other))
        assert (status, found.partition("  - ")[2], launches) == (INVALID, words, [])


@pytest.mark.parametrize("head_dim", [40, 256 + 64])
def test_a_head_dim_without_backward_kernels(library, head_dim):
    words = f"no bwd_dq kernel for fp16 with head_dim {head_dim} on gfx942: this wheel has bf16 with head_dim"
    status, found, launches = library.call(backward(head_dim=head_dim))
    assert (status, launches) == (UNSUPPORTED, [])
    assert found.startswith(words)
    assert library.plan_bwd(**BWD | {"head_dim": head_dim}) == (UNSUPPORTED, "", found)


def test_backward_kernels_are_explained(library):
    there = {each.head_dim for each in generate().load_table() if each.op == "bwd_dq"}
    for name, arch in known_archs().items():
        bf16 = BWD | {"arch": name, "dtype": "bf16"}
        most = (256 if "large_bwd" in arch.features else 128) if "trains" in arch.features else 0
        for head_dim in there:
            wanted = OK if head_dim <= most else UNSUPPORTED
            assert library.plan_bwd(**bf16 | {"head_dim": head_dim})[0] == wanted
    status, path, words = library.plan_bwd(**BWD | {"arch": "gfx900"})
    assert (status, path) == (UNSUPPORTED, "")
    assert words.startswith("this wheel has no kernels for gfx900")

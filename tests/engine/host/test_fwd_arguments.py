"""The checks of a forward call in the host library: mistakes in words, and the kernel's arguments."""

import json
import math
import subprocess
from pathlib import Path

import pytest

from tests.tools.programs import CHECKOUT, compile_program

ARGUMENTS = ("common_arguments.cpp", "fwd_arguments.cpp", "problems.cpp")
SOURCES = (*(f"arguments/{name}" for name in ARGUMENTS), "registry/bundle.cpp", "registry/registry.cpp")
DTYPES = {"fp16": 0, "bf16": 1, "fp32": 2, "another dtype": 3, "int32": 4, "int64": 5, "bool": 6}
FIRST_LINE = "flash_attn_rocm::fwd cannot use its arguments:"
LENGTH_END = (1 << 30) - 4096


@pytest.fixture(scope="session")
def program(builder_image, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fwd_arguments")
    (folder / "registry.inc").touch()  # empty: the tests need no kernel
    # A registry without rows.
    flags = ("-Wno-unused-function", f"-I{folder}")
    sources = [Path(__file__).with_name("programs") / "fwd_arguments.cpp"]
    sources += [CHECKOUT / "kernels/host" / name for name in SOURCES]
    return compile_program(builder_image, folder / "program", *flags, *sources)


def tensor(dtype, *sizes, strides=None, device=0, address=4096):
    if strides is None:
        strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return {"dtype": dtype, "sizes": sizes, "strides": strides, "device": device, "address": address}


NUMBERS = {
    "max_seqlen_q": 5, "max_seqlen_k": 7, "softmax_scale": 0.125, "softcap": 0, "window_left": -1,
    "window_right": -1, "dropout_p": 0,
}  # fmt: skip


def dense(**changes):
    """Batch 2, 5 queries of 4 heads, 7 keys of 2, head dim 64."""
    kv = tensor("fp16", 2, 7, 2, 64)
    q = tensor("fp16", 2, 5, 4, 64)
    return NUMBERS | {"q": q, "k": kv, "v": kv, "out": q, "lse": tensor("fp32", 2, 4, 5)} | changes


def packed(**changes):
    """Two sequences in 5 queries and 7 keys."""
    kv = tensor("fp16", 7, 2, 64)
    q = tensor("fp16", 5, 4, 64)
    cut = tensor("int32", 3)
    tensors = {"q": q, "k": kv, "v": kv, "out": q, "lse": tensor("fp32", 4, 5)}
    return NUMBERS | tensors | {"cu_seqlens_q": cut, "cu_seqlens_k": cut} | changes


def paged(page=16, blocks=3, **changes):
    """As ``dense``, with six pages."""
    kv = tensor("fp16", 6, page, 2, 64)
    return dense(k=kv, v=kv, block_table=tensor("int32", 2, blocks), **changes)


def lines(call):
    for name, value in call.items():
        if isinstance(value, dict):
            head = (DTYPES[value["dtype"]], value["device"], value["address"], len(value["sizes"]))
            yield " ".join(map(str, ("tensor", name, *head, *value["sizes"], *value["strides"])))
        else:
            yield f"number {name} {value!r}"


@pytest.fixture
def run(program):
    def run(call):
        done = subprocess.run(
            [program], input="\n".join(lines(call)), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"the program died: {done.returncode}"
        return done.stdout

    return run


@pytest.fixture
def taken(run):
    def taken(call):
        text = run(call)
        assert not text.startswith("error"), text
        return json.loads(text)

    return taken


@pytest.fixture
def refused(run):
    """The problems of a refused call, one by one."""

    def refused(call):
        status, first, *rest = run(call).splitlines()
        assert (status, first) == ("error 1", FIRST_LINE)
        assert all(line.startswith("  - ") for line in rest)
        return [line.removeprefix("  - ") for line in rest]

    return refused


def partial(splits=3):
    return {
        "partial_out": tensor("fp32", splits, 2, 4, 5, 64),
        "partial_lse": tensor("fp32", splits, 2, 4, 5),
    }


def test_a_dense_call(taken):
    found = taken(dense())
    expected = {
        "batch": 2, "seqlen_q": 5, "seqlen_k": 7, "rows_q": 5, "rows_k": 7, "batch_k": 2, "splits": 1,
        "q_batch": 5 * 4 * 64, "k_batch": 7 * 2 * 64, "lse_batch": 20, "lse_head": 5, "page": 0,
        "window_left": -1, "window_right": -1, "dropout_below": 0, "dropout_scale": 1,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_packed_sequences(taken):
    found = taken(packed(max_seqlen_q=3))
    expected = {
        "batch": 2,
        "seqlen_q": 3,
        "rows_q": 5,
        "rows_k": 7,
        "q_batch": 0,
        "k_batch": 0,
        "lse_batch": 0,
    }
    assert {name: found[name] for name in expected} == expected


def test_a_longest_sequence_is_not_longer_than_all(taken):
    assert taken(packed(max_seqlen_q=2**40))["seqlen_q"] == 5


def test_pages(taken):
    found = taken(paged())
    expected = {
        "seqlen_k": 48,
        "rows_k": 0,
        "page": 16,
        "num_pages": 6,
        "k_batch": 16 * 2 * 64,
        "table_batch": 3,
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("kv", [tensor("fp16", 0, 16, 2, 64), tensor("fp16", 6, 16, 2, 64)])
def test_without_pages_or_blocks_there_are_no_keys(taken, kv):
    call = dense(k=kv, v=kv, block_table=tensor("int32", 2, 0 if kv["sizes"][0] else 3))
    assert taken(call)["seqlen_k"] == 0


@pytest.mark.parametrize("batch", [1, 5])
def test_rows_of_a_cache(taken, batch):
    kv = tensor("fp16", batch, 7, 2, 64)
    found = taken(dense(k=kv, v=kv, cache_batch_idx=tensor("int32", 2)))
    assert (found["batch"], found["batch_k"], found["seqlen_k"]) == (2, batch, 7)


def test_a_cache_without_rows_has_no_keys(taken):
    kv = tensor("fp16", 0, 7, 2, 64)
    assert taken(dense(k=kv, v=kv, cache_batch_idx=tensor("int32", 2)))["seqlen_k"] == 0


@pytest.mark.parametrize("dropout_p", [1e-12, 0.1, 0.17, 1 / 3, 0.5, 1 - 2**-53])
def test_dropout_is_as_in_python(taken, dropout_p):
    for mask in ({}, {"attn_mask": tensor("bool", 1, 1, 1, 8)}):
        found = taken(dense(dropout_p=dropout_p, rng_state=tensor("int64", 2), **mask))
        assert found["dropout_below"] == int(dropout_p * (1 << 32))
        assert found["dropout_scale"] == pytest.approx(1 / (1 - dropout_p), rel=2**-24)


@pytest.mark.parametrize(("dtype", "kind"), [("bool", 0), ("fp16", 1), ("fp32", 2)])
def test_a_mask(taken, dtype, kind):
    found = taken(dense(attn_mask=tensor(dtype, 2, 4, 5, 8)))
    expected = {"masked": 1, "mask_batch": 160, "mask_head": 40, "mask_row": 8, "mask_kind": kind}
    assert {name: found[name] for name in expected} == expected
    assert taken(dense())["masked"] == 0


def test_a_mask_that_is_the_same_for_all_has_strides_of_0(taken):
    strides = ("mask_batch", "mask_head", "mask_row")
    found = taken(dense(attn_mask=tensor("bool", 1, 1, 1, 8, strides=(3, 3, 3, 1))))
    assert [found[name] for name in strides] == [0, 0, 0]
    found = taken(dense(attn_mask=tensor("bool", 2, 4, 5, 8, strides=(16, 0, 0, 1))))
    assert [found[name] for name in strides] == [16, 0, 0]


@pytest.mark.parametrize("call", [dense, packed, paged])
def test_sinks(taken, call):
    assert taken(call(sink=tensor("fp32", 4, address=4100)))["sink"] == 4100
    assert taken(call())["sink"] == 0


KV = tensor("fp16", 2, 7, 2, 64)


@pytest.mark.parametrize(
    ("call", "rare"),
    [
        (dense(), 0),
        (dense(softcap=30), 1),
        (dense(alibi_slopes=tensor("fp32", 4)), 1),
        (dense(dropout_p=0.5, rng_state=tensor("int64", 2)), 1),
        (paged(), 1),
        (packed(), 2),
        (dense(seqused_k=tensor("int32", 2)), 2),
        (dense(leftpad_k=tensor("int32", 2)), 2),
        (dense(k=KV, v=KV, cache_batch_idx=tensor("int32", 2)), 2),
        (packed(softcap=30), 3),
        (dense(sink=tensor("fp32", 4)), 0),
    ],
)
def test_rare_arguments(taken, call, rare):
    """Kernels look at them if told by these bits only: features 1, lengths or places in device memory 2."""
    assert taken(call)["rare"] == rare


def test_splits(taken):
    found = taken(dense(**partial()))
    assert (found["splits"], found["partial_split"]) == (3, 2 * 4 * 5)


@pytest.mark.parametrize(
    ("given", "passed"), [(-5, -1), (0, 0), (3, 3), (7, 7), (LENGTH_END, -1), (1 << 40, -1)]
)
def test_windows(taken, given, passed):
    """A window as wide as the 7 keys is passed on: Python decides its meaning."""
    found = taken(dense(window_left=given, window_right=given))
    assert (found["window_left"], found["window_right"]) == (passed, passed)


@pytest.mark.parametrize(("sizes", "step"), [((4,), 0), ((2, 4), 4)])
def test_slopes(taken, sizes, step):
    assert taken(dense(alibi_slopes=tensor("fp32", *sizes)))["alibi_batch"] == step


def test_one_element_has_any_stride(taken):
    one = tensor("fp16", 2, 5, 1, 64)
    call = dense(
        q=one, out=one, k=tensor("fp16", 2, 7, 1, 64), v=tensor("fp16", 2, 7, 1, 64),
        lse=tensor("fp32", 2, 1, 5), alibi_slopes=tensor("fp32", 2, 1, strides=(3, 3)),
    )  # fmt: skip
    assert taken(call)["alibi_batch"] == 3


MASK_ALONE = "attn_mask: expected none of the other optional tensors but rng_state and sink, and no softcap"
MASK_STEPS = (
    "attn_mask: expected the address, in elements, and all strides but the last to be multiples of 8, and "
    "rows less than 2^24 elements apart"
)
SMALL_SCALE = (
    "softmax_scale: expected 0, or a magnitude of at least 0.000001 beside an attn_mask that is added, got "
    "0.000000"
)
SLOPES_STEP = "alibi_slopes: expected a contiguous last dimension"
INTEGERS = ("seqused_k", "leftpad_k", "cache_batch_idx")
WRONG = [
    (
        dense(
            q=tensor("fp32", 2, 5, 4, 64), out=tensor("fp32", 2, 5, 4, 64),
            k=tensor("fp32", 2, 7, 2, 64), v=tensor("fp32", 2, 7, 2, 64),
        ),
        "q: expected dtype fp16 or bf16, got fp32",
    ),
    (dense(q=tensor("fp16", 5, 4, 64)), "q: expected 4 dimensions, got shape (5, 4, 64)"),
    (dense(q=tensor("fp16", 1, 2, 5, 4, 64)), "q: expected 4 dimensions, got shape (1, 2, 5, 4, 64)"),
    (packed(k=tensor("fp16", 1, 7, 2, 64)), "k: expected 3 dimensions, got shape (1, 7, 2, 64)"),
    (dense(v=tensor("bf16", 2, 7, 2, 64)), "v: expected dtype fp16, got bf16"),
    (dense(k=tensor("fp16", 2, 7, 2, 64, device=1)), "k: expected device 0 like q, got 1"),
    (dense(lse=tensor("fp32", 2, 4, 5, device=1)), "lse: expected device 0 like q, got 1"),
    (dense(alibi_slopes=tensor("fp32", 1, 2, 4)), "alibi_slopes: expected 2 dimensions, got shape (1, 2, 4)"),
    (dense(alibi_slopes=tensor("fp16", 4)), "alibi_slopes: expected dtype fp32, got fp16"),
    (dense(alibi_slopes=tensor("fp32", 2)), "alibi_slopes: expected shape (4), got shape (2)"),
    (dense(alibi_slopes=tensor("fp32", 4, 2)), "alibi_slopes: expected shape (2, 4), got shape (4, 2)"),
    (dense(alibi_slopes=tensor("fp32", 4, strides=(2,))), SLOPES_STEP),
    *((dense(**{name: tensor("int64", 2)}), f"{name}: expected dtype int32, got int64") for name in INTEGERS),
    *(
        (dense(**{name: tensor("int32", 3)}), f"{name}: expected shape (2), got shape (3)")
        for name in INTEGERS
    ),
    *(
        (dense(**{name: tensor("int32", 2, 1)}), f"{name}: expected 1 dimensions, got shape (2, 1)")
        for name in INTEGERS
    ),
    *(
        (dense(**{name: tensor("int32", 2, strides=(2,))}), f"{name}: expected a contiguous tensor")
        for name in INTEGERS
    ),
    (
        dense(
            cu_seqlens_k=tensor("int32", 3), k=tensor("fp16", 7, 2, 64), v=tensor("fp16", 7, 2, 64),
        ),
        "cu_seqlens_k: expected only together with cu_seqlens_q",
    ),
    (
        packed(cu_seqlens_k=tensor("int32"), k=tensor("fp16", 2, 7, 2, 64), v=tensor("fp16", 2, 7, 2, 64)),
        "cu_seqlens_q: expected only together with cu_seqlens_k or block_table",
    ),
    (
        packed(cu_seqlens_q=tensor("int32", 0), cu_seqlens_k=tensor("int32", 0)),
        "cu_seqlens_q: expected shape (batch + 1), got shape (0)",
    ),
    (packed(cu_seqlens_k=tensor("int32", 4)), "cu_seqlens_k: expected shape (3), got shape (4)"),
    (packed(max_seqlen_q=-1), "max_seqlen_q: expected at least 0, got -1"),
    (packed(max_seqlen_k=-1), "max_seqlen_k: expected at least 0, got -1"),
    (packed(lse=tensor("fp32", 5, 4)), "lse: expected shape (4, 5), got shape (5, 4)"),
    (paged(leftpad_k=tensor("int32", 2)), "leftpad_k: expected none together with block_table"),
    (
        paged(cache_batch_idx=tensor("int32", 2)),
        "cache_batch_idx: expected none together with block_table or cu_seqlens_k",
    ),
    (
        packed(cache_batch_idx=tensor("int32", 2)),
        "cache_batch_idx: expected none together with block_table or cu_seqlens_k",
    ),
    (paged(page=24), "k: expected pages of a multiple of 16 rows, got 24"),
    (paged(page=0), "k: expected pages of a multiple of 16 rows, got 0"),
    (
        paged() | {"block_table": tensor("int32", 3, 2)},
        "block_table: expected shape (2, 2), got shape (3, 2)",
    ),
    (dense(block_table=tensor("int32", 2)), "block_table: expected 2 dimensions, got shape (2)"),
    (
        paged(blocks=2**30),
        f"keys of a sequence's pages: expected at most {LENGTH_END}, got {LENGTH_END + 1}",
    ),
    (
        dense(k=tensor("fp16", 2, 7, 3, 64), v=tensor("fp16", 2, 7, 3, 64)),
        "q: expected a positive number of heads that is a multiple of k's 3, got 4",
    ),
    (
        dense(k=tensor("fp16", 2, 7, 0, 64), v=tensor("fp16", 2, 7, 0, 64)),
        "q: expected a positive number of heads that is a multiple of k's 0, got 4",
    ),
    (
        dense(dropout_p=1.0, rng_state=tensor("int64", 2)),
        "dropout_p: expected 0 <= dropout_p < 1, got 1.000000",
    ),
    (dense(dropout_p=-0.5), "dropout_p: expected 0 <= dropout_p < 1, got -0.500000"),
    (dense(dropout_p=math.nan), "dropout_p: expected 0 <= dropout_p < 1, got nan"),
    (
        dense(attn_mask=tensor("bf16", 2, 4, 5, 8)),
        "attn_mask: expected dtype bool, fp32 or q's fp16, got bf16",
    ),
    (
        dense(attn_mask=tensor("bool", 2, 4, 5, 7)),
        "attn_mask: expected shape (2, 4, 5, 8), got shape (2, 4, 5, 7)",
    ),
    (
        dense(attn_mask=tensor("bool", 2, 3, 5, 8)),
        "attn_mask: expected shape (2, 4, 5, 8), got shape (2, 3, 5, 8)",
    ),
    (dense(attn_mask=tensor("bool", 4, 5, 8)), "attn_mask: expected 4 dimensions, got shape (4, 5, 8)"),
    (dense(attn_mask=tensor("bool", 2, 4, 5, 8, address=4100)), MASK_STEPS),
    (dense(attn_mask=tensor("fp32", 2, 4, 5, 8, address=4112)), MASK_STEPS),
    (dense(attn_mask=tensor("bool", 2, 4, 5, 8, strides=(160, 40, 12, 1))), MASK_STEPS),
    (dense(attn_mask=tensor("bool", 2, 4, 5, 8, strides=(160, 40, 1 << 24, 1))), MASK_STEPS),
    (
        dense(attn_mask=tensor("bool", 2, 4, 5, 8, strides=(320, 80, 16, 2))),
        "attn_mask: expected a contiguous last dimension",
    ),
    (dense(attn_mask=tensor("fp32", 1, 1, 1, 8), softmax_scale=1e-7), SMALL_SCALE),
    (dense(attn_mask=tensor("bool", 1, 1, 1, 8), softcap=1), MASK_ALONE),
    (dense(attn_mask=tensor("bool", 1, 1, 1, 8), alibi_slopes=tensor("fp32", 4)), MASK_ALONE),
    (packed(attn_mask=tensor("bool", 1, 1, 1, 8)), MASK_ALONE),
    (dense(sink=tensor("fp32", 3)), "sink: expected shape (4), got shape (3)"),
    (dense(sink=tensor("fp16", 4)), "sink: expected dtype fp32, got fp16"),
    (dense(sink=tensor("fp32", 1, 4)), "sink: expected 1 dimensions, got shape (1, 4)"),
    (dense(sink=tensor("fp32", 4, strides=(2,))), "sink: expected a contiguous tensor"),
    (dense(dropout_p=0.5), "rng_state: expected together with dropout_p > 0"),
    (dense(rng_state=tensor("int64", 2)), "rng_state: expected none without dropout_p > 0"),
    (dense(dropout_p=0.5, rng_state=tensor("int32", 2)), "rng_state: expected dtype int64, got int32"),
    (dense(dropout_p=0.5, rng_state=tensor("int64", 4)), "rng_state: expected shape (2), got shape (4)"),
    (
        dense(dropout_p=0.5, rng_state=tensor("int64", 2, strides=(2,))),
        "rng_state: expected a contiguous tensor",
    ),
    (dense(partial_lse=tensor("fp32", 3, 2, 4, 5)), "partial_out, partial_lse: expected both or none"),
    (dense(**partial(0)), "partial_lse: expected at least 1 split, got 0"),
    (dense(**partial(513)), "splits: expected at most 512, got 513"),
    (
        dense(**partial() | {"partial_out": tensor("fp32", 2, 2, 4, 5, 64)}),
        "partial_out: expected shape (3, 2, 4, 5, 64), got shape (2, 2, 4, 5, 64)",
    ),
    (
        dense(**partial() | {"partial_lse": tensor("fp32", 3, 2, 5, 4)}),
        "partial_lse: expected shape (3, 2, 4, 5), got shape (3, 2, 5, 4)",
    ),
    (
        dense(**partial() | {"partial_out": tensor("fp32", 3, 2, 4, 5, 64, address=4100)}),
        "partial_out: expected a 16-byte aligned address",
    ),
    (
        dense(**partial() | {"partial_out": tensor("fp16", 3, 2, 4, 5, 64)}),
        "partial_out: expected dtype fp32, got fp16",
    ),
    (
        dense(**partial() | {"partial_lse": tensor("fp32", 3, 2, 4, 5, strides=(80, 20, 5, 1))}),
        "partial_lse: expected a contiguous tensor",
    ),
    (dense(softmax_scale=math.inf), "softmax_scale: expected a finite number, got inf"),
    (dense(softcap=-1.0), "softcap: expected 0 (none) or a positive number, got -1.000000"),
    (dense(softcap=math.nan), "softcap: expected 0 (none) or a positive number, got nan"),
    (
        dense(
            q=tensor("fp16", 1, 2**30, 1, 8), out=tensor("fp16", 1, 2**30, 1, 8),
            k=tensor("fp16", 1, 7, 1, 8), v=tensor("fp16", 1, 7, 1, 8), lse=tensor("fp32", 1, 1, 2**30),
        ),
        f"rows of q: expected at most {LENGTH_END}, got {2**30}",
    ),
    (
        dense(
            q=tensor("fp16", 65536, 1, 1, 8), out=tensor("fp16", 65536, 1, 1, 8),
            k=tensor("fp16", 65536, 1, 1, 8), v=tensor("fp16", 65536, 1, 1, 8),
            lse=tensor("fp32", 65536, 1, 1),
        ),
        "batch: expected at most 65535, got 65536",
    ),
    (
        dense(
            k=tensor("fp16", 2**31, 7, 2, 64), v=tensor("fp16", 2**31, 7, 2, 64),
            cache_batch_idx=tensor("int32", 2),
        ),
        f"batch of k: expected at most {LENGTH_END}, got {2**31}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[words for _, words in WRONG])
def test_one_mistake_is_told_and_nothing_else(refused, call, words):
    assert set(refused(call)) <= {words, words.replace("q:", "out:", 1), words.replace("k:", "v:", 1)}
    assert words in refused(call)


@pytest.mark.parametrize(
    ("q", "aligned"),
    [
        (tensor("fp16", 2, 5, 4, 64), True),
        (tensor("fp16", 2, 5, 4, 64, strides=(0, (1 << 24) - 8, 64, 1)), True),
        (tensor("fp16", 2, 5, 4, 64, address=4104), False),
        (tensor("fp16", 2, 5, 4, 64, strides=(1285, 257, 64, 1)), False),
        (tensor("fp16", 2, 5, 4, 64, strides=(1284, 256, 64, 1)), False),
        (tensor("fp16", 2, 5, 4, 64, strides=(0, 1 << 24, 64, 1)), False),
        (tensor("fp16", 2, 5, 4, 64, strides=(0, -8, 64, 1)), False),
    ],
)
@pytest.mark.parametrize("name", ["q", "out"])
def test_rows_that_not_all_kernels_can_read(taken, name, q, aligned):
    assert taken(dense(**{name: q}))["aligned"] == aligned


@pytest.mark.parametrize("name", ["q", "k", "v", "out"])
def test_elements_that_no_kernel_can_read(refused, name):
    sizes = dense()[name]["sizes"]
    step = f"{name}: expected a contiguous last dimension"
    odd = f"{name}: expected an address that is a multiple of its elements' 2 bytes"
    assert refused(dense(**{name: tensor("fp16", *sizes, strides=(1280, 256, 1, 4), address=4097)})) == [
        step,
        odd,
    ]


def test_a_single_element_of_the_last_dimension_has_any_stride(taken):
    one, kv = tensor("fp16", 2, 5, 4, 1, strides=(20, 4, 1, 7)), tensor("fp16", 2, 7, 2, 1)
    found = taken(dense(q=one, out=one, k=kv, v=kv))
    assert (found["head_dim"], found["aligned"]) == (1, False)


def test_lengths_are_those_that_the_caller_plans_with(taken):
    found = taken(packed(max_seqlen_q=2**40, max_seqlen_k=2**40))
    assert (found["max_seqlen_q"], found["max_seqlen_k"]) == (2**40, 2**40)
    found = taken(dense(max_seqlen_q=2**40, max_seqlen_k=2**40))
    assert (found["max_seqlen_q"], found["max_seqlen_k"]) == (5, 7)
    assert taken(paged())["max_seqlen_k"] == 48


def test_all_mistakes_are_told_at_once(refused):
    call = dense(lse=tensor("fp16", 2, 4, 5), v=tensor("bf16", 2, 7, 2, 64), dropout_p=2.0, **partial())
    call["partial_lse"] = tensor("int32", 3, 2, 4, 5)
    assert refused(call) == [
        "v: expected dtype fp16, got bf16",
        "lse: expected dtype fp32, got fp16",
        "partial_lse: expected dtype fp32, got int32",
        "dropout_p: expected 0 <= dropout_p < 1, got 2.000000",
        "rng_state: expected together with dropout_p > 0",
    ]

"""Operators that make the memory of their results: the kernels write into it, and it begins as it should.

Python's way, whose memory the fake HIP runtime knows tensor by tensor, gives the results to compare with.
The operators' memory is known before: the C library maps large blocks one by one, so blocks of the same
sizes, made and freed before, have the same addresses.
"""

import pytest

SETUP = """
import ctypes
from flash_attn_rocm.reference.operators import arguments_of

OPS, GPU = torch.ops.flash_attn_rocm, DispatchKeySet(DispatchKey.CUDA)
THRESHOLD, TRIES = 8192, 9
M_MMAP_THRESHOLD, M_PERTURB = -3, -6
assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, THRESHOLD)
assert ctypes.CDLL(None).mallopt(M_PERTURB, 0x81)  # memory begins as 0x7e7e...

def is_mapped(block):
    return block.data_ptr() > 1 << 45  # the heap is far below

filled = []  # free blocks of the heap, which come first

def addresses(sizes):
    for size in sorted(sizes, reverse=True):
        while not is_mapped(block := torch.empty(size, dtype=torch.uint8)):
            filled.append(block)
    block = None
    blocks = [torch.empty(size, dtype=torch.uint8) for size in sizes]
    assert all(map(is_mapped, blocks))
    return [(each.data_ptr(), each.numel()) for each in blocks]

def by_operator(name, given, sizes):
    # The GPU implementation, called directly.  Again if the heap has got a free block meanwhile.
    operator = getattr(OPS, name).default
    arguments = [given.get(each) for each in arguments_of(operator)]
    known = {name: (x, True) for name, x in given.items() if isinstance(x, torch.Tensor)}
    for _ in range(TRIES):
        try:
            with fake_hip.memory(known):
                for begin, size in addresses(sizes):
                    fake_hip._told(fake_hip._library.fa_fake_hip_buffer(begin, size, b"results", 0, 1))
                return operator.redispatch(GPU, *arguments)
        except (AssertionError, RuntimeError) as error:
            fake_hip.report()
            failed = error
    raise failed

def in_python(name, given):
    operator = getattr(OPS, name).default
    with kernels_on_host_memory(fake_hip):
        return operator(*(given.get(each) for each in arguments_of(operator)))

def compare(name, given, sizes):
    results, expected = by_operator(name, given, sizes), in_python(name, given)
    shown["launches"] = [launch.kernel for launch in fake_hip.report().launches]
    for part in ("shape", "dtype", "device"):
        shown[part] = [getattr(x, part) == getattr(y, part) for x, y in zip(results, expected)]
    shown["contiguous"] = [x.is_contiguous() for x in results]
    shown["equal"] = [torch.equal(x, y) for x, y in zip(results, expected)]
    return results

def options(q, k, **more):
    return {
        "softmax_scale": 0.125, "window_left": -1, "window_right": 0, "softcap": 0.0, "dropout_p": 0.0,
        "max_seqlen_q": q.shape[-3], "max_seqlen_k": k.shape[-3], "path": "", "splits": 1, **more,
    }

def ints(*values):
    return torch.tensor(values, dtype=torch.int32)
"""
DENSE = "q, k, v = qkv(rows=520); packed = {}"
# Two sequences, and rows between, before and after them that belong to none.
PACKED = """
q, k, v = (x[0] for x in qkv(rows=520))
packed = {
    "cu_seqlens_q": ints(2, 12, 30), "cu_seqlens_k": ints(0, 12, 32), "max_seqlen_q": 9, "max_seqlen_k": 20,
}
"""
ATTEND = """
given = {"q": q, "k": k, "v": v, **options(q, k), **packed, **more}
bytes_of_lse = 4 * 4 * 520
parts = [given["splits"] * 65 * bytes_of_lse] if given["splits"] > 1 else []
out, lse = compare("attend", given, [q.nbytes, bytes_of_lse, *parts])
shown["outside"] = [
    all(bool((x == 0).all()) for x in (out[:2], out[11:12], out[30:])),
    all(bool((x == torch.inf).all()) for x in (lse[:, :2], lse[:, 11:12], lse[:, 30:])),
]
"""
GRADIENTS = """
given = {"q": q, "k": k, "v": v, **options(q, k), **packed}
out, lse = in_python("attend", given)
fake_hip.report()
given |= {"out": out, "lse": lse, "dout": torch.ones_like(out) / 8, **more}
sums = OPS.bwd_sums(bool(packed), 2 if packed else 1, 520, 4, 64)
between = lse.nbytes + (4 * sums if more["path"] == "fused" else 0)
found = compare("gradients", given, [q.nbytes, k.nbytes, v.nbytes, between])
shown["outside"] = [not x[32:].any() for x in found]
shown["near"] = [torch.allclose(x, y, atol=1e-3) for x, y in zip(found, in_python("gradients", given))]
"""


def assert_alike(shown, results):
    for name in ("shape", "dtype", "device", "contiguous"):
        assert shown[name] == [True] * results, name


@pytest.mark.parametrize(
    ("shape", "more", "kernels"),
    [
        (DENSE, {}, ["fa_fwd_fp16_d64"]),
        (DENSE, {"path": "split", "splits": 3}, ["fa_decode_fp16_d64", "fa_combine_fp16"]),
        (PACKED, {}, ["fa_decode_fp16_d64"]),
    ],
    ids=["dense", "parts", "packed"],
)
def test_attend(scenario, shape, more, kernels):
    shown = scenario(f"{SETUP}{shape}\nmore = {more}{ATTEND}")
    assert shown["launches"] == kernels * 2
    assert_alike(shown, 2)
    assert shown["equal"] == [True, True]
    assert shown["outside"] == [shape is PACKED] * 2


@pytest.mark.parametrize("shape", [DENSE, PACKED], ids=["dense", "packed"])
@pytest.mark.parametrize("path", ["separate", "fused"])
def test_gradients(scenario, shape, path):
    shown = scenario(f"{SETUP}{shape}\nmore = {{'path': {path!r}}}{GRADIENTS}")
    assert len(shown["launches"]) == 6
    assert_alike(shown, 3)
    assert shown["near"] == [True] * 3
    assert path == "fused" or shown["equal"] == [True] * 3, "fused kernels add dq up in any order"
    assert shape is DENSE or shown["outside"] == [True] * 3

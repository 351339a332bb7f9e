"""q, k and v of 8 bits from the public functions to the kernels: copies in bf16, then bf16's kernels."""

import re

import pytest

ARCHS = ("gfx942", "gfx1100")  # with gfx942's head dims 64 and 128, fp8 is multiplied as it is
FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz")
CODES = """
from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.launch import widening

ROWS, KEYS = (20, 9), (70, 33)
generator = torch.Generator().manual_seed(0)

def random(*sizes):
    return torch.randn(*sizes, generator=generator)

def quantised(*sizes, dtype):
    # Codes, a descale for each head of k and sequence, and the numbers, in float64.
    x = random(*sizes).clamp(-3, 3)
    descale = random(sizes[0], 2).abs() + 0.25
    codes = x.to(dtype)
    of = descale.repeat_interleave(sizes[2] // 2, 1)[:, None, :, None]
    return codes, descale, codes.double() * of.double()

def formula(numbers, rows=None, keys=None):
    # Causal attention of each sequence.
    outs = []
    for b, (q, k, v) in enumerate(zip(*numbers)):
        q, k, v = q[: rows and rows[b]], *(x[: keys and keys[b]].repeat_interleave(2, dim=1) for x in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5
        at = torch.arange(len(q))[:, None] + len(k) - len(q)
        scores = scores.masked_fill(torch.arange(len(k)) > at, float("-inf"))
        outs.append(torch.einsum("hij,jhd->ihd", scores.softmax(-1), v))
    return torch.cat(outs)

def report(found, expected, launches=None):
    launches = fake_hip.report().launches if launches is None else launches
    shown["kernels"] = [launch.kernel for launch in launches]
    shown["findings"] = sum(len(launch.findings) for launch in launches)
    shown["dtype"] = str(found.dtype)
    error = (found.double().view(expected.shape) - expected).abs().max()
    shown["error"] = (error / expected.abs().max()).item()
"""
CALL = """
given = [quantised(2, *sizes, head_dim, dtype=dtype) for sizes in ((20, 4), (70, 2), (70, 2))]
tensors, descales, numbers = zip(*given)
names = ("q_descale", "k_descale", "v_descale")
"""
DENSE = f"""{CALL}
with kernels_on_host_memory(fake_hip):
    found = flash_attn_func(*tensors, causal=True, **dict(zip(names, descales)))
report(found, formula(numbers))
"""
PACKED = f"""{CALL}
bits = [x.view(torch.uint8) for x in tensors]
packed = [
    torch.cat([one[:length] for one, length in zip(x, lengths)]).view(dtype)
    for x, lengths in zip(bits, (ROWS, KEYS, KEYS))
]
ends = [torch.tensor([0, lengths[0], sum(lengths)], dtype=torch.int32) for lengths in (ROWS, KEYS)]
with kernels_on_host_memory(fake_hip):
    found = flash_attn_varlen_func(
        *packed, *ends, max(ROWS), max(KEYS), causal=True, **dict(zip(names, descales))
    )
report(found, formula(numbers, ROWS, KEYS))
"""
# q, k, v, P and out are rounded to bf16: half a step each.
MOST = 5 * 2**-9
COPIES = ["fa_widen_bf16"] * 3


def right(shown, kernels):
    assert shown["kernels"] == kernels
    assert shown["findings"] == 0
    assert shown["dtype"] == "torch.bfloat16"
    assert shown["error"] < MOST


@pytest.mark.parametrize("head_dim", [32, 96])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
def test_dense(scenario, arch, dtype, head_dim):
    shown = scenario(f"dtype, head_dim = torch.{dtype}, {head_dim}\n{CODES}{DENSE}", arch=arch)
    right(shown, [*COPIES, f"fa_fwd_bf16_d{head_dim}"])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
def test_packed(scenario, arch, dtype):
    shown = scenario(f"dtype, head_dim = torch.{dtype}, 32\n{CODES}{PACKED}", arch=arch)
    right(shown, [*COPIES, "fa_fwd_bf16_d32"])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_cache_keeps_its_codes(scenario, arch, dtype):
    shown = scenario(
        f"dtype = torch.{dtype}\n{CODES}"
        """
given = [quantised(2, *sizes, 64, dtype=dtype) for sizes in ((3, 4), (80, 2), (80, 2))]
(q, k, v), (q_descale, k_descale, v_descale), numbers = zip(*given)
with kernels_on_host_memory(fake_hip):
    found = flash_attn_with_kvcache(
        q, k, v, cache_seqlens=torch.tensor(KEYS, dtype=torch.int32), causal=True, num_splits=1,
        q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
    )
report(found, formula(numbers, keys=KEYS))
""",
        arch=arch,
    )
    right(shown, [COPIES[0], "fa_decode_8bit_bf16_d64"])


@pytest.mark.parametrize("head_dim", [1, 7, 16, 48, 72])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
def test_copies_of_every_code(scenario, arch, dtype, head_dim):
    """All bits of each number. A row's halves overlap unless it has a multiple of 32 elements."""
    shown = scenario(
        f"dtype, head_dim = torch.{dtype}, {head_dim}\n{CODES}"
        """
codes = (torch.arange(2 * 64 * 4 * head_dim) * 7).to(torch.uint8).view(2, 64, 4, head_dim).view(dtype)
descale = random(2, 4).abs()
with kernels_on_host_memory(fake_hip):
    found = widening.widened_rows(codes, descale, torch.bfloat16)
wanted = (codes.float() * descale[:, None, :, None]).to(torch.bfloat16)
shown["same"] = torch.equal(found.nan_to_num(9e9), wanted.nan_to_num(9e9))
shown["findings"] = sum(len(launch.findings) for launch in fake_hip.report().launches)
""",
        arch=arch,
    )
    assert shown == {"same": True, "findings": 0}


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("arch", ARCHS)
def test_the_check_at_first_use(scenario, tmp_path, monkeypatch, arch, wrong):
    """A wrong copy is found before the first call. Then PyTorch makes the copies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shown = scenario(
        f"wrong = {wrong}\n{CODES}"
        """
import warnings
from wheel_builder.machine_code.fake_hip.control import HOST_MEMORY
HOST_MEMORY.checks_kernels = True
flash_attn_rocm.set_strict(None)
operator = widening.WIDEN
def widen(*given):
    operator(*given)
    given[-1].mul_(1.0 + wrong / 2)
widening.WIDEN = widen
given = [quantised(1, *sizes, 32, dtype=torch.float8_e4m3fn) for sizes in ((20, 4), (40, 2), (40, 2))]
tensors, descales, numbers = zip(*given)
descales = dict(zip(("q_descale", "k_descale", "v_descale"), descales))
launches = []
with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        found = flash_attn_func(*tensors, causal=True, **descales)
        launches.append(fake_hip.report().launches)
shown["warned"] = [str(each.message) for each in caught]
report(found, formula(numbers), launches[1])
shown["checked"] = len(launches[0]) - len(launches[1])
""",
        arch=arch,
    )
    assert shown["checked"] > 30
    right(shown, ["fa_fwd_bf16_d32"] if wrong else [*COPIES, "fa_fwd_bf16_d32"])
    disabled = "bf16, head_dim 32 with a cache of 8 bits are disabled on gfx"
    words = rf"{disabled}.* found: 8 bits, decode, causal, pages"
    assert [re.search(words, each) is not None for each in shown["warned"]] == [True] * wrong

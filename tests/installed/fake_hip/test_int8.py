"""Attention in 8 bits as SageAttention computes it: kernels that quantise, then products of int8."""

import pytest

# With v in e4m3fn (the two), in e4m3fnuz, in fp16.
ARCH, EAGER, FNUZ, KEEPS = "gfx1201", "gfx950", "gfx942", "gfx1030"
DTYPES = {ARCH: "fp16", EAGER: "bf16", FNUZ: "bf16", KEEPS: "fp16"}  # of kernels for head dim 128
ALL = [pytest.param(each, marks=pytest.mark.needs_archs(each)) for each in DTYPES]
QUANTISE, FORWARD = "fa_quantise_{}", "fa_fwd_int8_{}_d{}"
KERNELS = [
    pytest.param(arch, dtype, head_dim, marks=pytest.mark.needs_archs(arch))
    for arch, dtype, head_dim in (
        (ARCH, "fp16", 64), (ARCH, "fp16", 128), (ARCH, "bf16", 128),
        (EAGER, "bf16", 128), (FNUZ, "bf16", 128), (KEEPS, "fp16", 64), (KEEPS, "fp16", 128),
    )
]  # fmt: skip
# Simulated by tests/tools/eight_bit_errors.py: 38 thousandths of the root mean square of normal numbers,
# 11 of scores alone. A tenth more for other draws.
MOST = {ARCH: 0.041, EAGER: 0.041, FNUZ: 0.041, KEEPS: 0.0125}
OF_VALUES = {ARCH: "float8_e4m3fn", EAGER: "float8_e4m3fn", FNUZ: "float8_e4m3fnuz", KEEPS: "fp16"}
PHASES = {ARCH: 2, EAGER: 2, FNUZ: 2, KEEPS: 1}  # launches that quantise
BEGIN = """
import torch
from flash_attn_rocm import quantised
from torch.nn.functional import scaled_dot_product_attention
from flash_attn_rocm.launch import int8
if {least}:
    int8.INT8_PAIRS = dict.fromkeys(int8.INT8_PAIRS, {least})
dtype, head_dim = getattr(torch, {dtype!r}), {head_dim}
draw = torch.Generator().manual_seed(3)
q, k, v = (
    torch.randn(2, heads, rows, head_dim, generator=draw).to(dtype).transpose(1, 2)
    for heads, rows in ((4, 70), (2, 70), (2, 70))
)
rules = {{"softmax_scale": None, "causal": {causal}}}
"""
CALL = """
with kernels_on_host_memory(fake_hip), torch.no_grad():
    found = quantised.attend(q, k, v, {mask}, **rules)
    words = quantised.explain(q, k, v, {mask}, **rules)
shown["kernels"] = [launch.kernel for launch in fake_hip.report().launches]
shown["findings"] = sum(len(launch.findings) for launch in fake_hip.report().launches)
shown["none"], shown["words"] = found is None, words if isinstance(words, str) else words.reason
if found is not None:
    own = (x.double().repeat_interleave(4 // x.shape[2], 2).transpose(1, 2) for x in (q, k, v))
    exact = scaled_dot_product_attention(*own, is_causal=rules["causal"]).transpose(1, 2)
    shown["error"] = ((found[0] - exact).square().mean() / exact.square().mean()).sqrt().item()
    shown["dtype"], shown["shape"] = str(found[0].dtype), tuple(found[0].shape)
    shown["lse"] = tuple(found[1].shape)
"""
# Contiguous, and an element behind a multiple of 16 bytes.
UNALIGNED = """
q, k, v = (torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape) for x in (q, k, v))
shown["given"] = {(x.is_contiguous(), x.data_ptr() % 16) for x in (q, k, v)}
"""
# One number of the second head is replaced. Rows of that head with NaN, and of the first head.
DAMAGED = """
rules["causal"] = True
q, k, v = (x.repeat(1, 3, 1, 1) for x in (q, k, v))  # 210 rows
{name}[0, 140, 1, 3] = {value}
with kernels_on_host_memory(fake_hip), torch.no_grad():
    out = quantised.attend(q, k, v, None, **rules)[0]
bad = out.isnan()[0]
of_group = q.shape[2] // {name}.shape[2]
shown["rows"] = bad[:, of_group : 2 * of_group].any(-1).all(1).nonzero().flatten().tolist()
shown["columns"] = bad.any(1).any(0).nonzero().flatten().tolist()
shown["others"] = bad[:, :of_group].any().item() or out[1].isnan().any().item()
shown["infinite"] = out.isinf().any().item()
"""
# Elements of q and k far beyond the steps of int8 in an exponent, and of one key in 100.
HUGE = """
of_q, of_k, of_one = {values}
q, k, v = (torch.randn(1, 200, 2, head_dim, generator=draw).to(dtype) for _ in range(3))
q[:], k[:] = of_q, of_k
k[:, ::100] = of_one
rules["softmax_scale"] = {scale}
with kernels_on_host_memory(fake_hip), torch.no_grad():
    out, lse = quantised.attend(q, k, v, None, **rules)
scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double())
scores *= head_dim**-0.5 if rules["softmax_scale"] is None else rules["softmax_scale"]
if rules["causal"]:
    scores += torch.full((200, 200), -torch.inf).triu(1)
sums = scores.logsumexp(-1)
wanted = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v.double())
of_causal = v.cummax(1).values, v.cummin(1).values
most, least = of_causal if rules["causal"] else (v.amax(1, True), v.amin(1, True))
slack = v.abs().max() / 8
shown["averages"] = bool(((least - slack <= out) & (out <= most + slack)).all())
shown["sums"] = ((lse - sums).abs() / sums.abs().clamp(min=1)).max().item()
shown["difference"] = (out - wanted).abs().max().item()
"""
# The same elements are NaN or infinite.
IN_16_BITS = """
with kernels_on_host_memory(fake_hip), torch.no_grad():
    wanted = flash_attn_rocm.flash_attn_func(q, k, v, **rules)
shown["same"] = all(torch.equal(is_so(out), is_so(wanted)) for is_so in (torch.isnan, torch.isinf))
"""
COMPILED = """
def call(q, k, v):
    return quantised.attend(q, k, v, None, **rules)
with kernels_on_host_memory(fake_hip), torch.no_grad():
    wanted = call(q, k, v)
    found = torch.compile(call, fullgraph=True, backend="aot_eager")(q, k, v)
shown["same"] = [torch.equal(a, b) for a, b in zip(found, wanted)]
"""
CHECKED = """
import warnings
from wheel_builder.machine_code.fake_hip.control import HOST_MEMORY
HOST_MEMORY.checks_kernels = True
flash_attn_rocm.set_strict(None)
operator = int8.FWD_INT8
def launch(*given):
    operator(*given)
    given[4].mul_({factor})  # out
int8.FWD_INT8 = launch
kernels = []
with kernels_on_host_memory(fake_hip), torch.no_grad(), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        found = quantised.attend(q, k, v, None, **rules)
        kernels.append([launch.kernel for launch in fake_hip.report().launches])
        if found is None:
            kernels[-1] = None
    words = quantised.explain(q, k, v, None, **rules)
shown["kernels"], shown["warned"] = kernels, [str(each.message) for each in caught]
shown["words"] = words if isinstance(words, str) else words.reason
"""
# As where Windows resets GPUs that are busy for long: each head of k of each sequence has its launches.
CUT = """
import warnings
from flash_attn_rocm.launch import watched
from flash_attn_rocm.reference.operators import arguments_of
from flash_attn_rocm.serving import resets
with kernels_on_host_memory(fake_hip), torch.no_grad(), warnings.catch_warnings():
    warnings.simplefilter("ignore")  # even a head takes too long
    whole = quantised.attend(q, k, v, None, **rules)
    fake_hip.report()  # the next one begins here
    int8.FWD_INT8 = watched.int8(int8.FWD_INT8, arguments_of(int8.FWD_INT8))
    resets.seconds = lambda *_work: 1e9 * resets.LONGEST
    parts = quantised.attend(q, k, v, None, **rules)
shown["launches"] = len(fake_hip.report().launches)
shown["same"] = [torch.equal(a, b) for a, b in zip(whole, parts)]
"""
# Thousandths of the root mean square of out, in 8 bits and in 16.
ERRORS = """
from flash_attn_rocm import flash_attn_func
values = {values!r}
q, k, v = (torch.randn(1, rows, 2, head_dim, generator=draw).to(dtype) for rows in (128, 1024, 1024))
if values == "outliers":
    k[..., 5::32] += 9
    v += 2
if values == "sinks":
    q += 1
    k[:, 0] = 0.7
    v[:, 0] /= 64
exact = scaled_dot_product_attention(*(x.double().transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
with kernels_on_host_memory(fake_hip), torch.no_grad():
    outs = quantised.attend(q, k, v, None, **rules)[0], flash_attn_func(q, k, v)
size = exact.square().mean()
shown["errors"] = [((out - exact).square().mean() / size).sqrt().item() * 1e3 for out in outs]
"""
RULE = """
shown["on the CPU"] = int8.least_pairs(q.device)
with kernels_on_host_memory(fake_hip):
    least = int8.least_pairs(q.device)
n = 2 * least
shown["least"], shown["pays"] = least, [
    int8.pays(rows, keys, least, causal=causal)
    for causal in (False, True)
    for rows, keys in ((n, n), (n - 1, n), (n, n - 1), (2 * n, 2 * n), (2 * n - 1, 2 * n), (least, 1 << 30))
]
"""
NAMES = {"fp16": "float16", "bf16": "bfloat16"}


def begin(dtype="fp16", head_dim=128, *, causal=False, least=1):
    return BEGIN.format(dtype=NAMES[dtype], head_dim=head_dim, causal=causal, least=least)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("arch", "dtype", "head_dim"), KERNELS)
def test_it_quantises_and_multiplies_codes(scenario, arch, dtype, head_dim, causal):
    shown = scenario(begin(dtype, head_dim, causal=causal) + CALL.format(mask=None), arch=arch)
    own = [QUANTISE.format(dtype)] * PHASES[arch] + [FORWARD.format(dtype, head_dim)]
    assert shown["kernels"][-len(own) :] == own  # after those of the check at first use
    assert set(shown["kernels"]) == set(own)
    assert (shown["findings"], shown["none"]) == (0, False)
    assert shown["error"] < MOST[arch]
    assert (shown["dtype"], shown["shape"]) == (f"torch.{NAMES[dtype]}", (2, 70, 4, head_dim))
    assert shown["lse"] == (2, 4, 70)
    assert shown["words"] == f"products are of int8 and {OF_VALUES[arch]}"


@pytest.mark.parametrize("arch", ALL)
def test_contiguous_tensors_may_begin_anywhere(scenario, arch):
    """Such a tensor is its own ``contiguous()``, so the kernels got the address and refused it."""
    shown = scenario(begin(DTYPES[arch]) + UNALIGNED + CALL.format(mask=None), arch=arch)
    assert shown["given"] == {(True, 2)}
    assert (shown["findings"], shown["none"]) == (0, False)
    assert shown["error"] < MOST[arch]


@pytest.mark.needs_archs(KEEPS)
@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "-float('inf')"])
@pytest.mark.parametrize(("name", "rows"), [("q", [140]), ("k", [*range(128, 210)])])
def test_nan_and_infinities_become_nan_with_v_in_fp16(scenario, name, rows, value):
    shown = scenario(begin() + DAMAGED.format(name=name, value=value), arch=KEEPS)
    assert shown["rows"] == rows
    assert (shown["others"], shown["infinite"]) == (False, False)


@pytest.mark.needs_archs(KEEPS)
@pytest.mark.parametrize("value", ["float('nan')", "float('inf')"])
def test_nan_and_infinities_of_v_in_fp16_have_the_effect_of_16_bits(scenario, value):
    shown = scenario(begin() + DAMAGED.format(name="v", value=value) + IN_16_BITS, arch=KEEPS)
    assert shown["same"]


@pytest.mark.parametrize("arch", ALL[:3])
@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "-float('inf')"])
@pytest.mark.parametrize(
    ("name", "first", "last", "columns"),
    [("q", 140, 141, range(128)), ("k", 128, 210, range(128)), ("v", 128, 210, [3])],
)
def test_nan_and_infinities_become_nan(scenario, arch, name, first, last, columns, value):
    """docs/sageattention.md: NaN for a row of q, for rows that see keys with the scale, and for v's head."""
    shown = scenario(begin(DTYPES[arch]) + DAMAGED.format(name=name, value=value), arch=arch)
    assert shown["rows"] == [*range(first, last)]
    assert shown["columns"] == [*columns]
    assert (shown["others"], shown["infinite"]) == (False, False)


@pytest.mark.parametrize(("arch", "dtype", "head_dim"), KERNELS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "values", ["(30000, 30000, 30000)", "(-30000, 30000, 30000)", "(30000, 30000, -30000)"]
)
def test_huge_scores_give_averages_of_v(scenario, arch, dtype, head_dim, causal, values):
    """Rows of equal scores near 10^9 were NaN on RX 6000."""
    code = begin(dtype, head_dim, causal=causal) + HUGE.format(values=values, scale=None)
    shown = scenario(code, arch=arch)
    assert shown["averages"]
    assert shown["sums"] < 2 / 127  # in equal rows all codes round alike, by up to half a step each


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize(
    ("values", "scale"), [("(0, 0, 0)", None), ("(0, 30000, -30000)", None), ("(30000, 30000, -30000)", 0.0)]
)
def test_equal_scores_of_0_give_the_average(scenario, arch, values, scale):
    shown = scenario(begin(DTYPES[arch]) + HUGE.format(values=values, scale=scale), arch=arch)
    assert shown["averages"]
    assert shown["sums"] < 1e-5
    assert shown["difference"] < 0.02


@pytest.mark.needs_archs(ARCH)
def test_torch_compile_takes_it_as_one_call(scenario):
    assert scenario(begin() + COMPILED, arch=ARCH)["same"] == [True, True]


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize("wrong", [False, True])
def test_the_check_at_first_use(scenario, tmp_path, monkeypatch, arch, wrong):
    """After a wrong result the first call is computed in 16 bits, and later calls are not taken."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    dtype = DTYPES[arch]
    shown = scenario(begin(dtype) + CHECKED.format(factor=1.5 if wrong else 1.0), arch=arch)
    first, second = shown["kernels"]
    own = [QUANTISE.format(dtype)] * PHASES[arch] + [FORWARD.format(dtype, 128)]
    if wrong:
        assert f"fa_fwd_{dtype}_d128" in first[len(own) :]
        assert second is None
        assert f"{dtype}, head_dim 128 with products of int8 are disabled on {arch}" in shown["warned"][0]
        assert "int8, causal, groups: out differs" in shown["words"]
    else:
        assert first[: len(own)] == first[-len(own) :] == own
        assert (second, shown["warned"]) == (own, [])


@pytest.mark.needs_archs(ARCH)
@pytest.mark.parametrize("causal", [False, True])
def test_parts_of_a_call_have_the_bits_of_the_whole(scenario, causal):
    shown = scenario(begin(causal=causal) + CUT, arch=ARCH)
    assert shown["same"] == [True, True]
    assert shown["launches"] == 3 * 2 * 2


# docs/sageattention.md. Other draws differ by 3 %, and by 6 % where the first key takes most.
@pytest.mark.parametrize(
    ("arch", "dtype", "values", "in_8_bits", "in_16_bits"),
    [
        pytest.param(*row, marks=pytest.mark.needs_archs(row[0]))
        for row in (
            (ARCH, "fp16", "normal", 39, 0.3),
            (ARCH, "fp16", "outliers", 2.5, 0.22),
            (ARCH, "fp16", "sinks", 43, 0.3),
            (ARCH, "bf16", "normal", 39, 2.4),
            (ARCH, "bf16", "outliers", 3.1, 1.8),
            (ARCH, "bf16", "sinks", 43, 2.4),
            (EAGER, "bf16", "normal", 39, 2.4),
            (EAGER, "bf16", "outliers", 3.1, 1.8),
            (EAGER, "bf16", "sinks", 43, 2.4),
            (FNUZ, "bf16", "normal", 39, 2.4),
            (FNUZ, "bf16", "outliers", 3.1, 1.8),
            (FNUZ, "bf16", "sinks", 43, 2.4),
            (KEEPS, "fp16", "normal", 11, 0.3),
            (KEEPS, "fp16", "outliers", 0.41, 0.22),
            (KEEPS, "fp16", "sinks", 21, 0.3),
        )
    ],
)  # fmt: skip
def test_errors_are_those_of_the_page(scenario, arch, dtype, values, in_8_bits, in_16_bits):
    shown = scenario(begin(dtype) + ERRORS.format(values=values), arch=arch)
    assert shown["errors"] == [pytest.approx(each, rel=0.08) for each in (in_8_bits, in_16_bits)]


@pytest.mark.parametrize("arch", ALL)
def test_the_rule_of_lengths(scenario, arch):
    shown = scenario(begin(least=0) + RULE, arch=arch)
    least = {ARCH: 2048, EAGER: 16384, FNUZ: 4096, KEEPS: 1024}[arch]
    assert (shown["least"], shown["on the CPU"]) == (least, 0)
    assert shown["pays"][:6] == [True, False, False, True, True, False]
    assert shown["pays"][6:] == [False, False, False, True, False, False]


@pytest.mark.needs_archs(ARCH)
@pytest.mark.parametrize(
    ("least", "head_dim", "mask", "words"),
    [
        (0, 128, "None", "8 bits pay from 4096 queries with as many keys on, or 8192 in causal calls"),
        (1, 96, "None", "no kernel for gfx1201 has products of int8 for fp16 with head dim 96"),
        (1, 128, "torch.ones(70, 70, dtype=torch.bool)", "take no mask"),
    ],
)
def test_other_calls_stay_in_16_bits(scenario, least, head_dim, mask, words):
    shown = scenario(begin("fp16", head_dim, least=least) + CALL.format(mask=mask), arch=ARCH)
    assert shown["none"]
    assert words in shown["words"]
    assert shown["kernels"] == []


@pytest.mark.parametrize("arch", ALL)
def test_callers_who_keep_v_get_kernels_that_have_it_as_given(scenario, arch):
    keep = 'rules["keeps_v"] = True\n'
    shown = scenario(begin(DTYPES[arch]) + keep + CALL.format(mask=None), arch=arch)
    words = f"promises 16 bits for v, and kernels for {arch} with products of int8 round v to fp8"
    assert shown["none"] == (arch != KEEPS)
    assert ("products are of int8 and fp16" if arch == KEEPS else words) in shown["words"]


@pytest.mark.needs_archs("gfx1100")
def test_other_archs_have_no_such_kernels(scenario):
    shown = scenario(begin() + CALL.format(mask=None), arch="gfx1100")
    assert shown["none"]
    assert "no kernel for gfx1100 has products of int8 for fp16" in shown["words"]

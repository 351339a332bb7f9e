"""q, k and v of 8 bits: one kernel with products of fp8, where there is one."""

import pytest
from test_quantised import CALL, CODES, COPIES, DENSE, FORMATS, PACKED

KERNEL = "fa_fwd_fp8_bf16_d{}"
OTHER = "gfx90a"
# Archs and head dims with a kernel. gfx942 alone reads e4m3fnuz.
KERNELS = [(arch, head_dim) for arch in ("gfx942", "gfx950", "gfx1201") for head_dim in (64, 128)]
CODES_OF = {"gfx942": FORMATS, "gfx950": FORMATS[:1], "gfx1201": FORMATS[:1]}
with_kernels = pytest.mark.parametrize(("arch", "head_dim"), KERNELS)
with_formats = pytest.mark.parametrize(
    ("arch", "head_dim", "dtype"), [(*each, dtype) for each in KERNELS for dtype in CODES_OF[each[0]]]
)
# Of the largest element. Probabilities have mantissas of 3 bits: simulated 23 thousandths
# (tests/tools/eight_bit_errors.py), three quarters more for the rows that see few keys, and descales.
MOST = 0.04


def right(shown, kernels, most=MOST):
    assert shown["kernels"] == kernels
    assert shown["findings"] == 0
    assert shown["dtype"] == "torch.bfloat16"
    assert shown["error"] < most


def begin(head_dim, dtype=FORMATS[0]):
    return f"dtype, head_dim = torch.{dtype}, {head_dim}\n{CODES}"


@with_formats
def test_dense(scenario, arch, head_dim, dtype):
    right(scenario(f"{begin(head_dim, dtype)}{DENSE}", arch=arch), [KERNEL.format(head_dim)])


@pytest.mark.parametrize("arch", ["gfx950", "gfx1201"])
def test_a_format_that_the_kernel_does_not_read_is_dequantised(scenario, arch):
    shown = scenario(f"{begin(128, FORMATS[1])}{DENSE}", arch=arch)
    right(shown, [*COPIES, "fa_fwd_bf16_d128"])


@with_formats
def test_packed(scenario, arch, head_dim, dtype):
    shown = scenario(f"{begin(head_dim, dtype)}{PACKED}", arch=arch)
    right(shown, [KERNEL.format(head_dim)])


@pytest.mark.needs_archs(OTHER)
def test_other_archs_dequantise(scenario):
    shown = scenario(f"{begin(128)}{DENSE}", arch=OTHER)
    right(shown, [*COPIES, "fa_fwd_bf16_d128"])


@with_kernels
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "products are of fp8"),
        ("softcap=2.0", "take no softcap, ALiBi or dropout"),
        ("alibi_slopes=torch.ones(4)", "take no softcap, ALiBi or dropout"),
    ],
)
def test_explain(scenario, arch, head_dim, options, words):
    shown = scenario(
        f"{begin(head_dim)}{CALL}"
        f"""
from flash_attn_rocm import explain
with kernels_on_host_memory(fake_hip):
    found = explain(*tensors, {options})
shown["path"], shown["reason"], shown["row"] = found.path, found.reason, found.row
""",
        arch=arch,
    )
    assert words in shown["reason"]
    assert (shown["path"] == "fp8") == (not options)
    assert shown["row"].startswith((KERNEL if not options else "fa_fwd_bf16_d{}").format(head_dim))


@with_kernels
def test_with_features_it_is_dequantised(scenario, arch, head_dim):
    shown = scenario(
        f"{begin(head_dim)}{CALL}"
        """
with kernels_on_host_memory(fake_hip):
    found = flash_attn_func(*tensors, causal=True, softcap=1e4, **dict(zip(names, descales)))
report(found, formula(numbers))
""",
        arch=arch,
    )
    right(shown, [*COPIES, f"fa_fwd_bf16_d{head_dim}"])


@with_kernels
def test_rows_that_the_kernel_cannot_read_are_copied(scenario, arch, head_dim):
    shown = scenario(
        f"{begin(head_dim)}{CALL}"
        """
tensors = [
    torch.nn.functional.pad(x.view(torch.uint8), (1, 4))[..., 1:-4].view(dtype) for x in tensors
]
with kernels_on_host_memory(fake_hip):
    found = flash_attn_func(*tensors, causal=True, **dict(zip(names, descales)))
report(found, formula(numbers))
""",
        arch=arch,
    )
    right(shown, [KERNEL.format(head_dim)])


# docs/caches-8-bit.md has these: thousandths of out's root mean square, of path fp8 and of bf16's kernels.
ROOT_MEAN_SQUARES = {
    ("gfx942", 64): {"normal": (27.0, 4.3), "outliers": (4.4, 2.0), "sinks": (26.1, 4.4)},
    ("gfx942", 128): {"normal": (26.3, 3.9), "outliers": (4.3, 2.1), "sinks": (26.3, 7.3)},
    ("gfx950", 64): {"normal": (27.0, 4.3), "outliers": (4.4, 2.0), "sinks": (26.1, 4.4)},
    ("gfx950", 128): {"normal": (26.3, 3.9), "outliers": (4.4, 2.1), "sinks": (26.3, 7.3)},
    ("gfx1201", 64): {"normal": (26.5, 4.3), "outliers": (4.3, 2.0), "sinks": (25.2, 4.4)},
    ("gfx1201", 128): {"normal": (25.6, 3.9), "outliers": (4.4, 2.1), "sinks": (26.1, 7.3)},
}


@with_kernels
@pytest.mark.parametrize("values", ["normal", "outliers", "sinks"])
def test_root_mean_squares_of_errors(scenario, arch, head_dim, values):
    """Against float64 on the numbers of the codes. 33 queries, 1024 keys."""
    shown = scenario(
        f"values, head_dim = {values!r}, {head_dim}"
        """
from flash_attn_rocm.suite import fp8_cases
from flash_attn_rocm.suite.forward_cases import Kernel
case = fp8_cases.Case(
    Kernel("fwd_fp8", "bf16", head_dim), (33,), (1024,), (2, 1), False, "float8_e4m3fn", True, (-1, -1),
    False, values, head_dim**-0.5, "contiguous", 5)
call = fp8_cases.Call(case, None)
wanted = call.exact(0)[0]
codes = [call.given(name).view(torch.float8_e4m3fn) for name in "qkv"]
names = ("q_descale", "k_descale", "v_descale")
numbers = [
    (x.float() * y.repeat_interleave(x.shape[2] // y.shape[1], 1)[:, None, :, None]).bfloat16()
    for x, y in zip(codes, call.descales)
]
def thousandths(out):
    return 1000 * ((out[0].double() - wanted).square().sum() / wanted.square().sum()).sqrt().item()
with kernels_on_host_memory(fake_hip), torch.no_grad():
    found = [flash_attn_func(*codes, **dict(zip(names, call.descales))), flash_attn_func(*numbers)]
shown["errors"] = [thousandths(out) for out in found]
shown["kernels"] = [launch.kernel for launch in fake_hip.report().launches]
""",
        arch=arch,
    )
    assert set(shown["kernels"]) == {KERNEL.format(head_dim), f"fa_fwd_bf16_d{head_dim}"}
    assert shown["errors"] == pytest.approx(ROOT_MEAN_SQUARES[arch, head_dim][values], abs=0.06)

"""The check at first use, on the emulator: a wheel with one wrong instruction is caught before it answers."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from flash_attn_rocm.canary.rows import APPENDS, BOOL, GRADIENTS, MASKED_GRADIENT_ROWS, MASKS, OWN

FULL = os.environ.get("FA_FULL", "") not in {"", "0"}
BEGIN = """
import warnings
from pathlib import Path
from flash_attn_rocm import flash_attn_with_kvcache, explain, raw
from flash_attn_rocm.arguments.normal_form import BackwardCall, Inputs, Options
from flash_attn_rocm.canary import calls, first_use
from flash_attn_rocm.reference import operators
from wheel_builder.machine_code.fake_hip.control import HOST_MEMORY
flash_attn_rocm.set_strict(None)
HOST_MEMORY.checks_kernels = True
fallbacks = []
def called(*tensors):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = attend(*tensors)
    fallbacks.extend(str(each.message) for each in caught)
    return out
def kernels():
    return [launch.kernel for launch in fake_hip.report().launches]
def exact():
    return operators.forward(
        Inputs(*qkv()),
        Options(0.125, window_right=0, max_seqlen_q=17, max_seqlen_k=17),
        None, want_probabilities=False)[0]
def trained(rows=17, **options):
    leaves = [x.requires_grad_() for x in qkv(rows)]
    with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out, lse, _ = flash_attn_func(*leaves, causal=True, return_attn_probs=True, **options)
        found = torch.autograd.grad(out, leaves, torch.ones_like(out))
    fallbacks.extend(str(each.message) for each in caught)
    options = Options(0.125, window_right=0, max_seqlen_q=rows, max_seqlen_k=rows)
    inputs = Inputs(*(x.detach() for x in leaves))
    call = BackwardCall(torch.ones_like(out), out.detach(), lse, inputs, options)
    wanted = operators.backward(call)
    pairs = [(a.float().nan_to_num(10.0), b.float()) for a, b in zip(found, wanted)]
    return max((a - b).abs().max().item() for a, b in pairs)
"""
ATTENTION = [
    "fa_combine_fp16", "fa_decode_fp16_d64", "fa_fwd_fp16_d64", "fa_fwd_tall_fp16_d64", "fa_reference_fp16",
]  # fmt: skip
FORWARD, MASKED, RANGES = "fa_fwd_fp16_d64", "fa_fwd_masked_fp16_d64", "fa_mask_ranges_fp16"
SPLIT = ["fa_bwd_delta_fp16", "fa_bwd_dkdv_fp16_d64", "fa_bwd_dq_fp16_d64"]
MASKED_SPLIT = ["fa_bwd_dkdv_masked_fp16_d64", "fa_bwd_dq_masked_fp16_d64"]
FUSED = ["fa_bwd_delta_fp16", "fa_bwd_fused_fp16_d64", "fa_bwd_convert_fp16"]
# The number of calls of the check on each path. The fused kernels here lack features.
CHECKED = {"separate": len(GRADIENTS), "fused": sum(not row.featured for row in GRADIENTS)}
FAMILY = "the kernels for fp16, head_dim 64 are disabled on gfx942:sramecc+:xnack-"
DISABLED = "the kernels for {} gradients of fp16, head_dim 64 are disabled on gfx942:sramecc+:xnack-"
# The eight elements of a row's 64 in a lane. The change gives every second lane its neighbour's.
LANE_OF_ROW, EVEN_LANE = r"v_and_b32_e32 (v\d+), 7, v0", r"v_and_b32_e32 \1, 6, v0"
# An instruction of each kernel of gradients, and another in its place.
WRONG_SPLIT = [
    ("fa_bwd_delta_fp16", LANE_OF_ROW, EVEN_LANE),
    ("fa_bwd_dkdv_fp16_d64", r"v_exp_f32_e32 (v\d+), ", r"v_log_f32_e32 \1, "),
    ("fa_bwd_dq_fp16_d64", r"v_exp_f32_e32 (v\d+), ", r"v_log_f32_e32 \1, "),
]
WRONG_FUSED = [
    ("fa_bwd_fused_fp16_d64", r"v_exp_f32_e32 (v\d+), ", r"v_log_f32_e32 \1, "),
    ("fa_bwd_convert_fp16", LANE_OF_ROW, EVEN_LANE),
]


@pytest.fixture
def play(scenario, tmp_path, monkeypatch):
    """A scenario with a separate cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda text, **settings: scenario(BEGIN + text, **settings)


def findings(tmp_path):
    return [json.loads(file.read_text()) for file in (tmp_path / "cache").rglob("*.json")]


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    """Replaces the first matching instruction of an arch's kernel, in the emulator's input."""

    def change(kernel, pattern, becomes, arch="gfx942"):
        folder = tmp_path / "disassembly"
        shutil.copytree(Path(os.environ["FA_FAKE_HIP_DISASSEMBLY"]), folder, copy_function=os.symlink)
        for file in folder.glob(f"{arch}-*.s"):
            text = file.read_text()
            head, mark, body = text.partition(f"<{kernel}>:\n")
            if mark:
                changed, count = re.subn(pattern, becomes, body, count=1)
                assert count == 1, f"{kernel} has no {pattern}"
                file.unlink()
                file.write_text(head + mark + changed)
                return {"disassembly": str(folder)}
        message = f"no {kernel} of {arch}"
        raise AssertionError(message)

    return change


def test_the_first_use_is_checked_and_no_other(play, tmp_path):
    text = """
called()
first = kernels()
called()
shown["kernels"], shown["then"], shown["fallbacks"] = first, kernels(), fallbacks
"""
    shown = play(text)
    assert sorted(set(shown["kernels"])) == ATTENTION
    assert shown["then"] == ["fa_fwd_fp16_d64"]
    assert shown["fallbacks"] == []
    [found] = findings(tmp_path)
    assert (found["state"], found["family"]) == ("passed", "fp16, head_dim 64")
    again = play(text)
    assert (again["kernels"], again["then"]) == (["fa_fwd_fp16_d64"],) * 2, "another process remembers it"


def test_one_wrong_instruction_is_caught_on_first_use(play, wrong, tmp_path):
    settings = wrong("fa_fwd_fp16_d64", r"v_exp_f32_e32 (v\d+), ", r"v_log_f32_e32 \1, ")
    text = """
out = called()
kernels()
shown["apart"] = (out - exact()).abs().max().item()
called()
shown["launched"], shown["fallbacks"] = kernels(), fallbacks
with kernels_on_host_memory(fake_hip):
    shown["reason"] = explain(*qkv()).reason
    flash_attn_rocm.set_strict(True)
    try:
        flash_attn_func(*qkv())
    except flash_attn_rocm.FlashAttnUnsupportedError as error:
        shown["strict"] = str(error)
"""
    shown = play(text, **settings)
    assert shown["apart"] == 0, "the PyTorch implementation answered the first call"
    assert shown["launched"] == []
    [words] = shown["fallbacks"]
    assert FAMILY in words
    assert re.search(
        r"a check at first use found: causal: (out|log-sum-exp) differs by \S+ from the reference", words
    )
    assert "Please report this with the file written by python -m flash_attn_rocm selftest" in words
    assert "FLASH_ATTN_ROCM_CANARY=0 disables the check" in words
    assert FAMILY in shown["reason"]
    assert FAMILY in shown["strict"]
    [found] = findings(tmp_path)
    assert found["state"] == "failed"
    assert found["words"] in words
    again = play(text, **settings)
    assert again["apart"] == 0
    assert again["launched"] == []
    assert found["words"] in again["fallbacks"][0], "another process remembers it"


def test_without_the_check_the_wrong_instruction_answers(play, wrong, monkeypatch):
    """Control: the check catches the error."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_CANARY", "0")
    settings = wrong("fa_fwd_fp16_d64", r"v_exp_f32_e32 (v\d+), ", r"v_log_f32_e32 \1, ")
    shown = play('shown["same"] = torch.equal(called(), exact()); shown["fallbacks"] = fallbacks', **settings)
    assert shown == {"same": False, "fallbacks": []}


def test_a_hip_error_switches_the_family_off(play):
    shown = play(
        """
fake_hip.fail("hipModuleLaunchKernel=719")
out = called()
fake_hip.fail("")
called()
shown["apart"], shown["launched"] = (out - exact()).abs().max().item(), kernels()
shown["fallbacks"] = fallbacks
"""
    )
    assert (shown["apart"], shown["launched"]) == (0, [])
    assert (
        "launching fa_fwd_fp16_d64 on device 0 (gfx942) failed: unspecified launch failure"
        in shown["fallbacks"][0]
    )


@pytest.mark.parametrize("call", ["hipModuleLoadData", "hipModuleLaunchKernel"])
def test_too_little_memory_for_a_kernel_is_no_finding(play, tmp_path, call):
    """It disabled the family, and was kept for later processes."""
    shown = play(
        f"""
fake_hip.fail("{call}=2")
try:
    called()
except RuntimeError as error:
    shown["words"] = str(error)
shown["kept"] = [str(file) for file in Path({str(tmp_path)!r}).rglob("*.json")]
fake_hip.fail("")
out = called()
shown["apart"], shown["launched"] = (out - exact()).abs().max().item(), kernels()[-1]
shown["fallbacks"] = fallbacks
"""
    )
    assert "failed: out of memory" in shown["words"]
    assert shown["apart"] < 2**-9
    assert (shown["kept"], shown["fallbacks"], shown["launched"]) == ([], [], "fa_fwd_fp16_d64")


def test_another_family_of_the_device_stays(play, wrong):
    settings = wrong("fa_fwd_fp16_d64", r"v_exp_f32_e32 (v\d+), ", r"v_log_f32_e32 \1, ")
    shown = play(
        """
called()
kernels()
called(*qkv(head_dim=32))
shown["launched"] = kernels()[-1]
""",
        **settings,
    )
    assert shown["launched"] == "fa_fwd_fp16_d32"


def test_kernels_that_write_into_caches(play, wrong, tmp_path):
    text = """
q, k, v = qkv(rows=1)
cache = torch.zeros(1, 40, 2, 64).half()
with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    given = dict(cache_seqlens=torch.tensor([3], dtype=torch.int32))
    flash_attn_with_kvcache(q, cache, cache.clone(), k, v, **given)
    first = kernels()
    flash_attn_with_kvcache(q, cache, cache.clone(), k, v, **given)
shown["kernels"], shown["then"] = first, kernels()
shown["fallbacks"] = [str(each.message) for each in caught]
shown["callers"] = [each.filename for each in caught]
shown["written"] = torch.equal(cache[:, 3], k[:, 0])
"""
    shown = play(text)
    assert shown["kernels"].count("fa_append_fp16") == len(APPENDS) + 1, "the check, and the call"
    assert "fa_append_fp16" in shown["then"]
    assert shown["fallbacks"] == []
    shutil.rmtree(tmp_path / "cache")
    shown = play(text, **wrong("fa_append_fp16", "v_pk_mul_f32", "v_pk_add_f32"))
    assert "the kernels for fp16, writing into caches are disabled" in shown["fallbacks"][0]
    assert "first use found: append: q, k_cache differ" in shown["fallbacks"][0]
    assert set(shown["callers"]) == {"scenario"}, "not a file of the package"
    assert "fa_append_fp16" not in shown["then"]
    assert shown["written"]


def test_a_check_that_did_not_end_counts_as_a_failure(play, tmp_path):
    """As after a hang or a crash of the machine: the mark of an ended process."""
    play("called()")
    [file] = (tmp_path / "cache").rglob("*.json")
    found = json.loads(file.read_text())
    file.write_text(json.dumps({**found, "state": "running", "pid": 2**22 + 1}))
    shown = play('called(); shown["fallbacks"], shown["launched"] = fallbacks, kernels()')
    assert "an earlier process did not finish their check" in shown["fallbacks"][0]
    assert shown["launched"] == []
    file.write_text(json.dumps({**found, "state": "running", "pid": 1}))
    shown = play('called(); shown["fallbacks"] = fallbacks')
    assert shown["fallbacks"] == [], "another process is at it: this one checks for itself"


@pytest.mark.parametrize("text", ["", '{"state": 1}', "{}", "[]", "\x00"])
def test_a_damaged_file_is_checked_again(play, tmp_path, text):
    play("called()")
    [file] = (tmp_path / "cache").rglob("*.json")
    file.write_text(text)
    shown = play('called(); shown["fallbacks"], shown["launches"] = fallbacks, len(kernels())')
    assert shown["fallbacks"] == []
    assert shown["launches"] > 1
    assert json.loads(file.read_text())["state"] == "passed"


def test_without_a_cache_folder_it_holds_for_the_process(play, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    shown = play('called(); first = len(kernels()); called(); shown["launches"] = [first, len(kernels())]')
    assert shown["launches"][0] > 1
    assert shown["launches"][1] == 1


def test_never_during_a_capture_and_at_the_same_call_after_it(play):
    shown = play(
        """
from flash_attn_rocm.serving import capture
HOST_MEMORY.checks_kernels = True
real, first_use.capture.is_capturing = capture.is_capturing, lambda device: True
called()
shown["captured"] = len(kernels())
first_use.capture.is_capturing = real
called()
shown["later"] = len(kernels())
called()
shown["then"] = len(kernels())
"""
    )
    assert shown["captured"] == shown["then"] == 1
    assert shown["later"] > 1


def test_a_write_into_a_cache_in_a_capture_is_checked_at_the_same_call_after_it(play):
    """Also if attention's own kernels passed before."""
    shown = play(
        """
called()
q, k, v = qkv(rows=1)
cache, lengths = torch.zeros(2, 1, 40, 2, 64).half(), torch.tensor([3], dtype=torch.int32)
def appended():
    kernels()
    with kernels_on_host_memory(fake_hip):
        flash_attn_with_kvcache(q, *cache, k, v, cache_seqlens=lengths)
    return kernels().count("fa_append_fp16")
real, first_use.capture.is_capturing = first_use.capture.is_capturing, lambda device: True
shown["captured"] = appended()
first_use.capture.is_capturing = real
shown["then"] = [appended(), appended()]
"""
    )
    assert shown["captured"] == 1
    assert shown["then"] == [len(APPENDS) + 1, 1]


ROWS_OF_656_BYTES = """
from flash_attn_rocm import mla_decode
rows = torch.zeros(1, 16, 656, dtype=torch.uint8)
rows[..., :512], q = 0x38, torch.zeros(1, 1, 4, 576).bfloat16()  # 1
rows[..., 512:528] = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(torch.uint8)
for _ in range(2):
    with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = mla_decode(q, rows)
    shown["fallbacks"] = fallbacks = fallbacks + [str(each.message) for each in caught]
    shown["kernels"] = kernels()
shown["out"] = out[0, 0, 3, ::128].tolist()
"""


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("arch", ["gfx1100"])
def test_rows_of_656_bytes_are_widened_by_a_checked_kernel_or_pytorch(play, wrong, broken, arch):
    at = r"v_mul_f32_e32 (v\d+), (v\d+), (v\d+)", r"v_add_f32_e32 \1, \2, \3"  # a code and its descale
    shown = play(ROWS_OF_656_BYTES, arch=arch, **wrong("fa_widen_bf16", *at, arch) if broken else {})
    assert shown["out"] == [1.0, 2.0, 3.0, 4.0]
    assert shown["kernels"] == ["fa_widen_bf16"] * (not broken) + ["fa_mla_bf16_d576"]
    disabled = f"the kernels for bf16, head_dim 128 with a cache of 8 bits are disabled on {arch}"
    assert [disabled in each for each in shown["fallbacks"]] == [True] * broken


@pytest.mark.parametrize("broken", [False, True])
def test_rows_of_656_bytes_are_read_by_a_checked_kernel(play, wrong, broken):
    """Or widened, by the other's kernel, for PyTorch."""
    at = r"v_med3_f32 (v\d+), (v\d+), -1.0, 1.0", r"v_med3_f32 \1, \2, 0, 0"  # the factor of values
    shown = play(ROWS_OF_656_BYTES, **wrong("fa_mla_rows_bf16_d576", *at) if broken else {})
    assert shown["out"] == [1.0, 2.0, 3.0, 4.0]
    disabled = (
        "the kernels for latent attention of bf16, head_dim 576 over rows of 656 bytes are disabled on gfx942"
    )
    assert [disabled in each for each in shown["fallbacks"]] == [True] * broken
    assert shown["kernels"][-1] == ("fa_widen_bf16" if broken else "fa_mla_rows_bf16_d576")


@pytest.mark.parametrize("rotates", [False, True])
def test_a_compiled_write_into_a_cache_is_checked_at_its_first_use(play, wrong, tmp_path, rotates):
    """The graph must not hold a kernel that nobody checked."""
    text = f"""
q, k, v = qkv(rows=1)
caches, lengths = torch.zeros(2, 1, 40, 2, 64).half(), torch.tensor([3], dtype=torch.int32)
angles = dict(zip(("rotary_cos", "rotary_sin"), torch.randn(2, 40, 16).half())) if {rotates} else {{}}
def appended(k_cache, v_cache):
    return flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True, **angles)
def written(attends):
    kernels()
    with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attends(*(found := caches.clone()))
    fallbacks.extend(str(each.message) for each in caught if "writing into caches" in str(each.message))
    return found, kernels().count("fa_append_fp16")
compiled = torch.compile(appended, backend="aot_eager", fullgraph=True)
found = [written(compiled), written(compiled), written(appended)]
shown["launches"] = [number for _, number in found]
shown["equal"] = [torch.equal(each, found[-1][0]) for each, _ in found]
shown["changed"], shown["fallbacks"] = bool(found[0][0].any()), fallbacks
"""
    right = {"launches": [len(APPENDS) + 1, 1, 1], "equal": [True] * 3, "changed": True, "fallbacks": []}
    assert play(text) == right
    shutil.rmtree(tmp_path / "cache")
    shown = play(text, **wrong("fa_append_fp16", "v_pk_mul_f32", "v_pk_add_f32"))
    assert shown["launches"][1:] == [0, 0]
    assert (shown["equal"], shown["changed"]) == (right["equal"], True)
    assert "the kernels for fp16, writing into caches are disabled" in shown["fallbacks"][0]


def test_also_while_another_thread_compiles(play):
    """PyTorch's flag is one for all threads, and another thread's check may have a kept row in place."""
    shown = play("torch.compiler.is_compiling = lambda: True; called(); shown['kernels'] = len(kernels())")
    assert shown["kernels"] > 1


def looked_at(mask):
    """Whether a kernel finds the visible keys first. Biases: only if heads or rows share them."""
    return mask.holds == BOOL or (mask.holds == OWN and not {*"hi"} <= {*mask.of})


@pytest.mark.parametrize("head_dim", [64, 40])
def test_kernels_with_a_mask_are_checked_when_one_first_answers(play, wrong, tmp_path, head_dim):
    """They are disabled alone, also for head dims padded to theirs."""
    text = f"""
q, k, v = qkv(head_dim={head_dim})
bias = torch.zeros(17, 17).half()
with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    attention = flash_attn_rocm.attention
    attention(q, k, v, bias, causal=True)
    first = kernels()
    attention(q, k, v, bias, causal=True)
    shown["then"] = kernels()
    attention(q, k, v, causal=True)
    shown["without"], shown["kernels"] = kernels()[-1], first
    shown["reason"] = explain(attention, q, k, v, bias).reason
shown["fallbacks"] = [str(each.message) for each in caught]
"""
    shown = play(text)
    rows = [row for row in MASKS if not row.tiny]
    launches = [each for row in rows for each in ([RANGES, MASKED] if looked_at(row.mask) else [MASKED])]
    assert shown["kernels"] == [*launches, RANGES, MASKED], "the check, and the call"
    assert shown["then"] == [RANGES, MASKED]
    assert shown["fallbacks"] == []
    shutil.rmtree(tmp_path / "cache")
    shown = play(text, **wrong(MASKED, r"v_exp_f32_e32 (v\d+), ", r"v_log_f32_e32 \1, "))
    words = "the kernels for fp16, head_dim 64 with an attn_mask are disabled"
    assert words in shown["fallbacks"][0]
    assert "first use found: bias, heads first: out differs by" in shown["fallbacks"][0]
    assert shown["then"] == []
    assert words in shown["reason"]
    assert "_fwd_" in shown["without"], "kernels without a mask stay"


@pytest.mark.parametrize(("path", "backward"), [("separate", SPLIT), ("fused", FUSED)])
def test_the_first_gradients_of_a_path_are_checked_and_no_others(play, tmp_path, monkeypatch, path, backward):
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", path)
    text = """
apart = trained()
first = kernels()
trained()
shown["kernels"], shown["then"], shown["fallbacks"], shown["apart"] = first, kernels(), fallbacks, apart
"""
    shown = play(text)
    assert [name for name in shown["kernels"] if "bwd" in name] == backward * (CHECKED[path] + 1)
    assert shown["then"] == [FORWARD, *backward]
    assert shown["fallbacks"] == []
    assert 0 < shown["apart"] < 0.01
    assert {found["family"]: found["state"] for found in findings(tmp_path)} == {
        "fp16, head_dim 64": "passed", f"{path} gradients of fp16, head_dim 64": "passed",
    }  # fmt: skip
    again = play(text)
    assert again["kernels"] == [FORWARD, *backward], "another process remembers it"


def test_what_passed_on_one_path_is_not_taken_for_the_other(play):
    """Each path is checked when it is first taken."""
    shown = play(
        """
trained(deterministic=True)
split = kernels()
trained()
fused = kernels()
trained(deterministic=True)
shown["kernels"], shown["fallbacks"] = [split, fused, kernels()], fallbacks
"""
    )
    split, fused, again = ([name for name in names if "bwd" in name] for names in shown["kernels"])
    assert split == SPLIT * (CHECKED["separate"] + 1)
    assert fused == FUSED * (CHECKED["fused"] + 1)
    assert again == SPLIT
    assert shown["fallbacks"] == []


@pytest.mark.parametrize("change", WRONG_SPLIT, ids=lambda change: change[0])
def test_one_wrong_instruction_of_gradients_is_caught_on_first_use(
    play, wrong, tmp_path, monkeypatch, change
):
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", "separate")
    shown = play(
        """
shown["apart"] = trained()
kernels()
trained()
shown["launched"], shown["fallbacks"] = kernels(), fallbacks
with kernels_on_host_memory(fake_hip):
    told = explain(*qkv())
    shown["ok"], shown["backward"], shown["reason"] = told.ok, told.backward, told.backward_reason
    q, k, v = qkv()
    out, lse, *_ = raw.fwd(q, k, v, None, None, 0.0, 0.125, True, -1, 0, 0.0, False)
    raw.bwd(out, q, k, v, out, lse, None, None, None, None, 0.0, 0.125, True, -1, 0, 0.0, True)
    shown["raw"] = kernels()
flash_attn_rocm.set_strict(True)
try:
    trained()
except flash_attn_rocm.FlashAttnUnsupportedError as error:
    shown["strict"] = str(error)
""",
        **wrong(*change),
    )
    assert shown["apart"] == 0, "the PyTorch implementation computed the first gradients"
    assert shown["launched"] == shown["raw"] == [FORWARD], "the forward's kernels stay"
    [words] = shown["fallbacks"]
    assert DISABLED.format("separate") in words
    assert re.search(r"a check at first use found: \w[^:]*: d[qkv] differs by \S+ from the reference", words)
    assert (shown["ok"], shown["backward"]) == (True, "pytorch")
    assert DISABLED.format("separate") in shown["reason"]
    assert DISABLED.format("separate") in shown["strict"]
    [failed] = [found for found in findings(tmp_path) if found["state"] == "failed"]
    assert failed["words"] in words


FUSED_FAILS = """
shown["apart"] = [trained(), trained()]
shown["kernels"], shown["fallbacks"] = [name for name in kernels() if "bwd" in name], list(fallbacks)
with kernels_on_host_memory(fake_hip):
    told = explain(*qkv())
    shown["backward"], shown["reason"] = told.backward, told.backward_reason
flash_attn_rocm.set_strict(True)
trained()
shown["then"], shown["more"] = kernels(), fallbacks[len(shown["fallbacks"]):]
"""


@pytest.mark.parametrize("change", WRONG_FUSED if FULL else WRONG_FUSED[:1], ids=lambda change: change[0])
def test_separate_kernels_answer_where_the_fused_ones_are_wrong(play, wrong, tmp_path, change):
    settings = wrong(*change)
    shown = play(FUSED_FAILS, **settings)
    assert all(0 < apart < 0.01 for apart in shown["apart"]), "kernels computed the first gradients, rightly"
    split = SPLIT * (CHECKED["separate"] + 2)
    tried = len(shown["kernels"]) - len(split)
    assert 0 < tried <= CHECKED["fused"] * len(FUSED), "the check of the fused kernels"
    assert shown["kernels"] == [*(FUSED * CHECKED["fused"])[:tried], *split], "the check, and two calls"
    [words] = shown["fallbacks"]
    assert words.startswith("separate kernels compute gradients instead of the fused ones: the kernels for ")
    assert DISABLED.format("fused") in words
    assert re.search(r"a check at first use found: \w[^:]*: d[qkv] differs by \S+ from the reference", words)
    assert shown["backward"] == "separate"
    assert DISABLED.format("fused") in shown["reason"]
    assert (shown["then"], shown["more"]) == ([FORWARD, *SPLIT], []), "strict mode takes any kernels"
    states = {found["family"]: found["state"] for found in findings(tmp_path)}
    assert states["fused gradients of fp16, head_dim 64"] == "failed"
    assert states["separate gradients of fp16, head_dim 64"] == "passed"
    again = play(FUSED_FAILS, **settings)
    assert again["kernels"] == SPLIT * 2, "another process remembers it"
    assert again["fallbacks"] == shown["fallbacks"]


def test_pytorch_answers_where_both_paths_are_wrong(play, wrong):
    """Changes the one kernel of both paths."""
    shown = play(
        """
shown["apart"] = [trained(), trained(deterministic=True)]
kernels()
trained()
shown["launched"], shown["fallbacks"] = kernels(), fallbacks
with kernels_on_host_memory(fake_hip):
    told = explain(*qkv())
    shown["backward"], shown["reason"] = told.backward, told.backward_reason
""",
        **wrong(*WRONG_SPLIT[0]),
    )
    assert shown["apart"] == [0, 0]
    assert shown["launched"] == [FORWARD]
    [words] = shown["fallbacks"]
    assert DISABLED.format("separate") in words
    assert shown["backward"] == "pytorch"
    assert DISABLED.format("separate") in shown["reason"]


def test_the_raw_entry_point_of_gradients_is_checked_too(play, wrong):
    """Without an earlier call."""
    shown = play(
        """
q, k, v = qkv()
out, lse = exact(), torch.zeros(1, 4, 17)
with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = raw.bwd(out, q, k, v, out, lse, None, None, None, None, 0.0, 0.125, True, -1, 0, 0.0, True)
shown["fallbacks"] = [str(each.message) for each in caught]
""",
        **wrong(*WRONG_SPLIT[1]),
    )
    assert DISABLED.format("separate") in shown["fallbacks"][0]


@pytest.mark.parametrize("change", [WRONG_SPLIT[0], WRONG_FUSED[0]], ids=lambda change: change[0])
def test_without_the_check_the_wrong_gradients_answer(play, wrong, monkeypatch, change):
    monkeypatch.setenv("FLASH_ATTN_ROCM_CANARY", "0")
    shown = play('shown["apart"], shown["fallbacks"] = str(trained()), fallbacks', **wrong(*change))
    assert shown["fallbacks"] == []
    assert not float(shown["apart"]) < 0.01


# Wrong instructions missed by earlier checks: they matter only in calls unlike all of theirs.  The last
# product of a pair is for rows 46 to 64. Another bounds a window on its left.  With more than 64 parts a
# thread has two or more, and takes the largest log-sum-exp of both. The next is a key's place in its page,
# for some keys in the middle of a tile.  A workgroup with a single row does nothing. The last keeps a NaN
# from becoming a number when rounded to bf16.
LONG_BLOCK = ("fa_bwd_fused_fp16_d64", r"(?s)^(.*)v_pk_mul_f32", r"\1v_pk_add_f32")
LEFT_BOUND = ("fa_fwd_fp16_d64", r"v_max_i32_e32 (v\d+), 0, \1", r"v_min_i32_e32 \1, 0, \1")
LARGEST = (
    "fa_combine_fp16", r"v_max_f32_e32 (v\d+), (?:v\d+, \1|\1, v\d+)(?=[^\n]*\n\tv_lshl_or_b32)", "s_nop 0"
)  # fmt: skip
IN_PAGE = ("fa_decode_fp16_d32", r"v_sub_u32_e32 v33, v38, v40", "s_nop 0")
ONE_ROW = (
    "fa_bwd_convert_fp16", r"s_cmp_lt_i32 (s\d+), 1(?=[^\n]*\n\ts_cbranch_scc1)", r"s_cmp_le_i32 \1, 1"
)  # fmt: skip
# In the code copy for packed sequences, the compiler's first one.
SECOND_BLOCK = ("fa_bwd_delta_fp16", r"s_lshl_b32 (s\d+), s2, 7", r"s_lshl_b32 \1, s2, 9")
QUIET = ("fa_append_bf16", r"v_or_b32_e32 (v\d+), 0x400000", r"v_and_b32_e32 \1, 0x400000")
# A thread with only the first half of its elements.
HALF_A_THREAD = (
    "fa_append_fp16", r"(global_load_ushort [^\n]*\n(?:\t[^\n]*\n){4}\ts_)or(_b64 exec)", r"\1and\2"
)  # fmt: skip
WITHOUT = """
from flash_attn_rocm.canary import caches, rows
wanted = {}
for module, name in (
    (rows, "ATTENTION"), (rows, "GRADIENTS"),
    (rows, "MASKED_GRADIENT_ROWS"), (caches, "APPENDS"),
):
    setattr(module, name, tuple(row for row in getattr(module, name) if row.why not in wanted))
"""
WINDOWED = """
inputs = Inputs(*qkv(130))
options = Options(0.125, 33, 0, max_seqlen_q=130, max_seqlen_k=130)
with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    out = flash_attn_func(*inputs[:3], window_size=(33, 0))
wanted = operators.forward(inputs, options, None, want_probabilities=False)[0]
shown["apart"] = (out.float() - wanted.float()).abs().max().item()
shown["fallbacks"] = [str(each.message) for each in caught]
"""
PACKED_ROWS = """
from flash_attn_rocm import flash_attn_varlen_func
leaves = [x[0, :n].clone().requires_grad_() for x, n in zip(qkv(150), (150, 4, 4))]
ends = [torch.tensor([0, n], dtype=torch.int32) for n in (150, 4)]
with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    out = flash_attn_varlen_func(*leaves, *ends, 150, 4)
    [dq] = torch.autograd.grad(out, leaves[:1], torch.ones_like(out))
q, k, v = (x.detach().float().transpose(0, 1) for x in leaves)
q.requires_grad_()
out = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
[wanted] = torch.autograd.grad(out, [q], torch.ones_like(out))
shown["apart"] = (dq.float().nan_to_num(10.0) - wanted.transpose(0, 1)).abs().max().item()
shown["fallbacks"] = [str(each.message) for each in caught]
"""
DECODED = """
def decoded(q, k, v, **given):
    with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = flash_attn_with_kvcache(q, k, v, **given)
    shown["fallbacks"] = [str(each.message) for each in caught]
    return out.float().nan_to_num(10.0)
"""
IN_PARTS = """
q, k, v = (torch.randn(1, n, 1, 64).half() for n in (1, 4288, 4288))
q[..., 0], k[0, :, 0, 0] = -64, torch.arange(4288) / 8
wanted = torch.nn.functional.scaled_dot_product_attention(*(x.float().transpose(1, 2) for x in (q, k, v)))
shown["apart"] = (decoded(q, k, v, num_splits=67) - wanted.transpose(1, 2)).abs().max().item()
"""
IN_PAGES = """
q, k, v = (torch.randn(n, m, 1, 32).half() for n, m in ((1, 1), (20, 16), (20, 16)))
table = torch.arange(19, -1, -1, dtype=torch.int32)[None]
rows = [x.float().flip(0).flatten(0, 1)[None].transpose(1, 2) for x in (k, v)]
wanted = torch.nn.functional.scaled_dot_product_attention(q.float().transpose(1, 2), *rows)
lengths = torch.tensor([320], dtype=torch.int32)
found = decoded(q, k, v, cache_seqlens=lengths, block_table=table)
shown["apart"] = (found - wanted.transpose(1, 2)).abs().max().item()
"""
NO_NUMBERS = """
q, k, v = (x.bfloat16() for x in qkv(rows=1))
cache, turns = torch.zeros(1, 40, 2, 64).bfloat16(), torch.ones(40, 16).bfloat16()
with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    flash_attn_with_kvcache(
        q, cache, cache.clone(), k.fill_(torch.nan), v, rotary_cos=turns, rotary_sin=turns,
        cache_seqlens=torch.tensor([3], dtype=torch.int32))
shown["apart"] = (~cache[0, 3, :, :32].isnan()).float().mean().item()
shown["fallbacks"] = [str(each.message) for each in caught]
"""
HEAD_DIM_72 = """
q, k, v = (torch.randn(1, n, 1, 72).half() for n in (1, 3, 3))
cache = torch.zeros(1, 40, 1, 72).half()
with kernels_on_host_memory(fake_hip), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    flash_attn_with_kvcache(q, cache, cache.clone(), k, v, cache_seqlens=torch.tensor([3], dtype=torch.int32))
shown["apart"] = (cache[0, 3:6] - k[0]).abs().max().item()
shown["fallbacks"] = [str(each.message) for each in caught]
"""
# A wrong instruction, a call affected by it, the size of the error, the disabled kernels, the affected rows.
HOLES = {
    "64 causal rows": (
        LONG_BLOCK, 'shown["apart"], shown["fallbacks"] = trained(64), fallbacks', 0.1,
        DISABLED.format("fused"), ["causal", "window, heads first, negative scale",
         "window, packed sequences", "long packed sequences", "one key", "one key, packed sequences"],
    ),
    "a window and nothing else": (
        LEFT_BOUND, WINDOWED, 0.1, FAMILY,
        ["window, scores that rise and fall", "scores far apart",
         "the diagonal, heads first, infinite scores", "left padded cache, negative scale",
         "long packed sequences"],
    ),
    "more parts than threads of a wave": (
        LARGEST, DECODED + IN_PARTS, 0.1, FAMILY, ["decode in many parts, scores that rise and fall"],
    ),
    "pages of equal scores": (
        IN_PAGE, DECODED + IN_PAGES, 0.01, FAMILY.replace("64", "32", 1),
        ["decode, pages", "decode, pages, infinite scores"],
    ),
    "one row more than a workgroup has": (
        ONE_ROW, 'shown["apart"], shown["fallbacks"] = trained(129), fallbacks', 0.04,
        DISABLED.format("fused"), ["causal"],
    ),
    "more rows of a packed sequence than a workgroup has": (
        SECOND_BLOCK, PACKED_ROWS, 0.1, DISABLED.format("separate"), ["long packed sequences"],
    ),
    "NaN in bf16": (
        QUIET, NO_NUMBERS, 0.05, "the kernels for bf16, writing into caches are disabled",
        ["append", "append, all of a row rotated, pages", "append, interleaved",
         "append, interleaved, rows by index"],
    ),
    "a head dim that is an odd multiple of 8": (
        HALF_A_THREAD, HEAD_DIM_72, 0.5, "the kernels for fp16, writing into caches are disabled",
        ["append", "append, interleaved", "append, pages, not rotated"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_of_earlier_checks_is_closed(play, wrong, hole):
    """The errors were silent: dq 22 % wrong in 64 causal rows, out 48 % in 130 rows with window (33, 0)."""
    change, call, apart, words, _ = HOLES[hole]
    shown = play(call, **wrong(*change))
    assert shown["apart"] < apart / 10
    assert words in shown["fallbacks"][0]


@pytest.mark.full
@pytest.mark.parametrize("hole", HOLES)
def test_the_calls_that_close_a_hole_are_needed(play, wrong, hole):
    change, call, apart, _, rows = HOLES[hole]
    shown = play(f"{WITHOUT.format(rows)}\n{call}", **wrong(*change))
    assert shown["apart"] > apart
    assert shown["fallbacks"] == []


ARCHS = json.loads(os.environ["FA_FEATURES"])
# The number of families of all archs, and of additional ones for a feature.
FAMILIES = 14
MORE = {
    "trains": 12, "large_head_dims": 6, "large_bwd": 4, "atomic_fadd_f32": 6, "latent_d576": 2,
    "latent_codes": 1, "latent_rows": 1, "steps_of_16": 2, "fp8_d64": 1, "fp8_d128": 1, "int8_d64": 1,
    "int8_fp16": 1, "int8_bf16": 1,
}  # fmt: skip
# Every family stays below this share of the tolerance: a narrow pass would become a false alarm one day.
MARGIN = 0.7
# With products of 8 bits it is a bound for any numbers, half a step of each probability: 0.77 of it is used.
OF_8_BITS, MARGIN_OF_8_BITS = "with products of", 0.8
# The minimum share of a kernel's instructions executed by the check.  Kernels for all head dims are left out.
EXECUTED = 0.98
OWN_HEAD_DIM = re.compile(r"_d\d+$")
# Sanitizers are off: they change nothing here, and tests/installed/numerics has them.
FAMILIES_OF = """
from flash_attn_rocm.canary import fp8 as _canary_fp8, int8 as _canary_int8, latent as _canary_latent
from flash_attn_rocm.launch import append, backward_pass, fp8 as _fp8, int8 as _int8, latent as _latent
from flash_attn_rocm.library import plans
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.values import paths
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.library.host import instances, gfx_of
arch = torch.ops.flash_attn_rocm.device_arch(-1)
device, cpu = Device(arch, 0), torch.device("cpu")
used, problems, ran = {}, {}, {}
differ = calls._difference
def noted(what, found, wanted, most):
    error = (found.float() - wanted.float()).nan_to_num().abs().max().item()
    used[str(family)] = max(used.get(str(family), 0.0), error / (most or 1.0))
    return differ(what, found, wanted, most)
calls._difference = noted
share_of = _canary_fp8.share_of
def shared(*given):  # also of int8: an error and its tolerance for each element
    share = share_of(*given)
    used[str(family)] = max(used.get(str(family), 0.0), share)
    return share
_canary_fp8.share_of = shared
WORK = {
    plans.FORWARD: "", plans.WIDE_OP: "", plans.MASKED: remembered.MASKED, "mla": remembered.LATENT,
    "mla_8bit": remembered.CODED, "mla_rows": remembered.ROWS, plans.BACKWARD: paths.SEPARATE,
    "bwd_fused": paths.FUSED,
    plans.MASKED_BACKWARD: remembered.MASKED_GRADIENTS, "append": "", "fwd_fp8": remembered.FP8,
    "fwd_int8": remembered.INT8,
}
there = [remembered.Family(arch, each.dtype, each.head_dim, WORK[each.op])
    for each in instances() if each.op in WORK and gfx_of(arch) in each.archs]
def problem(family):
    if not family.head_dim:
        return caches.append_problem(family, append._by_kernel, cpu)
    if family.work == remembered.LATENT:
        return _canary_latent.latent_problem(family, _latent.answer, device, cpu)
    if family.work == remembered.CODED:
        return _canary_latent.coded_latent_problem(family, _latent.answer, device, cpu)
    if family.work == remembered.ROWS:
        return _canary_latent.packed_latent_problem(family, _latent.answer, device, cpu)
    if family.work == remembered.FP8:
        return _canary_fp8.fp8_problem(family, _fp8.answer, device, cpu)
    if family.work == remembered.INT8:
        return _canary_int8.int8_problem(family, _int8.answer, device, cpu)
    if family.work in (paths.SEPARATE, paths.FUSED, remembered.MASKED_GRADIENTS):
        return calls.gradients_problem(family, backward_pass.checked, cpu)
    return calls.attention_problem(family, forward_pass.answer, device, cpu)
with kernels_on_host_memory(fake_hip):
    for family in there:
        if ONLY in str(family):
            problems[str(family)] = problem(family)
for launch in fake_hip.report().launches:
    ran[launch.kernel] = ran.get(launch.kernel, 0) | launch.ran
shown["executed"] = {name: bits.bit_count() / len(fake_hip.listing(name)) for name, bits in ran.items()}
shown["problems"], shown["used"] = problems, used
"""


def margin_of(family):
    return MARGIN_OF_8_BITS if OF_8_BITS in family else MARGIN


def too_little(executed):
    """The kernels with a separate head dim whose executed share is below the minimum."""
    return {name: share for name, share in executed.items() if OWN_HEAD_DIM.search(name) and share < EXECUTED}


@pytest.mark.parametrize("arch", ARCHS)
def test_no_family_alarms_falsely_and_each_is_executed(scenario, arch):
    """Each arch with machine code: its kernels are compiled unlike other archs'."""
    shown = scenario(f"{BEGIN}\n{WITHOUT.format([])}\nONLY = ''\n{FAMILIES_OF}", arch=arch, seconds=600)
    assert set(shown["problems"].values()) == {""}, shown["problems"]
    assert len(shown["problems"]) == FAMILIES + sum(MORE.get(feature, 0) for feature in ARCHS[arch])
    assert too_little(shown["executed"]) == {}
    assert {name for name in shown["problems"] if OF_8_BITS in name} <= shown["used"].keys()
    assert {name: share for name, share in shown["used"].items() if share > margin_of(name)} == {}


def test_a_family_of_which_too_little_is_executed_is_named(scenario):
    """gfx950's calls once left out dropout with an fp32 mask."""
    biases = [row.why for row in MASKED_GRADIENT_ROWS if row.mask.holds != BOOL]
    family = "gradients of fp16, head_dim 64 with an attn_mask"
    shown = scenario(f"{BEGIN}\n{WITHOUT.format(biases)}\nONLY = {family!r}\n{FAMILIES_OF}")
    assert shown["problems"] == {family: ""}
    assert sorted(too_little(shown["executed"])) == MASKED_SPLIT

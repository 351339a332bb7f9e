"""A whole wheel, with a fake engine in place of the LLVM tools."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.fast.unit.static_checks.tools import CODE, FakeTools
from tests.tools.made.assembly import code, disassembly
from tests.tools.made.wheels import ARCHS, KERNELS, good_files, write_wheel
from wheel_builder.base.errors import DeviceCodeError, ElfError
from wheel_builder.base.store import Store
from wheel_builder.machine_code.disassembly.listing import Listing, Tools
from wheel_builder.machine_code.static_checks import golden
from wheel_builder.machine_code.static_checks.check import (
    STAGE,
    check_listings,
    check_wheel,
    programs,
    update_golden,
)

CHECKOUT = Path(__file__).parents[4]
MFMA = "v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31]"
NAME = "fa_fwd_fp16_d64"


def listing(*lines, **taken):
    return Listing("gfx942", disassembly(*lines, "s_endpgm"), code(**taken))


def check(*listings, reviewed=None):
    return check_listings(listings, rocm="7.2", reviewed=reviewed or {})


def reviewed(**changed):
    entry = check(listing(MFMA)).taken["gfx942"][NAME]
    return {"gfx942": {NAME: replace(golden.limits_of(entry), **changed)}}


def test_what_a_kernel_takes():
    entry = check(listing(MFMA)).taken["gfx942"][NAME]
    assert entry == golden.Entry(
        vgpr=138, agpr=0, sgpr=65, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_bytes=1024,
        code_bytes=4, occupancy=3, matrix=1,
    )  # fmt: skip


def test_a_kernel_as_reviewed_has_no_finding():
    assert check(listing(MFMA), reviewed=reviewed()).findings == ()


def test_every_check_has_its_say():
    scratch = ["scratch_load_dword v8, off, s0", "v_mov_b32_e32 v8, 0"]
    lines = [MFMA, "v_mov_b32_e32 v9, v20", *scratch, MFMA.replace("_f16", "_bf16")]
    report = check(listing(*lines), reviewed=reviewed(occupancy=2))
    checks = ["hazards", "waits", "matrix instructions", "scratch"]
    assert [f.check for f in report.findings] == [*checks, "golden"]
    assert [f.check for f in report.failures] == checks


def test_scratch_that_was_reviewed_is_allowed():
    spilled = listing(MFMA, "scratch_load_dword v0, off, s0", scratch_bytes=16)
    assert check(spilled, reviewed=reviewed(scratch_bytes=16)).findings == ()


def test_a_loop_longer_than_the_instruction_cache_refuses_a_wheel():
    jump = f"s_cbranch_scc0 {2**16 - 2**14 - 1}"  # 64 KiB back
    report = check(listing(*[MFMA] * 2**14, jump))
    assert "loops" in {finding.check for finding in report.failures}


def test_code_that_is_no_kernel_is_refused_in_words():
    both = Listing("gfx942", disassembly("s_endpgm") + disassembly("s_endpgm", name="helper"), code())
    with pytest.raises(DeviceCodeError, match=r"found fa_fwd_fp16_d64, helper; expected fa_fwd_fp16_d64"):
        check(both)


def run_on(wheel, checkout, tools, identity="sha256:1", used=None):
    return check_wheel(
        wheel,
        rocm="7.2",
        tools=Tools(identity, image="builder:7.2"),
        checkout=checkout,
        store=Store(checkout / "build", used),
        max_mib=12,
        log=checkout / "log",
        run=tools,
    )


def test_a_wheels_code_objects_are_listed_once_and_checked(checkout, tmp_path):
    wheel = write_wheel(tmp_path, good_files())
    tools = FakeTools()
    report = run_on(wheel, checkout, tools)
    assert report.rocm == "7.2"
    assert {(a, k) for a, kernels in report.taken.items() for k in kernels} == set(product(ARCHS, KERNELS))
    assert [finding.check for finding in report.failures] == ["golden"] * len(ARCHS) * len(KERNELS)
    update_golden(checkout, report)
    assert run_on(wheel, checkout, tools).findings == ()
    assert len(tools.commands) == 1


def test_code_that_was_checked_is_not_checked_again(checkout, tmp_path, monkeypatch):
    """The wheel for Windows has the Linux wheel's code objects: their checks took two minutes more."""
    wheel = write_wheel(tmp_path, good_files())
    report = run_on(wheel, checkout, FakeTools())
    monkeypatch.setitem(CODE, "gfx1030", "scratch_load_dword v8, off, s0")
    used = []
    again = run_on(wheel, checkout, FakeTools(), "sha256:2", used)
    archs = {
        (each.facts["kernels"][0]["arch"], each.reused) for each in used if each.manifest["stage"] == STAGE
    }
    assert archs == {(arch, arch != "gfx1030") for arch in ARCHS}
    more = [finding for finding in again.findings if finding not in report.findings]
    assert {(finding.arch, finding.check) for finding in more} >= {("gfx1030", "scratch")}
    assert {finding.arch for finding in more} == {"gfx1030"}


def test_a_changed_check_has_everything_checked_again(checkout, tmp_path, monkeypatch):
    wheel = write_wheel(tmp_path, good_files())
    run_on(wheel, checkout, FakeTools())
    monkeypatch.setattr(
        "wheel_builder.machine_code.static_checks.check.programs", lambda _: {"checks": "others"}
    )
    used = []
    run_on(wheel, checkout, FakeTools(), used=used)
    assert {each.reused for each in used if each.manifest["stage"] == STAGE} == {False}


def test_words_of_a_check_have_nothing_checked_again(tmp_path, monkeypatch):
    monkeypatch.setattr("wheel_builder.machine_code.static_checks.check.MACHINE_CODE", tmp_path)
    (tmp_path / "static_checks").mkdir()
    found = []
    for text in ('"""One."""\nMOST = 1\n', '"""Other."""\nMOST = 1  # why\n', '"""One."""\nMOST = 2\n'):
        (tmp_path / "static_checks/waits.py").write_text(text)
        found.append(programs(CHECKOUT))
    assert found[0] == found[1] != found[2]


def test_a_wheel_without_device_code_is_refused_in_words(checkout, tmp_path):
    files = {name: data for name, data in good_files().items() if not name.endswith(".so")}
    with pytest.raises(ElfError, match=r"there is no flash_attn_rocm/_C/libflash_attn_rocm\.so"):
        run_on(write_wheel(tmp_path, files), checkout, FakeTools())

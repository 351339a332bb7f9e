"""The assumptions of the release's verification, checked on the released wheel."""

import re
import shutil
import zipfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, product

import pytest
from torch_abi_audit import minimum_version

from tests.conftest import CHECKOUT
from tests.release.twins import without_other_archs
from tests.tools.alike import executed_alike
from tests.tools.made.wheels import write_wheel
from wheel_builder.audit.rules import TORCH_SHIM
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.store import sha256_file
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.library import LIBRARY as HOST_LIBRARY
from wheel_builder.files.device.library import code_objects
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.machine_code.fake_hip.container import LIBRARY
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel
from wheel_builder.matrix.hardware import MOST_ALLOWED, MOST_LSE
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.tables.archs import arch_named, known_archs
from wheel_builder.verify.coverage import REASONS, UNEXPLAINED, parse_reasons
from wheel_builder.verify.numerics import run_emulated
from wheel_builder.verify.seen import subjects_of

ARCHS = list(known_archs())
CONTROLS = ("fa_fake_hip_", "emu_")
# A library that detects tests would contain one of these words.
WORDS_OF_TESTS = (b"fake_hip", b"fake HIP runtime", b"emulat", b"pytest", b"unittest", b"FA_TEST")


@pytest.fixture
def host_library(release):
    with zipfile.ZipFile(release.wheel) as archive:
        return archive.read(HOST_LIBRARY)


def test_the_fake_hip_has_exactly_the_entry_points_that_the_library_calls(host_library, emulator):
    exported = read_elf((emulator.path / LIBRARY).read_bytes()).exported
    called = [symbol for symbol in read_elf(host_library).undefined if symbol.name.startswith("hip")]
    assert all(symbol.weak for symbol in called)
    assert sorted(symbol.name for symbol in called) == [n for n in exported if not n.startswith(CONTROLS)]
    assert [n for n in exported if n.startswith(CONTROLS)]


LACKING = {  # in torch 2.9
    "torch_delete_string", "torch_get_const_data_ptr", "torch_get_mutable_data_ptr", "torch_library_impl",
    "torch_new_string_handle", "torch_string_c_str", "torch_string_length",
}  # fmt: skip


def test_why_the_torch_floor_is_2_10(host_library):
    """docs/troubleshooting.md says that torch 2.9 lacks seven functions."""
    functions = [s.name for s in read_elf(host_library).undefined if TORCH_SHIM.fullmatch(s.name)]
    assert {name for name in functions if minimum_version((name,))[0] > (2, 9, 0)} == LACKING


def test_the_library_names_no_version_of_hip(host_library):
    library = read_elf(host_library)
    assert not any("hip" in name for name in library.needed)
    assert {s.version for s in library.undefined if s.name.startswith("hip")} == {""}


def test_the_shipped_library_holds_no_test_branch(host_library):
    assert [word for word in WORDS_OF_TESTS if word.lower() in host_library.lower()] == []


@dataclass(frozen=True)
class Damage:
    """Replaces the first matching instruction by another of equal length."""

    instruction: str
    edit: Callable[[bytes], bytes]


S_NOP = bytes.fromhex("000080bf")  # on all archs
LOG2_E = bytes.fromhex("3baab83f")
DAMAGES = {
    "another register's exponential": Damage("v_exp_f32", lambda code: bytes([code[0] ^ 1]) + code[1:]),
    "scale off by 1.6 %": Damage("0x3fb8aa3b", lambda code: code.replace(LOG2_E, b"\x3b\xaa\xbb\x3f")),
    "barrier left out": Damage("s_barrier", lambda _: S_NOP),
}
INSTRUCTION = re.compile(r"// 0000(\w{8}): ([0-9A-F ]+)$")


def damaged(wheel, arch, damage, sound, folder, as_text):
    """A copy of ``wheel`` with the damage in the arch's first code object with such an instruction.

    Returns it with its disassembly. ``sound`` is the disassembly of ``wheel``.
    """
    files = dict(read_wheel(wheel, max_mib=64).files)
    file, line = next(
        (listing.with_suffix(".co"), line)
        for listing in sorted(sound.path.glob(f"{arch}-*.s"))
        for line in listing.read_text().splitlines()
        if damage.instruction in line
    )
    code = file.read_bytes()
    address, words = INSTRUCTION.search(line).groups()
    before = b"".join(int(word, 16).to_bytes(4, "little") for word in words.split())
    after = damage.edit(before)
    assert after != before
    assert len(after) == len(before)
    # Code is in the file as in memory, but 0x1000 lower: the page of the segment before it.
    at = int(address, 16) - 0x1000
    assert code[at : at + len(before)] == before
    edited = code[:at] + after + code[at + len(before) :]
    library = files[HOST_LIBRARY]
    assert [each.data for each in code_objects(library)].count(code) == 1
    # Without the other archs, a bundle that the damage makes larger still fits into its section.
    files[HOST_LIBRARY] = without_other_archs(
        library, arch, lambda each: edited if each.data == code else each.data
    )
    del files[f"{read_wheel(wheel, max_mib=64).dist_info}/RECORD"]
    wheel = write_wheel(folder, files, name=wheel.name)
    listings = folder / "disassembly"
    listings.mkdir()
    for listed in sound.path.glob(f"{arch}-*"):  # the arch's suite sees these files only
        shutil.copy2(listed, listings)
    (listings / file.name).write_bytes(edited)
    [text] = as_text(arch, [listings / file.name])
    (listings / file.name).with_suffix(".s").write_text(text)
    return wheel, replace(sound, path=listings, manifest={**sound.manifest, "key": sha256_file(wheel)})


def damages():
    """Each damage for each arch with --full.

    By default, one for an arch of each matrix unit, among the damages revealed by the first cases.
    """
    units = {arch_named(arch).isa.unit: arch for arch in ARCHS}.values()
    quick = list(zip(units, cycle(["scale off by 1.6 %", "barrier left out"]), strict=False))
    for arch, damage in product(ARCHS, DAMAGES):
        yield pytest.param(arch, damage, marks=[] if (arch, damage) in quick else pytest.mark.full)


@pytest.mark.parametrize(("arch", "damage"), list(damages()))
def test_a_wheel_with_one_wrong_instruction_does_not_pass(
    release, arch, damage, builder, verifier, emulator, context, as_text, tmp_path
):
    log = tmp_path / "log"
    kept = {"store": context.store, "log": log}
    sound = disassemble_wheel(release.wheel, builder, **kept)
    wheel, disassembly = damaged(release.wheel, arch, DAMAGES[damage], sound, tmp_path, as_text)
    with pytest.raises(VerifyError, match="failed numerics's tests in the verify container"):
        run_emulated(
            subjects_of(wheel, [arch])[arch], planned_kernels(CHECKOUT, [arch])[arch], image=verifier,
            fake_hip=emulator, disassembly=disassembly,
            checkout=context.checkout, jobs=context.jobs, most_failures=1, **kept,
        )  # fmt: skip
    reasons = (
        "against float64, allowed", "times the error that is allowed", "fake HIP runtime: (lds|global)-race",
        "fake HIP runtime: uninit", "waits at a barrier that it has not signalled",
    )  # fmt: skip
    assert re.search("|".join(reasons), log.read_text())


@pytest.mark.parametrize("arch", ARCHS)
def test_every_instruction_was_executed_or_has_a_reason(record, arch):
    """For other compilers than the default ROCm version's, ``verify`` also allows some without a reason."""
    coverage = record["archs"][arch]["coverage"]
    unexplained = [
        f"{kernel}+{block['offset']:#x}: {line}"
        for kernel, each in coverage.items()
        for block in each["not_executed"]
        if block["why"] == UNEXPLAINED
        for line in block["code"]
    ]
    assert unexplained == []


def test_every_reason_explains_a_block(record):
    """An unused reason could later hide an unrelated block."""
    given = {
        block["why"]
        for arch in record["archs"].values()
        for each in arch["coverage"].values()
        for block in each["not_executed"]
    }
    reasons = parse_reasons((CHECKOUT / REASONS).read_text())
    assert [each.why for each in reasons if each.why not in given] == []


def test_no_reason_explains_what_was_executed(record, release, builder, context):
    """It would hide a block that calls reach. Those marked ``alike`` cannot be told apart by their text."""
    reasons = parse_reasons((CHECKOUT / REASONS).read_text())
    texts = disassemble_wheel(release.wheel, builder, store=context.store, log=context.log("disassembly"))
    found = defaultdict(list)
    for arch, each in record["archs"].items():
        for file in sorted(texts.path.glob(f"{arch}-*.s")):
            for reason, place in executed_alike(file.read_text(), each["coverage"], reasons):
                found[reason.why].append(f"{arch}: {place}")
    marked = {each.why for each in reasons if each.alike}
    assert {why: places[:3] for why, places in found.items() if why not in marked} == {}
    assert marked <= {*found}


def test_the_suite_allows_less_than_reports_from_hardware_may_say(record):
    shown = [one for arch in record["archs"].values() for one in arch["instances"].values()]
    # A record has only the call nearest its bound of each kernel. The largest allowance in gfx950's whole
    # suite is 85.
    assert 1.5 * max(one["nearest_to_its_bound"]["allowed"] for one in shown) < MOST_ALLOWED
    assert max(one["worst_lse_error"] for one in shown) <= MOST_LSE

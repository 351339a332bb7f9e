"""The fake HIP runtime and the host library know the same HIP functions, compared by their text."""

import re
import shutil

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.pes import Dll
from wheel_builder.base.errors import EmulatorBuildError
from wheel_builder.base.store import Artifact, Store
from wheel_builder.machine_code.fake_hip.stage import (
    CORE,
    EXPORTS,
    RUNTIME,
    SOURCES,
    TARGETS,
    _inputs,
    is_built,
    refuse_unexported,
)
from wheel_builder.matrix.model import LINUX

WEAK = re.compile(r"^#pragma weak (\w+)$", re.MULTILINE)
EXPORTED = re.compile(r"^ +(hip\w+);$", re.MULTILINE)


def test_it_exports_what_the_host_library_declares_weak():
    declared = WEAK.findall((CHECKOUT / "kernels/host/launch/hip.hpp").read_text())
    exported = EXPORTED.findall(
        (CHECKOUT / "wheel_builder/machine_code/fake_hip/runtime/exports.map").read_text()
    )
    assert declared
    assert exported == declared


def test_it_expects_the_keys_shown_by_a_mask_in_dq_from_as_many_queries_on_as_the_host():
    """Of HOLD_WHAT_IS_SHOWN, whose module needs PyTorch."""
    host = (CHECKOUT / "kernels/host/calls/bwd.cpp").read_text()
    control = (CHECKOUT / "wheel_builder/machine_code/fake_hip/control.py").read_text()
    [wanted] = re.findall(r"kLeastRows = (\d+);", host)
    assert re.findall(r'"dq": (\d+)', control) == [wanted]


def test_on_windows_each_of_them_is_looked_up_in_the_dll_that_the_doctor_looks_for():
    host, package = CHECKOUT / "kernels/host/launch", CHECKOUT / "kernels/python/flash_attn_rocm"
    declared = WEAK.findall((host / "hip.hpp").read_text())
    header, source = ((host / f"windows/hip_functions.{kind}").read_text() for kind in ("hpp", "cpp"))
    assert re.findall(r"^extern decltype\(&::(\w+)\) \1;$", header, re.MULTILINE) == declared
    assert re.findall(r"^decltype\(&::(\w+)\) \1 = nullptr;$", source, re.MULTILINE) == declared
    assert re.findall(r'^  find\((\w+), "\1"\);$', source, re.MULTILINE) == declared
    [dll] = re.findall(r'#define FA_HIP_RUNTIME "(.+\.dll)"', header)
    assert f'HIP_RUNTIME = "{dll}"' in (package / "machine/windows.py").read_text()


LISTED = "{\n  global:\n    hipSetDevice;\n    fa_fake_hip_*;\n    emu_*;\n  local:\n    *;\n};\n"


def test_a_dll_that_exports_all_that_is_listed_passes():
    refuse_unexported(Dll(exports=("emu_run", "fa_fake_hip_report", "hipSetDevice")).data, LISTED)


@pytest.mark.parametrize(
    ("exports", "missing"),
    [
        (("emu_run", "fa_fake_hip_report", "hipSetDeviceFlags"), "hipSetDevice"),
        (("emu_run", "hipSetDevice"), r"fa_fake_hip_\*"),
        (("other",), r"hipSetDevice, fa_fake_hip_\*, emu_\*"),
    ],
)
def test_a_dll_that_lacks_an_export_is_refused_by_its_name(exports, missing):
    """The wheel's library would treat such a runtime as missing."""
    with pytest.raises(
        EmulatorBuildError, match=f"amdhip64_7.dll does not export {missing}, which {EXPORTS} lists"
    ):
        refuse_unexported(Dll(exports=exports).data, LISTED)


@pytest.mark.parametrize(
    "name", [f"{RUNTIME}/hip.cpp", f"{CORE}/run/wave.hpp", "kernels/generated/device/archs.inc"]
)
def test_it_is_compiled_again_after_a_change_of_what_it_is_made_from(tmp_path, name):
    """A generated table included by file name was missing from the key."""
    for source in SOURCES:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (CHECKOUT / source).is_dir() else shutil.copy2
        copy(CHECKOUT / source, tmp_path / source)
    builder = Artifact(None, {"key": "k", "facts": {"image_id": "sha256:1"}}, reused=True)
    store = Store(tmp_path / "build")
    store.get_or_make("fake_hip", _inputs(builder, TARGETS[LINUX], tmp_path), lambda _: {})
    assert is_built(builder, tmp_path, store)
    with (tmp_path / name).open("a") as file:
        file.write("// changed\n")
    assert not is_built(builder, tmp_path, store)

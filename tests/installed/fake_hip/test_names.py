"""GPUs that run another GPU's machine code get a code object under their name."""

import pytest

# The names in kernels/tables/gpus.toml whose code object is gfx1030's.
NAMES = ("gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036")
ATTEND = """
import hashlib
out = attend()
[launch] = fake_hip.report().launches
shown["arch"], shown["out"] = launch.arch, hashlib.sha256(out.numpy().tobytes()).hexdigest()
"""
# Loads a kernel of gfx1030 with header and metadata changed by the names.
LOAD = """
import ctypes, os
from pathlib import Path
library = ctypes.CDLL(None)
library.hipGetErrorString.restype = ctypes.c_char_p
files = Path(os.environ["FA_FAKE_HIP_DISASSEMBLY"]).glob("*.co")
code = next(data for data in (file.read_bytes() for file in files) if data[48] == 0x36)
def load(header, target):
    data = bytearray(code.replace(b"--gfx1030", b"--" + target))
    data[48:50] = header.to_bytes(2, "little")
    image = (ctypes.c_char * len(data)).from_buffer(data)
    error = library.hipModuleLoadData(ctypes.byref(ctypes.c_void_p()), image)
    return [error, library.hipGetErrorString(error).decode() if error else ""]
"""
pytestmark = pytest.mark.needs_archs("gfx1030")


@pytest.fixture
def own(scenario):
    """The result on the GPU whose code the others run."""
    return scenario(ATTEND, arch="gfx1030")


@pytest.mark.parametrize("name", NAMES)
def test_its_results_are_those_of_the_gpu_whose_code_it_runs(scenario, own, name):
    assert scenario(ATTEND, arch=name) == own | {"arch": name}


def test_two_devices_of_one_code_each_get_it_under_their_own_name(scenario):
    shown = scenario(
        """
first = attend()
fake_hip.select(1)
shown["same"] = bool((first == attend()).all())
report = fake_hip.report()
shown["archs"], shown["modules"] = [each.arch for each in report.launches], report.modules
""",
        arch="gfx1030,gfx1036",
    )
    assert shown == {"same": True, "archs": ["gfx1030", "gfx1036"], "modules": 2}


@pytest.mark.parametrize(
    ("header", "target", "taken"),
    [
        (0x37, b"gfx1031", True),
        (0x36, b"gfx1030", False),
        (0x36, b"gfx1031", False),
        (0x37, b"gfx1030", False),
        (0x37, b"gfx1032", False),
        (0x437, b"gfx1031", False),  # no GPU has sramecc without xnack
    ],
)
def test_the_runtime_takes_what_header_and_metadata_say_is_for_it(scenario, header, target, taken):
    shown = scenario(f'{LOAD}\nshown["error"] = load({header}, {target})', arch="gfx1031")
    error, words = shown["error"]
    assert error == (0 if taken else 209)
    if not taken:
        assert words.endswith(
            f"[fake HIP runtime: the code object has flags {header:#x} and is for "
            f"'amdgcn-amd-amdhsa--{target.decode()}'; the device is gfx1031, flags 0x37]"
        )


def test_a_failure_names_both(scenario):
    words = scenario('shown["words"] = words_of_failure()', arch="gfx1031", fail="hipModuleLoadData=209")[
        "words"
    ]
    assert "fa_fwd_fp16_d64 on device 0 (gfx1031, which runs the code of gfx1030) failed: no kernel" in words


def test_features_that_it_does_not_have_are_refused_by_the_runtime(scenario):
    words = scenario('shown["words"] = words_of_failure()', arch="gfx1031:xnack+")["words"]
    assert "failed: no kernel image is available for execution on the device" in words
    assert "the code object has flags 0x37" in words
    assert "the device is gfx1031:xnack+, flags 0x137" in words


LONG = "gfx1031" * 60  # a name has 256 bytes in HIP's struct


@pytest.mark.parametrize(
    ("name", "said"), [("gfx1250", "gfx1250"), (LONG, LONG[:256])], ids=["short", "long"]
)
def test_a_name_that_is_not_known_is_told_before_anything_is_loaded(scenario, name, said):
    shown = scenario(
        'shown["words"], shown["modules"] = words_of_failure(), fake_hip.report().modules', arch=name
    )
    assert f"this wheel has no kernels for {said}: it was built for gfx" in shown["words"]
    assert shown["modules"] == 0


def test_the_library_says_which_gpus_it_serves(scenario):
    shown = scenario(
        """
from flash_attn_rocm import is_supported
from flash_attn_rocm.library import host
shown["gpus"] = dict(host.gpus())
names = ("gfx1036", "gfx1030", "gfx942:sramecc+:xnack-", "gfx1201")
shown["codes"] = [host.code_of(name) for name in names]
shown["support"] = is_supported("gfx1036", "fp16", 64).ok
shown["padded"] = flash_attn_rocm.library.plans.padded_head_dim("gfx1036", "fp16", 80)
"""
    )
    assert {name for name, code in shown["gpus"].items() if code == "gfx1030"} == {"gfx1030", *NAMES}
    assert shown["codes"] == ["gfx1030", "gfx1030", "gfx942", "gfx1201"]
    assert shown["support"]
    assert shown["padded"] == 96

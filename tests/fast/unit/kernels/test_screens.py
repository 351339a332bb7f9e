"""The screens in docs/on-your-gpu.md match the package's output. --update writes them again.

Imports only modules that work without PyTorch, since the pipeline's tools lack it.
"""

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import CHECKOUT
from tests.installed.shared.machines import healthy
from wheel_builder.tables.archs import known_archs, served_by

PAGE = CHECKOUT / "docs/on-your-gpu.md"
BLOCK = r"(<!-- screen: {} -->\n```text\n)(.*?)(```\n)"


@pytest.fixture
def package(monkeypatch):
    """Imports a module of the package without running the package's ``__init__``."""
    stub = ModuleType("flash_attn_rocm")
    stub.__path__ = [str(CHECKOUT / "kernels/python/flash_attn_rocm")]
    for name in [name for name in sys.modules if name.partition(".")[0] == "flash_attn_rocm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flash_attn_rocm", stub)
    yield lambda name: importlib.import_module(f"flash_attn_rocm.{name}")
    for name in [name for name in sys.modules if name.startswith("flash_attn_rocm.")]:
        del sys.modules[name]


def fitting(facts):
    """A machine where everything fits, with the archs of today's wheel."""
    served = {gpu: arch for arch in known_archs() for gpu in served_by(arch)}
    return replace(healthy(facts), archs=tuple(known_archs()), served=tuple(served.items()))


def doctor(package):
    """A machine where nothing fits."""
    facts = package("diagnosis.facts")
    denied = {"state": "denied", "group": "render", "mode": "crw-rw----"}
    found = replace(
        fitting(facts),
        torch=facts.Torch("2.13.0+cu130", cuda="13.0"),
        hip_libraries=(),
        environment=((facts.OVERRIDE, "11.0.0"),),
        kfd=facts.DeviceFile("/dev/kfd", **denied),
        renders=(facts.DeviceFile("/dev/dri/renderD128", **denied),),
        user_groups=("users",),
        gpus=(),
        driver_gpus=(facts.Gpu(0, "AMD GPU", "gfx1031"),),
    )
    return package("diagnosis.doctor").text(package("diagnosis.doctor").diagnose(found))


def broken(package):
    """PyTorch's own flash attention fails, and everything else fits."""
    facts = package("diagnosis.facts")
    words = "float16: HIP error: invalid argument"
    fused = (facts.Fused("flash", "fails", words), facts.Fused("memory-efficient", "works"))
    ours = package("machine.drop_in").DropIn("ours", "2.8.3", "/venv/flash_attn")
    found = replace(fitting(facts), fused=fused, drop_ins=(ours,))
    return package("diagnosis.doctor").text(package("diagnosis.doctor").diagnose(found))


def canary(package):
    """One wrong instruction, as tests/installed/fake_hip/test_canary.py makes it."""
    remembered = package("machine.remembered")
    found = "causal: out differs by nan from the reference implementation, and 0.0089 is allowed"
    family = remembered.Family("gfx942:sramecc+:xnack-", "fp16", 64)
    path = Path("~/.cache/flash_attn_rocm/canary/5a3fd0a7c0f4bd2e9f1f5f0c9a7b2c11.json")
    return (
        "FlashAttnFallbackWarning: the PyTorch implementation answers, because no kernel serves this call: "
        + remembered.in_words(family, found, path)
    )


@pytest.mark.parametrize("screen", [doctor, broken, canary])
def test_a_screen_is_what_is_printed(package, screen, pytestconfig):
    text = PAGE.read_text()
    shown = re.search(BLOCK.format(screen.__name__), text, re.DOTALL)
    wanted = screen(package) + "\n"
    if pytestconfig.getoption("update"):
        PAGE.write_text(text.replace(shown[0], shown[1] + wanted + shown[3]))
    else:
        assert shown[2] == wanted, f"pytest {Path(__file__).relative_to(CHECKOUT)} --update"


def test_every_screen_is_compared():
    assert re.findall(r"<!-- screen: (\w+) -->", PAGE.read_text()) == ["doctor", "broken", "canary"]

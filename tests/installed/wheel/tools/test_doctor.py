"""The doctor: this machine through the command, other machines through made-up facts."""

import dataclasses
import importlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

import machines
import pytest
from flash_attn_rocm import (
    FlashAttnFallbackWarning,
    FlashAttnUnsupportedError,
    __main__,
    flash_attn_func,
    sdpa,
    set_strict,
)
from flash_attn_rocm.diagnosis import doctor as _doctor
from flash_attn_rocm.diagnosis import facts as of_machine
from flash_attn_rocm.diagnosis import survey, wheel
from flash_attn_rocm.diagnosis.facts import DXG_VARIABLE, OVERRIDE, DeviceFile, Fused, Gpu, Torch
from flash_attn_rocm.machine import driver, drop_in, override, remembered, requirements
from flash_attn_rocm.machine.drop_in import DISTRIBUTIONS, DropIn
from flash_attn_rocm.machine.requirements import Step

HEALTHY = machines.healthy(of_machine)
NO_KFD = DeviceFile("/dev/kfd", "absent")


def denied(path="/dev/kfd", group="render", mode="crw-rw----"):
    return DeviceFile(path, "denied", group, mode)


def changed(**values):
    return dataclasses.replace(HEALTHY, **values)


def beside(found):
    """The drop-ins of a machine with this one only."""
    return tuple(found if each.distribution == found.distribution else each for each in drop_in.NONE)


def advice(facts):
    steps = _doctor.diagnose(facts).advice
    return "\n".join(line for step in steps for line in (step.words, *step.commands))


def doctor(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "flash_attn_rocm", "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_this_machine():
    done = doctor()
    assert done.returncode == 1, "there is no GPU"
    assert done.stderr == ""
    for words in (
        "flash_attn_rocm ",
        "kernels for",
        "glibc",
        "PyTorch",
        "HIP runtime",
        "/dev/kfd",
        _doctor.NOT_RUN,
    ):
        assert words in done.stdout


def test_the_installed_files_are_the_wheels():
    """The package has loaded the library, with PyTorch. The wheel's build asks this without PyTorch."""
    done = doctor("--files")
    assert (done.returncode, done.stderr) == (0, "")
    assert "all files are the wheel's" in done.stdout


def test_this_machine_as_json():
    done = doctor("--json")
    assert done.returncode == 1, "there is no GPU"
    report = json.loads(done.stdout)
    assert report["facts"]["archs"]
    borrowed = ["gfx1031", "gfx1030"]
    assert (borrowed in report["facts"]["served"]) == ("gfx1030" in report["facts"]["archs"])
    assert report["facts"]["problems"] == []
    assert report["hardware_note"] == _doctor.NOT_RUN
    assert report["usable"] is True
    assert report["ready"] is False
    assert all(set(step) == {"words", "commands"} for step in report["advice"])
    assert [each["distribution"] for each in report["facts"]["drop_ins"]] == [*DISTRIBUTIONS]
    assert report["facts"]["drop_ins"][0]["kind"] == "ours"
    assert (report["facts"]["fused"], report["facts"]["wsl"]) == ([], False)
    assert report["advice"][0]["words"].startswith("this PyTorch is a CPU build")


def test_a_healthy_machine_needs_no_advice():
    report = _doctor.diagnose(HEALTHY)
    assert report.ready
    assert report.advice == ()
    text = _doctor.text(report)
    assert (
        "AMD Instinct MI300X, gfx942:sramecc+:xnack-; kernels for fp16 head_dim 64, fp16 head_dim 128" in text
    )
    assert "Kernels serve this machine." in text
    assert "not run on hardware" in text
    assert "What to do next" not in text


WINDOWS = changed(
    system="win32", machine="AMD64", os_name="Windows 11", glibc="", driver="AMD 32.0.21013.1000",
    kfd=DeviceFile("", "open"), renders=(), driver_gpus=(),
)  # fmt: skip


def test_windows_has_no_device_files():
    report = _doctor.diagnose(WINDOWS)
    assert report.ready
    assert report.advice == ()
    text = _doctor.text(report)
    assert re.search(r"^system +Windows 11, AMD64$", text, re.MULTILINE)
    assert re.search(r"^driver +AMD 32\.0\.21013\.1000$", text, re.MULTILINE)
    assert "/dev/" not in text
    assert "glibc" not in text


def test_windows_without_a_driver_of_amd():
    facts = dataclasses.replace(WINDOWS, driver="", kfd=DeviceFile("", "absent"), gpus=())
    [step] = _doctor.diagnose(facts).advice
    assert step.words.startswith("no AMD GPU can be used, because AMD's driver is not installed")


def test_pytorch_sees_no_gpu_on_windows():
    facts = dataclasses.replace(WINDOWS, gpus=())
    [step] = _doctor.diagnose(facts).advice
    assert step.words.startswith("Windows has a driver of AMD (AMD 32.0.21013.1000), and the HIP runtime")
    hidden = dataclasses.replace(facts, environment=(("HIP_VISIBLE_DEVICES", "9"),))
    [step] = _doctor.diagnose(hidden).advice
    assert step.commands == ('set "HIP_VISIBLE_DEVICES="',)


def test_commands_on_windows_are_those_of_its_shell():
    file = r"C:\Users\a b\AppData\Local\flash_attn_rocm\canary\0.json"
    facts = dataclasses.replace(WINDOWS, canary=(("fp16", file),), environment=((OVERRIDE, "11.0.0"),))
    commands = [command for step in _doctor.diagnose(facts).advice for command in step.commands]
    assert f'del "{file}"' in commands
    assert f'set "{OVERRIDE}="' in commands


def test_an_arch_without_kernels():
    reason = "this wheel has no kernels for gfx900: it was built for gfx942, gfx1100"
    report = _doctor.diagnose(
        changed(gpus=(Gpu(0, "RX Vega 64", "gfx900", (("fp16 head_dim 64", reason),)),))
    )
    assert not report.ready
    [step] = report.advice
    assert step.words.startswith(f"GPU 0: {reason}; the PyTorch implementation answers there.")
    assert "RX Vega 64, gfx900; no kernels" in _doctor.text(report)


@pytest.mark.parametrize(
    ("torch", "build"),
    [(Torch(version="2.13.0+cu128", cuda="12.8"), "CUDA 12.8"), (Torch(version="2.13.0+cpu"), "CPU")],
)
def test_another_build_of_torch_beside_an_amd_gpu(torch, build):
    facts = changed(torch=torch, gpus=(), hip_libraries=())
    assert f"this PyTorch is a {build} build, which cannot use AMD GPUs" in advice(facts)
    assert re.search(r"then install PyTorch 2\.10 or newer, (its|a) build for ROCm", advice(facts))
    text = _doctor.text(_doctor.diagnose(facts))
    assert "AMD GPU, gfx942; kernels unknown (listed by the driver, not usable by this PyTorch)" in text


@pytest.mark.parametrize("torch", [Torch(version="2.13.0+cpu"), Torch(version="2.13.0+cu128", cuda="12.8")])
def test_the_first_step_with_another_build_is_the_rocm_build(torch):
    """Also without a visible AMD GPU. The doctor used to miss it."""
    facts = changed(torch=torch, gpus=(), driver_gpus=(), kfd=NO_KFD, hip_libraries=())
    first, second = _doctor.diagnose(facts).advice
    assert first.words.startswith(
        f"this PyTorch is a {torch.build} build, which cannot use AMD GPUs; remove it"
    )
    assert "/dev/kfd is missing" in second.words
    assert "--device /dev/kfd --device /dev/dri --group-add" in second.words


@pytest.mark.parametrize(
    ("files", "groups", "command"),
    [
        ({"kfd": denied()}, ("users",), 'sudo usermod -aG render "$(id -un)"'),
        (
            {"kfd": denied(group="kfd"), "renders": (denied("/dev/dri/renderD128"),)},
            ("users", "video"),
            'sudo usermod -aG kfd,render "$(id -un)"',
        ),
        ({"kfd": denied(mode="crw-------")}, ("render",), "sudo chmod g+rw /dev/kfd"),
        ({"renders": (denied("/dev/dri/renderD129"),)}, ("render",), "sudo chmod g+rw /dev/dri/renderD129"),
        (
            {"kfd": denied(group="993")},
            ("users",),
            "sudo groupadd --gid 993 gpu993 && sudo usermod -aG gpu993",
        ),
    ],
)
def test_no_permission(files, groups, command):
    said = advice(changed(user_groups=groups, gpus=(), **files))
    assert command in said
    for file in (f for f in (files.get("kfd"), *files.get("renders", ())) if f):
        assert f"{file.path} ({file.mode}, group {file.group})" in said


def test_a_package_that_does_not_import():
    problems = (requirements.unmet_torch("2.4.0"), requirements.unmet_python((3, 9)))
    report = _doctor.diagnose(changed(problems=problems, torch=Torch(problem="old"), archs=(), gpus=()))
    assert (report.usable, report.ready) == (False, False)
    assert report.advice == problems
    text = _doctor.text(report)
    assert "none that imports" in text
    assert "flash_attn_rocm does not import on this machine." in text
    assert "PyTorch implementation answers" not in text


NAVI_22 = Gpu(0, "AMD Radeon RX 6700 XT", "gfx1031", (("fp16 head_dim 64", ""),))
NAVI_22_LISTED = {"gpus": (NAVI_22,), "driver_gpus": (Gpu(0, "AMD GPU", "gfx1031", node=1),)}
TORCH_ARCHS = ("gfx942", "gfx1030", "gfx1100")


def test_a_gpu_that_runs_the_code_of_another():
    report = _doctor.diagnose(changed(gpus=(NAVI_22,), torch_archs=(*TORCH_ARCHS, "gfx1031")))
    assert report.ready
    assert report.advice == ()
    text = _doctor.text(report)
    assert f" gfx908, gfx942, gfx1030 ({', '.join(machines.BORROWERS)} run it too), gfx1100\n" in text
    assert "RX 6700 XT, gfx1031, which runs the code of gfx1030; kernels for fp16 head_dim 64" in text


def test_a_gpu_that_pytorch_has_no_kernels_for_gets_the_override_that_works():
    report = _doctor.diagnose(changed(**NAVI_22_LISTED, torch_archs=TORCH_ARCHS))
    assert not report.ready, "what PyTorch itself does fails there"
    [step] = report.advice
    assert step.words.startswith("this PyTorch was built without kernels for gfx1031")
    assert "every GPU calls itself gfx1030, in PyTorch and here; gfx1031 runs its code" in step.words
    assert step.commands == ("export HSA_OVERRIDE_GFX_VERSION=10.3.0",)


@pytest.mark.parametrize(
    "values",
    [
        {"torch_archs": ()},
        {"torch_archs": ("gfx942", "gfx1100")},
        {"torch_archs": TORCH_ARCHS, "gpus": (NAVI_22, Gpu(1, "MI300X", "gfx942:sramecc+:xnack-"))},
    ],
    ids=["not known", "neither", "with a GPU of another arch"],
)
def test_an_override_that_would_not_help_is_not_advised(values):
    facts = changed(**{"gpus": (NAVI_22,), **values})
    assert not any(
        OVERRIDE in command for step in _doctor.diagnose(facts).advice for command in step.commands
    )


@pytest.mark.parametrize("real", ["gfx1031", "gfx1030"])
def test_an_override_with_the_arch_whose_code_the_gpu_runs_is_right(real):
    there = {"driver_gpus": (Gpu(0, "AMD GPU", real),), "environment": ((OVERRIDE, "10.3.0"),)}
    assert _doctor.diagnose(changed(**there)).advice == ()


@pytest.mark.parametrize(
    ("value", "arch"),
    [("10.3.0", "gfx1030"), ("9.0.10", "gfx90a"), ("11.5.1", "gfx1151"), ("12.0.1", "gfx1201")],
)
def test_values_of_the_override(value, arch):
    assert (override.arch_of(value), override.value_for(arch)) == (arch, value)


@pytest.mark.parametrize("value", ["", "10.3", "gfx1030", "10.3.0.0", "10.3.x", "103.0.0"])
def test_what_is_no_value_of_the_override(value):
    assert override.arch_of(value) == ""
    assert override.value_for("gfx10-3-generic") == ""


@pytest.mark.parametrize("value", ["11.0.0", ""])
def test_an_override_of_the_arch(value):
    facts = changed(environment=((OVERRIDE, value),), driver_gpus=(Gpu(0, "AMD GPU", "gfx1031"),))
    said = advice(facts)
    assert f"{OVERRIDE}={value} makes every GPU report this arch, and they are gfx1031" in said
    assert "unset HSA_OVERRIDE_GFX_VERSION" in said.splitlines()
    assert f"{OVERRIDE}  {value}".rstrip() in _doctor.text(_doctor.diagnose(facts))


def test_variables_of_this_package_are_listed_and_wrong_ones_advised_on(monkeypatch):
    for name, value in (("CANARY", "0"), ("STRICT", "maybe"), ("STRIKT", "1")):
        monkeypatch.setenv(f"FLASH_ATTN_ROCM_{name}", value)
    found = survey.collect(ask_gpus=False).environment
    report = _doctor.diagnose(changed(environment=found))
    assert dict(report.findings)["FLASH_ATTN_ROCM_CANARY"] == "0"
    assert [step.commands for step in report.advice] == [
        ("unset FLASH_ATTN_ROCM_STRICT",), ("unset FLASH_ATTN_ROCM_STRIKT",),
    ]  # fmt: skip
    assert report.advice[0].words == "FLASH_ATTN_ROCM_STRICT: expected 0, 1 or nothing, got 'maybe'"
    assert report.advice[1].words.endswith("FLASH_ATTN_ROCM_STRICT may be meant")
    assert report.ready


def test_a_driver_without_gpus():
    said = advice(changed(gpus=(), driver_gpus=()))
    assert "the driver (amdgpu of Linux 6.8.0) is loaded but lists no compute GPU" in said


def test_kernels_that_failed_at_first_use(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    family = remembered.Family("gfx942", "fp16", 64)
    file = remembered.file_of(family, "7.2")
    remembered.write(file, family, remembered.FAILED, "causal: out differs by 0.5")
    other = remembered.Family("gfx942", "bf16", 64)
    remembered.write(remembered.file_of(other, "7.2"), other, remembered.PASSED)
    facts = changed(canary=survey.collect().canary)
    report = _doctor.diagnose(facts)
    assert not report.ready
    [step] = report.advice
    assert "at first use: fp16, head_dim 64, gfx942: causal: out differs by 0.5" in step.words
    assert step.commands[-1] == f"rm {file}"


def test_gpus_that_only_the_driver_sees():
    said = advice(changed(gpus=()))
    assert "sees none: if all device files may be opened, the driver is too old for this ROCm" in said
    said = advice(changed(gpus=(), environment=(("HIP_VISIBLE_DEVICES", ""), ("ROCR_VISIBLE_DEVICES", "9"))))
    assert "HIP_VISIBLE_DEVICES=, ROCR_VISIBLE_DEVICES=9 hides them" in said
    assert "unset HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES" in said.splitlines()


def test_everything_that_is_wrong_is_named_at_once():
    facts = changed(
        problems=(requirements.unmet_python((3, 9)), requirements.unmet_glibc("2.17")),
        environment=((OVERRIDE, "11.0.0"),),
        hip_libraries=("/a/libamdhip64.so", "/b/libamdhip64.so"),
        torch=Torch(version="2.11.0+rocm6.4", rocm="6.4.1"),
        kfd=denied(),
        user_groups=("users",),
        gpus=(),
    )
    words = ("Python 3.9", "glibc 2.17", "may not open /dev/kfd", "2 HIP runtimes", "ROCm 6.4.1", "11.0.0")
    steps = [step.words for step in _doctor.diagnose(facts).advice]
    assert [sum(word in step for step in steps) for word in words] == [1] * len(words)
    assert len(steps) == len(words)


MISFITS = {
    "CUDA build": {"torch": Torch(version="2.13.0", cuda="13.0"), "gpus": ()},
    "override": {"environment": ((OVERRIDE, "10.3.0"),)},
    "denied": {"kfd": denied(), "user_groups": ()},
    "runtimes": {"hip_libraries": ("/a/libamdhip64.so", "/b/libamdhip64.so")},
}


@pytest.mark.parametrize("values", MISFITS.values(), ids=MISFITS)
def test_a_first_call_says_what_the_doctor_says(monkeypatch, qkv, values):
    facts = changed(**values)
    asked = []
    monkeypatch.setattr(survey, "collect", lambda **options: asked.append(options) or facts)
    wanted = "\n".join(requirements.numbered(_doctor.mismatches(facts)))
    assert wanted in _doctor.text(_doctor.diagnose(facts))
    with pytest.warns(FlashAttnFallbackWarning) as caught:
        flash_attn_func(*qkv)
    assert str(caught[0].message).endswith(f"Problems on this machine:\n{wanted}")
    with pytest.warns(FlashAttnFallbackWarning) as caught:
        sdpa.enable()
    assert wanted in str(caught[0].message)
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError) as raised:
        flash_attn_func(*qkv)
    assert wanted in str(raised.value)
    assert asked == [{"ask_gpus": False}] * 3


def test_a_first_call_where_there_is_no_amd_gpu_says_nothing_of_it(monkeypatch, qkv):
    facts = changed(kfd=NO_KFD, driver_gpus=(), torch=Torch(version="2.13.0+cpu"))
    monkeypatch.setattr(survey, "collect", lambda **_: facts)
    with pytest.warns(FlashAttnFallbackWarning) as caught:
        flash_attn_func(*qkv)
    assert "does not fit" not in str(caught[0].message)


def test_two_hip_runtimes():
    assert "2 HIP runtimes are mapped" in advice(
        changed(hip_libraries=("/a/libamdhip64.so", "/b/libamdhip64.so"))
    )


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({}, 0),
        ({"gpus": ()}, 1),
        ({"problems": (Step("gone"),)}, 1),
        ({"gpus": (Gpu(0, "RX Vega 64", "gfx900", (("fp16 head_dim 64", "it was not built"),)),)}, 1),
    ],
)
def test_the_status_is_0_only_if_attention_would_run_on_a_gpu(monkeypatch, capsys, values, status):
    monkeypatch.setattr(survey, "collect", lambda: changed(**values))
    assert __main__.main(["doctor"]) == status
    assert __main__.main(["doctor", "--json"]) == status
    assert '"ready": true' in capsys.readouterr().out or status


def test_another_rocm_major_version():
    facts = changed(torch=Torch(version="2.11.0+rocm6.4", rocm="6.4.1"))
    assert "install the wheel for ROCm 6, or the one for every ROCm from 6.4 on" in advice(facts)


@pytest.mark.parametrize("version", ["6.4.1", "7.2.53210", "7.14.0", "10.0.1"])
def test_the_public_wheel_fits_every_rocm(version):
    """ROCm 7.14 and 10.0 have no separate wheel."""
    facts = changed(package="0.1.0", rocm="", torch=Torch(version="2.12.0", rocm=version))
    report = _doctor.diagnose(facts)
    assert report.advice == ()
    assert dict(report.findings)["flash_attn_rocm"] == "0.1.0, for every ROCm from 6.4 on"


def test_the_public_wheel_does_not_fit_an_older_rocm():
    facts = changed(package="0.1.0", rocm="", torch=Torch(version="2.10.0", rocm="6.3.4"))
    [step] = _doctor.diagnose(facts).advice
    assert step.words.startswith(
        "PyTorch brings ROCm 6.3.4, and this wheel is for ROCm 6.4 and newer: remove"
    )
    assert step.commands == (requirements.REMOVE_TORCH, requirements.OPEN_TORCH_PAGE)


def test_a_package_that_is_no_wheel_is_not_the_public_one():
    findings = dict(_doctor.diagnose(changed(package="unknown", rocm="")).findings)
    assert findings["flash_attn_rocm"] == "unknown, built with ROCm of an unknown version"


def test_another_rocm_minor_version_is_fine():
    assert advice(changed(torch=Torch(version="2.11.0+rocm7.0", rocm="7.0.2"))) == ""


@pytest.mark.parametrize(
    ("version", "arch"),
    [
        ("90008", "gfx908"),
        ("90010", "gfx90a"),
        ("90402", "gfx942"),
        ("100300", "gfx1030"),
        ("110000", "gfx1100"),
    ],
)
def test_the_drivers_topology(tmp_path, version, arch):
    for node, value in {"0": "0", "1": version, "10": version}.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "properties").write_text(f"cpu_cores_count 8\ngfx_target_version {value}\nname\n")
    assert survey.driver_gpus(tmp_path) == (
        Gpu(0, "AMD GPU", arch, node=1), Gpu(1, "AMD GPU", arch, node=2),
    )  # fmt: skip


def test_what_a_machine_says_of_its_driver(tmp_path):
    assert survey.driver_gpus(tmp_path / "nothing") == ()
    assert driver.version(tmp_path) == ""
    assert survey.device_file(tmp_path / "kfd") == DeviceFile(str(tmp_path / "kfd"), "absent")
    module = tmp_path / "sys/module/amdgpu"
    module.mkdir(parents=True)
    assert driver.version(tmp_path) == f"amdgpu of Linux {platform.release()}"
    (module / "version").write_text("6.12.12\n")
    assert driver.version(tmp_path) == "amdgpu 6.12.12"


def made_up(root, release=""):
    for folder in ("dev/dri", "proc/self", "proc/sys/kernel"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "proc/self/maps").touch()
    (root / "proc/sys/kernel/osrelease").write_text(release)


WSL = "6.6.87.2-microsoft-standard-WSL2\n"
ON_WSL = {"wsl": True, "gpus": (), "driver_gpus": (), "driver": "", "renders": ()}
DXG = DeviceFile("/dev/dxg", "open", "root", "crw-rw-rw-")


def test_wsl_has_dxg_and_not_kfd(tmp_path):
    made_up(tmp_path, WSL)
    facts = survey.collect(tmp_path, ask_gpus=False)
    assert (facts.wsl, facts.kfd) == (True, DeviceFile(str(tmp_path / "dev/dxg"), "absent"))
    (tmp_path / "dev/dxg").touch()
    (tmp_path / "dev/kfd").touch()
    assert survey.collect(tmp_path, ask_gpus=False).kfd.path == str(tmp_path / "dev/dxg")
    made_up(tmp_path, "6.8.0-31-generic\n")
    facts = survey.collect(tmp_path, ask_gpus=False)
    assert (facts.wsl, facts.kfd.path) == (False, str(tmp_path / "dev/kfd"))


def test_wsl_without_a_gpu_of_windows():
    said = advice(changed(**ON_WSL, kfd=DeviceFile("/dev/dxg", "absent")))
    assert "/dev/dxg is missing; WSL2 reaches the GPUs of Windows through it" in said
    assert "--device /dev/dxg --volume /usr/lib/wsl:/usr/lib/wsl" in said
    assert "wsl.exe --shutdown" in said.splitlines()
    assert "kfd" not in said
    assert "modprobe" not in said


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ((), "export HSA_ENABLE_DXG_DETECTION=1"),
        (((DXG_VARIABLE, "1"),), "ldconfig -p | grep rocdxg"),
        ((("HIP_VISIBLE_DEVICES", "7"), (DXG_VARIABLE, "1")), "unset HIP_VISIBLE_DEVICES"),
    ],
)
def test_wsl_where_pytorch_sees_no_gpu(environment, command):
    [step] = _doctor.diagnose(changed(**ON_WSL, kfd=DXG, environment=environment)).advice
    assert step.commands == (command,)
    assert step.words.startswith("WSL2 has /dev/dxg, and ")


def test_wsl_on_which_everything_fits():
    facts = changed(**{**ON_WSL, "gpus": HEALTHY.gpus}, kfd=DXG)
    report = _doctor.diagnose(facts)
    assert report.ready
    assert report.advice == ()
    text = _doctor.text(report)
    assert "Ubuntu 24.04.3 LTS on WSL2, linux x86_64" in text
    assert re.search(r"^driver +that of Windows, not shown here$", text, re.MULTILINE)
    assert re.search(r"^librocdxg +not found in the usual folders$", text, re.MULTILINE)
    text = _doctor.text(_doctor.diagnose(changed(rocdxg="librocdxg.so.1.1.0", wsl=True)))
    assert re.search(r"^librocdxg +librocdxg.so.1.1.0$", text, re.MULTILINE)


def test_a_new_driver_of_windows_or_librocdxg_is_another_driver_on_wsl(tmp_path):
    """The check at first use took all drivers of Windows as equal, so an update did not repeat it."""
    made_up(tmp_path, WSL)
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    assert driver.version(tmp_path) == ""
    seen = []
    for name in ("u0412345.inf_amd64_1f", "u0423456.inf_amd64_2e"):
        (tmp_path / "usr/lib/wsl/drivers" / name).mkdir(parents=True)
        seen.append(driver.version(tmp_path))
    form = r"that of Windows \(drivers [0-9a-f]{12}\), no librocdxg"
    assert all(re.fullmatch(form, one) for one in seen)
    library = tmp_path / "opt/rocm/lib/librocdxg.so.1.1.0"
    library.parent.mkdir(parents=True)
    library.touch()
    library.with_name("librocdxg.so").symlink_to(library.name)
    seen.append(driver.version(tmp_path))
    assert seen[2] == seen[1].replace("no librocdxg", library.name)
    assert len(set(seen)) == 3
    assert survey.collect(tmp_path, ask_gpus=False).rocdxg == library.name


def flash_attn(folder, text):
    (folder / "flash_attn").mkdir()
    (folder / "flash_attn/__init__.py").touch()
    (folder / "flash_attn/flash_attn_interface.py").write_text(text)


def only_here(monkeypatch, folder):
    """Drop-ins are found in this folder only, and are not yet imported."""
    names = "flash_attn", "flash_attn_interface.py", "sageattention"
    path = [entry for entry in sys.path if not any((Path(entry) / name).exists() for name in names)]
    monkeypatch.setattr(sys, "path", [str(folder), *path])
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()


UPSTREAM = "import flash_attn_2_cuda as flash_attn_gpu\n"
SHIM = "from flash_attn_rocm import flash_attn_func\n"


@pytest.mark.parametrize(
    ("text", "version", "kind"),
    [
        (SHIM, "2.8.3", "ours"),
        (SHIM, "2.8.3+rocm1", "ours"),
        (UPSTREAM, "2.8.3", "another"),
        (UPSTREAM, "", "another"),
        (None, "2.8.3", "damaged"),
        (None, "", "none"),
    ],
)
def test_which_flash_attn_is_told_by_what_it_holds(tmp_path, monkeypatch, text, version, kind):
    if text:
        flash_attn(tmp_path, text)
    only_here(monkeypatch, tmp_path)
    monkeypatch.setattr(drop_in, "_version", lambda _: version)
    folder = str(tmp_path / "flash_attn") if text else ""
    assert drop_in.find() == DropIn(kind, version, folder)
    assert "flash_attn" not in sys.modules


def test_this_projects_flash_attn_is_its_own():
    """In the verify container and elsewhere, shim/ is found."""
    assert drop_in.find().kind == "ours"


def test_flash_attn_4_alone_is_no_flash_attn(tmp_path, monkeypatch):
    (tmp_path / "flash_attn/cute").mkdir(parents=True)
    only_here(monkeypatch, tmp_path)
    monkeypatch.setattr(drop_in, "_version", lambda _: "")
    assert drop_in.find() == DropIn("none")


THREE = "flash-attn-3"


@pytest.mark.parametrize(
    ("text", "version", "kind"),
    [
        ("# on top of flash_attn_rocm\n", "3.0.0", "ours"),
        ("import flash_attn_3._C\n", "3.0.0b1", "another"),
        (None, "3.0.0", "damaged"),
        (None, "", "none"),
    ],
)
def test_which_flash_attn_3_is_told_by_what_its_one_file_holds(tmp_path, monkeypatch, text, version, kind):
    file = tmp_path / "flash_attn_interface.py"
    if text:
        file.write_text(text)
    only_here(monkeypatch, tmp_path)
    monkeypatch.setattr(drop_in, "_version", lambda name: version if name == THREE else "2.8.3")
    assert drop_in.find(THREE) == DropIn(kind, version, str(file) if text else "", THREE)
    assert "flash_attn_interface" not in sys.modules


@pytest.mark.parametrize(
    ("found", "finding", "step"),
    [
        (DropIn(distribution=THREE), None, ""),
        (
            DropIn("ours", "3.0.0", "/v/flash_attn_interface.py", THREE),
            "3.0.0, of this project: libraries that import flash_attn_interface get these kernels", "",
        ),
        (
            DropIn("another", "3.0.0b1", "/v/flash_attn_interface.py", THREE),
            "3.0.0b1, not of this project, in /v/flash_attn_interface.py",
            "do not get these kernels: /v/flash_attn_interface.py is flash-attn-3 3.0.0b1 of another",
        ),
        (
            DropIn("damaged", "3.0.0", "", THREE), "3.0.0, without its module flash_attn_interface",
            "flash-attn-3 3.0.0 is installed without its module flash_attn_interface",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_flash_attn_3(found, finding, step):
    report = _doctor.diagnose(changed(drop_ins=beside(found)))
    assert dict(report.findings).get(THREE) == finding
    assert dict(report.findings)["flash-attn"].startswith(
        "not installed; libraries that import flash_attn do"
    )
    assert bool(report.advice) == bool(step)
    if step:
        assert step in report.advice[0].words
        assert "then install flash-attn-3 from this wheel's index" in report.advice[0].words
        assert report.advice[0].commands == ("python -m pip uninstall --yes flash-attn-3",)


SAGE = "sageattention"


@pytest.mark.parametrize(
    ("text", "version", "kind"),
    [
        ("from flash_attn_rocm.interfaces import EXPLAINED\n", "2.2.0", "ours"),
        ("from .triton.quant_per_block import per_block_int8\n", "2.2.0", "another"),
        ("from .triton.quant_per_block import per_block_int8\n", "2.2.0+cu128torch2.7.1", "another"),
        (None, "2.2.0", "damaged"),
        (None, "", "none"),
    ],
)
def test_which_sageattention_is_told_by_its_core(tmp_path, monkeypatch, text, version, kind):
    folder = tmp_path / SAGE
    if text:
        folder.mkdir()
        (folder / "__init__.py").write_text("from .core import sageattn\n")
        (folder / "core.py").write_text(text)
    only_here(monkeypatch, tmp_path)
    monkeypatch.setattr(drop_in, "_version", lambda name: version if name == SAGE else "2.8.3")
    assert drop_in.find(SAGE) == DropIn(kind, version, str(folder) if text else "", SAGE)
    assert SAGE not in sys.modules


@pytest.mark.parametrize(
    ("found", "finding", "step"),
    [
        (DropIn(distribution=SAGE), None, ""),
        (
            DropIn("ours", "2.2.0", "/v/sageattention", SAGE),
            (
                "2.2.0, of this project: libraries that import sageattention get these kernels, in 8 bits "
                "for long calls on some GPUs"
            ), "",
        ),
        (
            DropIn("another", "2.2.0+cu128", "/v/sageattention", SAGE),
            "2.2.0+cu128, not of this project, in /v/sageattention",
            "do not get these kernels: /v/sageattention is sageattention 2.2.0+cu128 of another project",
        ),
        (
            DropIn("damaged", "2.2.0", "", SAGE), "2.2.0, without its module sageattention",
            "sageattention 2.2.0 is installed without its module sageattention",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_sageattention(found, finding, step):
    report = _doctor.diagnose(changed(drop_ins=beside(found)))
    assert dict(report.findings).get(SAGE) == finding
    assert bool(report.advice) == bool(step)
    if step:
        assert step in report.advice[0].words
        assert report.advice[0].commands == ("python -m pip uninstall --yes sageattention",)


DROP_INS = {
    "none": (DropIn(), "not installed; libraries that import flash_attn do not find these kernels", ""),
    "ours": (DropIn("ours", "2.8.3", "/v/flash_attn"), "2.8.3, of this project", ""),
    "upstream": (
        DropIn("another", "2.8.3", "/v/flash_attn"),
        "2.8.3, not of this project, in /v/flash_attn",
        "libraries that import flash_attn do not get these kernels: /v/flash_attn is flash-attn 2.8.3 of",
    ),
    "a checkout": (DropIn("another", "", "/src/flash_attn"), "of unknown version, not of this project", ""),
    "damaged": (
        DropIn("damaged", "2.8.3"),
        "2.8.3, without its module flash_attn",
        "flash-attn 2.8.3 is installed without its module flash_attn",
    ),
}


@pytest.mark.parametrize("name", DROP_INS)
def test_what_is_said_of_flash_attn(name):
    found, finding, step = DROP_INS[name]
    report = _doctor.diagnose(changed(drop_ins=beside(found)))
    assert finding in dict(report.findings)["flash-attn"]
    assert report.ready
    assert bool(report.advice) == bool(step)
    if step:
        assert step in report.advice[0].words
        assert report.advice[0].commands == ("python -m pip uninstall --yes flash-attn",)


BROKEN_FLASH = (
    Fused("flash", "fails", "float16: HIP error: invalid argument"),
    Fused("memory-efficient", "absent"),
)


def typed(command):
    """The output of a shell with this python."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        check=True, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip


def test_pytorchs_own_attention_that_fails():
    report = _doctor.diagnose(changed(fused=BROKEN_FLASH))
    assert report.ready, "ours works"
    [step] = report.advice
    assert (
        "does not work on GPU 0 with this build: flash (float16: HIP error: invalid argument). Put "
        in step.words
    )
    assert "flash_attn_rocm.sdpa.enable(replace_fused=True) at the start of your program" in step.words
    assert dict(report.findings)["PyTorch's SDPA"] == (
        "flash: fails (float16: HIP error: invalid argument); memory-efficient: not for this GPU"
    )
    assert typed(step.commands[0]) == "False\n", "there is no GPU here"


def test_pytorchs_own_attention_that_fails_where_no_kernel_serves():
    gpu = Gpu(0, "RX Vega 64", "gfx900", (("fp16 head_dim 64", "it was not built"),))
    steps = _doctor.diagnose(changed(fused=BROKEN_FLASH, gpus=(gpu,))).advice
    assert "to use its plain formula instead" in steps[-1].words
    assert typed(steps[-1].commands[0]) == ""


def test_pytorchs_own_attention_that_works():
    fused = (Fused("flash", "works"), Fused("memory-efficient", "works"))
    report = _doctor.diagnose(changed(fused=fused))
    assert report.advice == ()
    assert "flash: works; memory-efficient: works" in _doctor.text(report)


def test_pytorchs_own_attention_is_looked_at_only_where_pytorch_sees_a_gpu(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(survey.fused, "look", lambda: asked.append(1) or BROKEN_FLASH)
    assert survey.collect().fused == ()
    monkeypatch.setattr(survey, "_torch_gpus", lambda _torch: HEALTHY.gpus)
    assert survey.collect(ask_gpus=False).fused == ()
    assert not asked
    assert survey.collect().fused == BROKEN_FLASH


@pytest.mark.parametrize("state", ["open", "denied"])
def test_a_device_file(tmp_path, monkeypatch, state):
    (tmp_path / "kfd").touch(mode=0o640)
    monkeypatch.setattr(survey.os, "access", lambda path, how: state == "open")
    found = survey.device_file(tmp_path / "kfd")
    assert (found.state, found.mode) == (state, "-rw-r-----")
    assert found.group in survey._user_groups()


def test_the_facts_of_a_made_up_machine(tmp_path, monkeypatch):
    """All reads are below its root."""
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/1"
    for folder in (node, tmp_path / "dev/dri", tmp_path / "proc/self"):
        folder.mkdir(parents=True)
    (node / "properties").write_text("gfx_target_version 90000\n")
    (tmp_path / "dev/kfd").touch()
    (tmp_path / "dev/dri/renderD128").touch()
    two = "1-2 r-xp 0 08:01 1 /a/libamdhip64.so.7\n1-2 r-xp 0 08:01 1 /b/libamdhip64.so.6\n"
    (tmp_path / "proc/self/maps").write_text(two)
    monkeypatch.setenv(OVERRIDE, "10.3.0")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")
    facts = survey.collect(tmp_path)
    assert [gpu.arch for gpu in facts.driver_gpus] == ["gfx900"]
    assert (facts.kfd.state, [file.state for file in facts.renders]) == ("open", ["open"])
    said = advice(facts)
    for words in (
        "a CPU build, which cannot",
        "2 HIP runtimes",
        "HSA_OVERRIDE_GFX_VERSION=10.3.0",
        "GPU 0: ",
    ):
        assert words in said


def test_the_mapped_runtime_is_named_once():
    maps = (
        "7f00-7f01 r-xp 00000000 08:01 12 /opt/my rocm/lib/libamdhip64.so.7\n"
        "7f01-7f02 rw-p 00000000 08:01 12 /opt/my rocm/lib/libamdhip64.so.7\n"
        "7f02-7f03 rw-p 00000000 00:00 0\n"
    )
    assert survey.hip_libraries(maps) == ("/opt/my rocm/lib/libamdhip64.so.7",)


def test_kernels_of_a_gpu_come_from_the_registry():
    reasons = dict(wheel.gpu_reasons("gfx900"))
    assert reasons
    assert all("no kernels for gfx900" in reason for reason in reasons.values())


@pytest.mark.parametrize(
    ("torch", "line"),
    [
        (HEALTHY.torch, "with PyTorch 2.13.0+rocm7.2, a ROCm 7.2.53210 build"),
        (
            Torch(version="2.13.0+cpu"),
            "with PyTorch 2.13.0+cpu, a CPU build, which cannot use an AMD GPU",
        ),
        (Torch(problem="gone"), "without a PyTorch that imports"),
    ],
)
def test_the_first_line_says_which_pytorch_is_there(torch, line):
    first = _doctor.text(_doctor.diagnose(changed(torch=torch))).splitlines()[0]
    assert first == f"flash_attn_rocm 0.1.0+rocm7.2 {line}"


def unimportable(load):
    with pytest.raises(requirements.RequirementError) as caught:
        requirements.import_torch(load)
    return caught.value.steps


def broken():
    message = "libsomething.so.1: cannot open shared object file"
    raise OSError(message)


def no_torch():
    message = "No module named 'torch'"
    raise ModuleNotFoundError(message, name="torch")


EVERY_ADVICE = {
    "no torch": {"problems": unimportable(no_torch), "torch": Torch(problem="gone")},
    "broken torch": {"problems": unimportable(broken), "torch": Torch(problem="broken")},
    "old torch": {"problems": (requirements.unmet_torch("2.4.0"),)},
    "old Python": {"problems": (requirements.unmet_python((3, 9)),)},
    "old glibc": {"problems": (requirements.unmet_glibc("2.17"),)},
    "another platform": {"problems": (requirements.unmet_platform("darwin", "arm64"),)},
    "damaged": {"problems": (Step("libflash_attn_rocm.so is missing", (requirements.REMOVE,)),)},
    "CPU torch": {"torch": Torch(version="2.13.0+cpu"), "gpus": ()},
    "CUDA torch": {"torch": Torch(version="2.13.0", cuda="13.0"), "gpus": ()},
    "denied": {"kfd": denied(), "user_groups": ("users",)},
    "denied to a nameless group": {"kfd": denied(group="993"), "user_groups": ("users",)},
    "denied in the groups": {"kfd": denied(), "user_groups": ("render", "video")},
    "no driver": {"kfd": NO_KFD, "gpus": (), "driver_gpus": ()},
    "a driver without GPUs": {"gpus": (), "driver_gpus": ()},
    "hidden GPUs": {"gpus": (), "environment": (("HIP_VISIBLE_DEVICES", "7"),)},
    "unseen GPUs": {"gpus": ()},
    "override": {"environment": ((OVERRIDE, "10.3.0"),)},
    "canary": {"canary": (("fp16, head_dim 64, gfx942: out differs", "/home/a b/x.json"),)},
    "two runtimes": {"hip_libraries": ("/a/libamdhip64.so", "/b/libamdhip64.so")},
    "another ROCm": {"torch": Torch(version="2.11.0+rocm6.4", rocm="6.4.1")},
    "upstream's flash-attn": {"drop_ins": beside(DropIn("another", "2.8.3", "/v/flash_attn"))},
    "no module": {"drop_ins": beside(DropIn("damaged", "2.8.3"))},
    "upstream's flash-attn-3": {"drop_ins": beside(DropIn("another", "3.0.0", "/v/a.py", "flash-attn-3"))},
    "upstream's sageattention": {"drop_ins": beside(DropIn("another", "1.0.6", "/v/sage", "sageattention"))},
    "broken SDPA": {"fused": BROKEN_FLASH},
    "broken SDPA, no kernel": {"fused": BROKEN_FLASH, "gpus": ()},
    "WSL2 without GPU": {**ON_WSL, "kfd": DeviceFile("/dev/dxg", "absent")},
    "WSL2, denied": {**ON_WSL, "kfd": denied("/dev/dxg"), "user_groups": ()},
    "WSL2 unseen": {**ON_WSL, "kfd": DXG},
    "WSL2 without librocdxg": {**ON_WSL, "kfd": DXG, "environment": ((DXG_VARIABLE, "1"),)},
    "PyTorch without kernels": {**NAVI_22_LISTED, "torch_archs": TORCH_ARCHS},
    "PyTorch of another family": {"torch_archs": ("gfx1100",)},
    "PyTorch without a device's package": {"torch_archs": ("gfx1100",), "torch_devices": ("gfx942",)},
    "two GPUs": {"gpus": (*HEALTHY.gpus, dataclasses.replace(NAVI_22, index=1)), "torch_archs": ("gfx942",)},
    "override of a node": {"environment": ((f"{OVERRIDE}_0", "10.3.0"),)},
    "files of root": {"kfd": denied(group="root"), "user_groups": ("users",)},
    "own variables": {"environment": (("FLASH_ATTN_ROCM_STRIKT", "1"),)},
    "no kernel": {"gpus": (Gpu(0, "RX Vega 64", "gfx900", (("fp16 head_dim 64", "it was not built"),)),)},
}
PROGRAMS = {"rm", "sudo", "python", "python3", "docker", "unset", "export", "wsl.exe", "ldconfig"}


@pytest.mark.parametrize("values", EVERY_ADVICE.values(), ids=EVERY_ADVICE)
def test_every_advice_has_a_command_that_can_be_pasted(values):
    """On a separate line, complete, and accepted by a shell. Words hold no other command."""
    report = _doctor.diagnose(changed(**values))
    assert report.advice
    lines = [line.strip() for line in _doctor.text(report).splitlines()]
    for step in report.advice:
        assert step.commands
        for command in step.commands:
            assert command in lines
            assert not set("<>…\n") & set(command)
            subprocess.run(["bash", "-n", "-c", command], check=True)
            assert command.split()[0] in PROGRAMS
        assert not re.search(r"\bpip \w+|\bsudo |docker run|<[^>]*>|…", step.words)


PARTS = ("_denied_step", "_absent_step", "_unseen_on_wsl_step")


def test_every_advice_was_asked_for():
    """All kinds are listed: add a new one above."""
    makers = [name for name in vars(_doctor) if name.endswith(("_step", "_steps")) and name not in PARTS]
    said = {name: set() for name in makers}
    for values in EVERY_ADVICE.values():
        facts = changed(**values)
        for name in makers:
            if name == "_unseen_step" and facts.gpus:
                continue
            if name == "_drop_in_step":
                said[name] |= set(filter(None, map(_doctor._drop_in_step, facts.drop_ins)))
                continue
            found = getattr(_doctor, name)(facts)
            said[name] |= set(found if isinstance(found, list) else filter(None, [found]))
    assert all(said.values()), said


def test_the_options_for_a_container_are_words_for_a_shell():
    values = [word for word in shlex.split(_doctor.CONTAINER_OPTIONS) if not word.startswith("--")]
    assert values == [
        "/dev/kfd", "/dev/dri", "$(stat -c %g /dev/kfd)", "$(stat -c %g /dev/dri/renderD128)",
    ]  # fmt: skip

"""The doctor: this machine through the command, other machines through made-up facts."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys

import pytest
from flash_attn_rocm import _doctor, _facts, _requirements
from flash_attn_rocm._facts import Facts, Gpu, Torch

HEALTHY = Facts(
    system="linux",
    machine="x86_64",
    os_name="Debian GNU/Linux 12",
    glibc="2.36",
    python="3.11.2",
    package="0.1.0+rocm7.2",
    rocm="7.2",
    problem="",
    torch=Torch(version="2.13.0+rocm7.2", rocm="7.2.53210"),
    hip_libraries=("/venv/torch/lib/libamdhip64.so",),
    kfd="open",
    user_groups=("users", "render"),
    archs=("gfx942", "gfx1100"),
    gpus=(
        Gpu(
            0,
            "AMD Instinct MI300X",
            "gfx942:sramecc+:xnack-",
            (("fp16 head_dim 64", ""), ("fp16 head_dim 128", "")),
        ),
    ),
    driver_gpus=(Gpu(0, "AMD GPU", "gfx942"),),
)


def changed(**values):
    return dataclasses.replace(HEALTHY, **values)


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
    assert done.returncode == 0, done.stderr
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


def test_this_machine_as_json():
    done = doctor("--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["facts"]["archs"]
    assert report["facts"]["problem"] == ""
    assert report["hardware_note"] == _doctor.NOT_RUN
    assert report["usable"] is True
    assert isinstance(report["ready"], bool)
    assert all(set(step) == {"words", "commands"} for step in report["advice"])


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


def test_an_arch_without_kernels():
    reason = "this wheel has no kernels for gfx1201: it was built for gfx942, gfx1100"
    report = _doctor.diagnose(changed(gpus=(Gpu(0, "RX 9070", "gfx1201", (("fp16 head_dim 64", reason),)),)))
    assert not report.ready
    assert [step.words for step in report.advice] == [
        f"GPU 0: {reason}; the PyTorch implementation answers there"
    ]
    assert "RX 9070, gfx1201; no kernels" in _doctor.text(report)


@pytest.mark.parametrize(
    ("torch", "build"),
    [(Torch(version="2.13.0+cu128", cuda="12.8"), "CUDA 12.8"), (Torch(version="2.13.0+cpu"), "CPU")],
)
def test_another_build_of_torch_beside_an_amd_gpu(torch, build):
    facts = changed(torch=torch, gpus=(), hip_libraries=())
    assert f"this PyTorch is a {build} build, which cannot use AMD GPUs" in advice(facts)
    assert "then install PyTorch 2.10 or newer, its build for ROCm" in advice(facts)
    text = _doctor.text(_doctor.diagnose(facts))
    assert "AMD GPU, gfx942; kernels unknown (listed by the driver, not usable by this PyTorch)" in text


def test_a_cpu_build_where_there_is_no_amd_gpu_is_fine():
    facts = changed(
        torch=Torch(version="2.13.0+cpu"), gpus=(), driver_gpus=(), kfd="absent", hip_libraries=()
    )
    assert "CPU build" not in advice(facts)
    assert "/dev/kfd is not there" in advice(facts)
    assert "--device /dev/kfd --device /dev/dri --group-add" in advice(facts)


@pytest.mark.parametrize(
    ("groups", "named"),
    [(("users",), "render,video"), (("video",), "render"), (("render", "video"), "render,video")],
)
def test_no_permission(groups, named):
    assert f'sudo usermod -aG {named} "$(id -un)"' in advice(
        changed(kfd="denied", user_groups=groups, gpus=())
    )


def test_a_package_that_does_not_import():
    problem = "flash_attn_rocm needs PyTorch, which is not installed\n  next: install it"
    report = _doctor.diagnose(changed(problem=problem, torch=Torch(problem=problem), archs=(), gpus=()))
    assert (report.usable, report.ready) == (False, False)
    assert [step.words for step in report.advice] == [problem]
    text = _doctor.text(report)
    assert "none that imports" in text
    assert "nothing of it answers" in text
    assert "PyTorch implementation answers" not in text


def test_two_hip_runtimes():
    assert "2 HIP runtimes are mapped" in advice(
        changed(hip_libraries=("/a/libamdhip64.so", "/b/libamdhip64.so"))
    )


def test_another_rocm_major_version():
    facts = changed(torch=Torch(version="2.11.0+rocm6.4", rocm="6.4.1"))
    assert "install the wheel for ROCm 6" in advice(facts)


def test_another_rocm_minor_version_is_fine():
    assert advice(changed(torch=Torch(version="2.11.0+rocm7.0", rocm="7.0.2"))) == ""


@pytest.mark.parametrize(
    ("glibc", "bad"), [("2.27", True), ("2.28", False), ("", False), ("2.9", True), ("3.0", False)]
)
def test_old_glibc(glibc, bad):
    assert ("is too old" in advice(changed(glibc=glibc))) == bad


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
    assert _facts.driver_gpus(tmp_path) == (Gpu(0, "AMD GPU", arch), Gpu(1, "AMD GPU", arch))


def test_no_driver(tmp_path):
    assert _facts.driver_gpus(tmp_path / "nothing") == ()
    assert _facts.kfd_state(tmp_path / "kfd") == "absent"


def test_a_driver_that_may_be_used(tmp_path):
    (tmp_path / "kfd").touch()
    assert _facts.kfd_state(tmp_path / "kfd") == "open"


def test_the_mapped_runtime_is_named_once():
    maps = (
        "7f00-7f01 r-xp 00000000 08:01 12 /opt/my rocm/lib/libamdhip64.so.7\n"
        "7f01-7f02 rw-p 00000000 08:01 12 /opt/my rocm/lib/libamdhip64.so.7\n"
        "7f02-7f03 rw-p 00000000 00:00 0\n"
    )
    assert _facts.hip_libraries(maps) == ("/opt/my rocm/lib/libamdhip64.so.7",)


def test_kernels_of_a_gpu_come_from_the_registry():
    reasons = dict(_facts.gpu_reasons("gfx1201"))
    assert reasons
    assert all("no kernels for gfx1201" in reason for reason in reasons.values())


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


EVERY_ADVICE = {
    "no torch": {"problem": str(ImportError(_requirements.install_torch())), "torch": Torch(problem="gone")},
    "CPU torch": {"torch": Torch(version="2.13.0+cpu"), "gpus": ()},
    "CUDA torch": {"torch": Torch(version="2.13.0", cuda="13.0"), "gpus": ()},
    "denied": {"kfd": "denied", "user_groups": ("users",)},
    "denied in the groups": {"kfd": "denied", "user_groups": ("render", "video")},
    "no driver": {"kfd": "absent", "gpus": (), "driver_gpus": ()},
    "two runtimes": {"hip_libraries": ("/a/libamdhip64.so", "/b/libamdhip64.so")},
    "another ROCm": {"torch": Torch(version="2.11.0+rocm6.4", rocm="6.4.1")},
    "old glibc": {"glibc": "2.27"},
    "no kernel": {"gpus": (Gpu(0, "RX 9070", "gfx1201", (("fp16 head_dim 64", "it was not built"),)),)},
}


@pytest.mark.parametrize("values", EVERY_ADVICE.values(), ids=EVERY_ADVICE)
def test_every_command_can_be_pasted(values):
    """On a line of its own, nothing left to fill in, and a shell takes it; words hold no other command."""
    report = _doctor.diagnose(changed(**values))
    assert report.advice
    lines = [line.strip() for line in _doctor.text(report).splitlines()]
    for step in report.advice:
        for command in step.commands:
            assert command in lines
            assert not set("<>…\n") & set(command)
            subprocess.run(["bash", "-n", "-c", command], check=True)
            assert command.split()[0] in {"sudo", "python"}
        assert not re.search(r"\bpip \w+|\bsudo |docker run|<[^>]*>|…", step.words)


def test_every_advice_was_asked_for():
    """Of each kind: a new one has to be added above."""
    makers = [name for name in vars(_doctor) if name.endswith("_advice") and name != "_advice"]
    said = {name: set() for name in makers}
    for values in EVERY_ADVICE.values():
        facts = changed(**values)
        for name in makers:
            maker = getattr(_doctor, name)
            found = maker(facts.glibc) if name == "_glibc_advice" else maker(facts)
            said[name] |= set(found if isinstance(found, list) else filter(None, [found]))
    assert all(said.values()), said


def test_the_options_for_a_container_are_words_for_a_shell():
    values = [word for word in shlex.split(_doctor.CONTAINER_OPTIONS) if not word.startswith("--")]
    assert values == [
        "/dev/kfd", "/dev/dri", "$(stat -c %g /dev/kfd)", "$(stat -c %g /dev/dri/renderD128)",
    ]  # fmt: skip

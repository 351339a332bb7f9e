"""Upstream's extension module: the PyTorch it is built with, refusals, and linking it."""

import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tools.made.matrices import with_examples
from wheel_builder.base.errors import CommandFailedError, UpstreamError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Artifact, Store
from wheel_builder.cli.commands.extras import upstream as command
from wheel_builder.cli.main import main
from wheel_builder.extras.upstream import extension, in_container
from wheel_builder.extras.upstream.extension import (
    KERNEL,
    link_extension,
    make_host_object,
    make_wheel,
    refusal,
    refuse_incomplete,
)
from wheel_builder.extras.upstream.stages import OBJECT, Workshop
from wheel_builder.extras.upstream.torch import (
    HEADERS,
    LINKED,
    Torch,
    arguments_of,
    extract,
    fetch_torch,
    refuse_other_rocm,
)
from wheel_builder.files.binaries.elf import Elf, Undefined
from wheel_builder.images.hostenv import HostSettings

MATRIX = with_examples()
ROCM = {rocm.version: rocm for rocm in MATRIX.rocm}
PYTHON = {
    "program": "python3.11",
    "tag": "cp311",
    "include": "/py",
    "suffix": ".cpython-311-x86_64-linux-gnu.so",
}
TORCH = "torch-2.13.0+rocm7.2-cp311-cp311-manylinux_2_28_x86_64.whl"
WHOLE = {
    "torch/version.py": "hip: Optional[str] = '7.2.26015'\n",
    "torch/include/ATen/hip/HIPContext.h": "",
    "torch/utils/hipify/hipify_python.py": "",
    **{f"torch/lib/lib{name}.so": "library" for name in LINKED},
}


def artifact(path, key="key", **facts):
    return Artifact(path, {"key": key, "facts": facts, "files": {}}, reused=False)


def torch_wheel(folder, files, name=TORCH):
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return folder / name


@pytest.fixture
def shop(tmp_path):
    image = artifact(tmp_path, image_id="sha256:1", ref="extension", python=PYTHON)
    return lambda run: Workshop(image, "/llvm", Store(tmp_path / "build"), tmp_path / "log", run)


def folder_of(argv, target):
    """A container's mount at ``target``."""
    [found] = [str(part) for part in argv if f"target={target}" in str(part)]
    return Path(found.split("source=")[1].split(",")[0])


def test_without_an_index_the_host_part_is_refused_in_words():
    said = refusal(torch_index="", pattern="*", rocm="7.2")
    assert said.startswith(
        "not built: upstream's extension module flash_attn_2_cuda and its wheel; its host part is "
    )
    assert "give --torch-index an index or a folder of PyTorch's wheels for ROCm 7.2" in said
    assert said.endswith(
        "Built: the library of kernels, gated and linked, which every Python and PyTorch can share"
    )


def test_a_part_of_the_kernels_makes_no_extension():
    assert "it takes all kernels, not only '*d128*'" in refusal(
        torch_index="/x", pattern="*d128*", rocm="7.2"
    )
    assert refusal(torch_index="/x", pattern="*", rocm="7.2") == ""


@pytest.mark.parametrize(
    ("rocm", "hip", "words"),
    [
        ("7.2", "", "found torch.whl, which is built without ROCm"),
        ("7.2", "7.1.25424", "found torch.whl, built for ROCm 7.1.25424"),
        ("7.2", "7.20.1", "built for ROCm 7.20.1"),
        ("6.4", "7.2.26015", "built for ROCm 7.2.26015"),
    ],
)
def test_another_pytorch_is_refused_in_words(rocm, hip, words):
    with pytest.raises(UpstreamError) as failure:
        refuse_other_rocm("torch.whl", hip, rocm)
    assert failure.value.message.startswith("upstream's extension cannot be built with this PyTorch\n")
    assert (
        failure.value.problems[0] == f"expected PyTorch's build for ROCm {rocm}, which compiled the kernels"
    )
    assert words in failure.value.problems[1]
    assert (
        failure.value.advice == f"give --torch-index PyTorch's wheels for ROCm {rocm}, an index or a folder"
    )


def test_the_pytorch_of_the_rocm_version_passes():
    refuse_other_rocm("torch.whl", "7.2.26015", "7.2")


def test_of_pytorchs_wheel_only_what_extensions_need_is_kept(tmp_path):
    others = {
        "torch/lib/librocblas.so": "",
        "torch/nn/x.py": "",
        "torch/include/../../x.h": "",
        "../torch/y": "",
    }
    extract(torch_wheel(tmp_path, {**WHOLE, **others}), tmp_path / "out")
    found = {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert found == {name.removeprefix("torch/") for name in WHOLE}
    assert not list(tmp_path.rglob("x.h"))


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "torch/version.py"])
def test_a_wheel_that_no_extension_can_be_built_with_is_refused(name, tmp_path):
    wheel = torch_wheel(tmp_path, {path: text for path, text in WHOLE.items() if path != name})
    with pytest.raises(UpstreamError) as failure:
        extract(wheel, tmp_path / "out")
    [problem] = failure.value.problems
    assert problem.removeprefix("it has no ") in name
    assert failure.value.message.startswith(
        f"{TORCH} is no PyTorch that extensions for ROCm can be built with"
    )


class FakePip:
    """``pip download`` in a container. It leaves a wheel."""

    def __init__(self, files):
        self.files = files

    def __call__(self, argv, **kwargs):
        self.argv = [str(part) for part in argv]
        torch_wheel(folder_of(argv, "/wheels"), self.files)
        return Completed("", 0)


def fetched(pip, tmp_path, shop):
    index = Torch("2.13.0", "https://builds.example/rocm7.2")
    image, store = shop(None).image, Store(tmp_path / "build")
    return fetch_torch(index, "7.2", image, store, host=HostSettings(), log=tmp_path / "log", run=pip)


def test_pytorch_is_fetched_from_the_index_for_the_python_of_the_image(tmp_path, shop):
    pip = FakePip(WHOLE)
    made = fetched(pip, tmp_path, shop)
    assert made.facts == {"wheel": TORCH, "version": "2.13.0+rocm7.2", "hip": "7.2.26015"}
    at = pip.argv.index("python3.11")
    assert pip.argv[at:] == [
        "python3.11", "--no-deps", "torch==2.13.0", "--extra-index-url", "https://builds.example/rocm7.2",
    ]  # fmt: skip


def test_a_refused_pytorch_is_not_kept(tmp_path, shop):
    with pytest.raises(UpstreamError, match="built without ROCm"):
        fetched(FakePip({**WHOLE, "torch/version.py": "hip: Optional[str] = None\n"}), tmp_path, shop)
    assert not list((tmp_path / "build").glob("*/*/manifest.json"))


def test_headers_come_from_where_the_hip_runtime_does():
    assert arguments_of(ROCM["7.2"]) == {
        "PACKAGES": "bookworm+:python3.11,libpython3.11-dev",
        "HEADERS": "experimental:" + ",".join(HEADERS),
    }
    assert arguments_of(ROCM["6.4"])["HEADERS"].startswith("sid:libhipblas-dev,")
    assert arguments_of(ROCM["7.1"]) == {"PACKAGES": ":python3-dev", "HEADERS": ""}


def test_the_host_part_is_compiled_against_pytorch_and_cks_headers(tmp_path, shop):
    seen = []

    def run(argv, **kwargs):
        seen.extend(str(part) for part in argv)
        message = "clang++ ended with status 1\n  | fatal error: 'c10/hip/HIPGuard.h' file not found"
        raise CommandFailedError(message)

    host, sources = artifact(tmp_path, sources=["mha_fwd"]), artifact(tmp_path)
    torch = artifact(tmp_path, version="2.13.0+rocm7.2")
    with pytest.raises(UpstreamError) as failure:
        make_host_object("mha_fwd", "gfx942", host, sources, torch, shop(run))
    assert failure.value.message.startswith(
        "upstream's mha_fwd does not compile against PyTorch 2.13.0+rocm7.2\n"
    )
    assert "'c10/hip/HIPGuard.h' file not found" in failure.value.message
    assert failure.value.advice == "try another release: --torch"
    assert {
        "/host/mha_fwd.hip", "--offload-arch=gfx942", "-I/torch/include", "-I/py", "-I/sources/ck/include",
        "-I/opt/headers/usr/include",
        "-DUSE_ROCM=1", "-DTORCH_EXTENSION_NAME=flash_attn_2_cuda",
    } <= set(seen)  # fmt: skip


def test_the_extension_is_linked_from_all_objects_and_pytorchs_libraries(tmp_path, shop, monkeypatch):
    seen = []

    def run(argv, **kwargs):
        if any("target=/out" in str(part) for part in argv):
            seen.append(
                ([str(part) for part in argv], (folder_of(argv, "/out") / "objects.rsp").read_text().split())
            )
        return Completed("", 0)

    monkeypatch.setattr(extension, "refuse_incomplete", lambda library, expected: None)
    objects = [artifact(tmp_path, f"{n:016x}", name=f"k{n:04}", kernels={"k": 2}) for n in range(2775)]
    host = [artifact(tmp_path, name, name=name, code_objects=1) for name in ("flash_api", "mha_fwd")]
    made = link_extension("gfx942", objects, host, artifact(tmp_path), shop(run))
    file = "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
    assert made.facts == {"arch": "gfx942", "file": file, "kernels": 2777}
    [(argv, lines)] = seen
    assert lines[:3] == [
        f"/host/flash_api/{OBJECT}",
        f"/host/mha_fwd/{OBJECT}",
        f"/objects/{0:016x}/{OBJECT}",
    ]
    assert len(lines) == 2777
    assert "@/out/objects.rsp" in argv
    assert {f"-l{name}" for name in (*LINKED, "amdhip64")} <= set(argv)
    assert argv[-1] == f"/out/{file}"


COMPLETE = Elf(
    "EM_X86_64", 0, "", (), (), ("PyInit_flash_attn_2_cuda",), (Undefined("_ZN2at5emptyE", "", False),)
)
MISSING = "_Z9fmha_fwd_I24fmha_fwd_traits_ILi128EEEfRKN7ck_tile13stream_configE13fmha_fwd_args"


@pytest.mark.parametrize(
    ("elf", "codes", "words"),
    [
        (COMPLETE, 3, "expected 4 code objects, found 3"),
        (
            Elf("EM_X86_64", 0, "", (), (), COMPLETE.exported, (Undefined(MISSING, "", False),)), 4,
            f"1 functions of kernels are in no object, such as {MISSING}",
        ),
        (Elf("EM_X86_64", 0, "", (), (), (), ()), 4, "it has no PyInit_flash_attn_2_cuda"),
    ],
)  # fmt: skip
def test_an_extension_that_lacks_something_is_refused(elf, codes, words, tmp_path, monkeypatch):
    (tmp_path / "x.so").touch()
    monkeypatch.setattr(extension, "read_elf", lambda data: elf)
    monkeypatch.setattr(extension, "code_objects", lambda data: ("one",) * codes)
    with pytest.raises(UpstreamError) as failure:
        refuse_incomplete(tmp_path / "x.so", 4)
    [problem] = failure.value.problems
    assert words in problem
    assert failure.value.advice == "link the objects of all shards: --take each of their folders"


def test_a_whole_extension_passes(tmp_path, monkeypatch):
    (tmp_path / "x.so").touch()
    monkeypatch.setattr(extension, "read_elf", lambda data: COMPLETE)
    monkeypatch.setattr(extension, "code_objects", lambda data: ("one",) * 4)
    refuse_incomplete(tmp_path / "x.so", 4)
    assert KERNEL.match(MISSING)
    assert not KERNEL.match("_ZN7ck_tile11launch_pipeE")


SDIST = {
    "setup.py": "raise SystemExit('upstream ran')",
    "README.md": "read", "LICENSE": "free",
    "flash_attn/__init__.py": "__version__ = '2.8.3'",
    "csrc/flash_attn_ck/mha_fwd.cpp": '#include "flash_common.hpp"\nint cuda;\n',
    "csrc/flash_attn_ck/flash_common.hpp": "",
    "csrc/other/x.cpp": "",
}  # fmt: skip


@pytest.fixture
def sdist(tmp_path):
    for name, text in SDIST.items():
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text(text)
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "files", "flash_attn-2.8.3")
    return tmp_path / "x.tar.gz"


def test_the_host_part_is_translated_by_pytorchs_own_hipify(sdist, tmp_path, monkeypatch):
    (tmp_path / "utils/hipify").mkdir(parents=True)
    (tmp_path / "utils/hipify/hipify_python.py").write_text(
        "from pathlib import Path\n"
        "def hipify(extra_files, output_directory, **options):\n"
        "    assert options['is_pytorch_extension'] and options['hipify_extra_files_only']\n"
        "    for name in extra_files:\n"
        "        text = Path(name).read_text().replace('cuda', 'hip')\n"
        "        Path(name).with_suffix('.hip').write_text(text)\n"
    )
    monkeypatch.setattr(sys, "path", sys.path[:])
    out = tmp_path / "out"
    out.mkdir()
    assert in_container.hipify(str(sdist), str(out), "csrc/flash_attn_ck", str(tmp_path / "utils")) == 0
    assert {path.name for path in out.iterdir()} == {"mha_fwd.cu", "mha_fwd.hip", "flash_common.hpp"}
    assert "int hip;" in (out / "mha_fwd.hip").read_text()


def test_the_wheel_has_upstreams_python_files_and_the_extension(sdist, tmp_path):
    made, out = tmp_path / "made.so", tmp_path / "out"
    made.write_bytes(b"machine code")
    out.mkdir()
    module, version = f"flash_attn_2_cuda{PYTHON['suffix']}", "2.8.3+rocm7.2.torch2.13.gfx942"
    assert (
        in_container.pack(str(sdist), str(out), str(made), module, version, "cp311-cp311-linux_x86_64") == 0
    )
    [wheel] = out.iterdir()
    assert wheel.name == f"flash_attn-{version}-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        info = f"flash_attn-{version}.dist-info"
        assert {name for name in archive.namelist() if not name.startswith(info)} == {
            module, "flash_attn/__init__.py",
        }  # fmt: skip
        assert archive.read(module) == b"machine code"
        assert f"{info}/licenses/LICENSE" in archive.namelist()
        assert {"Requires-Dist: einops", "Requires-Dist: torch"} <= set(
            archive.read(f"{info}/METADATA").decode().splitlines()
        )
        assert "Root-Is-Purelib: false" in archive.read(f"{info}/WHEEL").decode()


def test_the_wheels_version_says_what_it_fits(sdist, tmp_path, shop):
    seen = []

    def run(argv, **kwargs):
        if "pack" in argv:
            seen.extend(str(part) for part in argv)
            (folder_of(argv, "/out") / "x.whl").touch()
        return Completed("", 0)

    source = artifact(tmp_path, file="x.tar.gz")
    torch = artifact(tmp_path, version="2.13.0+rocm7.2")
    made = artifact(tmp_path, arch="gfx942", file="m.so")
    assert make_wheel("2.8.3", "7.2", source, torch, made, shop(run)).facts == {"wheel": "x.whl"}
    assert seen[-2:] == ["2.8.3+rocm7.2.torch2.13.gfx942", "cp311-cp311-linux_x86_64"]


def test_the_command_plans_the_extension_where_an_index_is_given(tmp_path, capsys):
    given = ["upstream", "--arch", "gfx942", "--torch-index", str(tmp_path), "--dry-run"]
    assert main(given) == 0
    assert "rocm7.2 extension gfx942" in capsys.readouterr().out
    for without in (given[:3] + given[-1:], [*given, "--shard", "1/2"], [*given, "--kernels", "x*"]):
        assert main(without) == 0
        assert "extension" not in capsys.readouterr().out


NOTHING = SimpleNamespace(run=lambda **_: None)


def test_the_command_says_what_was_made_and_what_not(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "build_upstream", lambda *_: (NOTHING, [lambda: tmp_path / "lib.so"]))
    assert main(["upstream", "--arch", "gfx942"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'lib.so'}\n"
    assert "give --torch-index an index or a folder of PyTorch's wheels for ROCm 7.2" in said.err
    assert main(["upstream", "--arch", "gfx942", "--shard", "1/2"]) == 0
    assert "--torch-index" not in capsys.readouterr().err


@pytest.mark.parametrize("release", ["2.13.0+rocm7.2", "latest", "2", "==2.13.0"])
def test_a_release_of_pytorch_that_cannot_be(release, capsys):
    with pytest.raises(SystemExit):
        main(["upstream", "--arch", "gfx942", "--torch", release])
    assert "expected a release such as 2.13.0" in capsys.readouterr().err


@pytest.mark.parametrize("index", ["https://user:word@builds.example/whl", "no-folder"])
def test_an_index_of_pytorch_that_cannot_be(index, capsys):
    with pytest.raises(SystemExit):
        main(["upstream", "--arch", "gfx942", "--torch-index", index])
    assert "--torch-index" in capsys.readouterr().err

"""Variants of a wheel: installers with variant support choose by GPU, all others take the wheel.

uv has wheel variants behind a preview flag, with its own providers for some hardware but not for AMD's. So uv
gets AMD's variants, of which it takes the fallback, and variants of the same form for hardware with a
provider in uv.

For AMD's GPUs the judge is variantlib, the reference implementation, with AMD's provider.
"""

import json
import re
import subprocess
import sys
from urllib.parse import unquote

import pytest
from rocm_bootstrap.variant_provider import AMDVariantPlugin

from tests.channel.index.conftest import serving
from tests.channel.index.test_install import NOW, PIP, UV, install
from tests.conftest import CHECKOUT
from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import PLATFORM, VERSION, write_wheel
from wheel_builder.base.store import sha256_file
from wheel_builder.files.wheels import variant
from wheel_builder.files.wheels.variant import variant_name
from wheel_builder.index.folder import yank
from wheel_builder.index.publish import publish
from wheel_builder.provenance.records import write_record
from wheel_builder.tables.archs import known_gpus, served_by

NAME = f"flash_attn_rocm-{VERSION}-py3-none-{PLATFORM}.whl"
PROJECT = "flash-attn-rocm"
SHOWN = {"numerics": "executed on an ISA emulator", "launches": {"a": 1}, "findings": [], "passed": True}
# A record as written by verify for all archs.
ARCHS = {
    arch: SHOWN | {"gpus": list(served_by(arch))}
    for arch in dict.fromkeys(gpu.code_object for gpu in known_gpus().values())
}
PLAIN = pytest.mark.parametrize("installer", [PIP, UV], ids=["pip", "uv"])
# The variants a machine takes, the best first. Each runs in its own process: variantlib caches answers.
JUDGE = """\
import json, sys
from variantlib.api import get_variants_by_priority
print(json.dumps([each.label for each in get_variants_by_priority(variants_json=json.load(sys.stdin))]))
"""


def published(folder, archs):
    wheel = write_wheel(folder)
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": archs})
    publish([wheel], folder / "index", "7.2", catalogue=CATALOGUE, now=NOW, variants=True)
    return folder / "index"


@pytest.fixture
def root(tmp_path):
    return published(tmp_path, ARCHS)


def installed(target):
    """The label of the installed variant. It is "" for the wheel itself."""
    [dist_info] = target.glob("*.dist-info")
    if not (found := dist_info / "variant.json").exists():
        return ""
    [label] = json.loads(found.read_text())["variants"]
    return label


@PLAIN
def test_an_installer_without_variants_takes_the_wheel_as_before(
    root, any_handler, installer, clean_env, tmp_path
):
    with serving(root, any_handler) as (url, asked):
        for simple in ("rocm7.2/simple/", "simple/", "rocm7.2/variants/", "variants/"):
            target = tmp_path / simple.replace("/", "-")
            done = install(installer, url, clean_env, target, PROJECT, simple=simple)
            assert done.returncode == 0, done.stderr
            assert installed(target) == ""
            assert "-null" not in done.stdout + done.stderr, "no warning of such names"
    files = {path.rpartition("/")[2] for path, _ in asked}
    assert {unquote(name) for name in files} <= {"", NAME, f"{NAME}.metadata"}


@PLAIN
def test_nor_does_it_see_a_difference_in_hashes_and_locks(root, installer, clean_env, tmp_path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"{PROJECT}=={VERSION} --hash=sha256:{sha256_file(tmp_path / NAME)}\n")
    with serving(root) as (url, _):
        done = install(
            installer, url, clean_env, tmp_path / "target", "--require-hashes", "-r", str(requirements)
        )
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path / "target") == ""


def project(folder, url, more=""):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "yours"\nversion = "1.0"\nrequires-python = ">=3.10"\n'
        f'dependencies = ["{PROJECT}"]\n' + more.replace("<url>", f"{url}/rocm7.2/simple")
    )
    return folder


def test_a_lock_file_of_uv_has_the_wheel_alone(root, clean_env, tmp_path):
    index = '[[tool.uv.index]]\nname = "rocm-fa"\nurl = "<url>"\ndefault = true\n'
    env = {name: value for name, value in clean_env.items() if name != "UV_NO_CONFIG"}
    with serving(root) as (url, _):
        folder = project(tmp_path / "project", url, index)
        done = subprocess.run(
            [UV[0], "lock", "--python", sys.executable],
            cwd=folder, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lock = (folder / "uv.lock").read_text()
    assert lock.count(".whl") == 1
    assert sha256_file(tmp_path / NAME) in lock


def test_a_lock_file_of_poetry_has_the_wheel_alone(root, clean_env, tmp_path):
    more = f"""
[tool.poetry]
package-mode = false
[tool.poetry.dependencies]
{PROJECT} = {{source = "rocm-fa"}}
[[tool.poetry.source]]
name = "rocm-fa"
url = "<url>"
priority = "explicit"
"""
    with serving(root) as (url, _):
        folder = project(tmp_path / "project", url, more)
        env = {name: value for name, value in clean_env.items() if not name.startswith("POETRY_")}
        done = subprocess.run(
            [sys.executable, "-m", "poetry", "lock", "--no-interaction"],
            cwd=folder, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lock = (folder / "poetry.lock").read_text()
    assert lock.count(".whl") == 1
    assert sha256_file(tmp_path / NAME) in lock


# uv with its preview of variants


def with_variants(url, env, target, *options, simple="rocm7.2/variants"):
    """The command of docs/install.md."""
    page = (CHECKOUT / "docs/install.md").read_text()
    [line] = re.findall(r"^    uv (pip install .*--preview-features .*)", page, re.MULTILINE)
    command = line.replace("<index>/public/variants", f"{url}/{simple}").split()
    return subprocess.run(
        [UV[0], *command, "--python", sys.executable, "--target", str(target), *options],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_uv_takes_the_fallback_where_it_cannot_tell_the_gpu(root, any_handler, clean_env, tmp_path):
    with serving(root, any_handler) as (url, asked):
        done = with_variants(url, clean_env, tmp_path / "target", "--verbose")
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path / "target") == "null"
    assert (
        "Skipping unsupported wheel variant provider `rocm_bootstrap.variant_provider:AMDVariant"
        in done.stderr
    )
    assert f"flash_attn_rocm-{VERSION}-variants.json" in {
        path.rpartition("/")[2].replace("%2B", "+") for path, status in asked if status == 200
    }


def test_uv_passes_over_variants_of_a_yanked_wheel(root, clean_env, tmp_path):
    yank(root, "7.2", NAME, "wrong numbers", catalogue=CATALOGUE, now=NOW)
    with serving(root) as (url, _):
        done = with_variants(url, clean_env, tmp_path / "target")
    assert done.returncode != 0
    assert "yanked" in done.stderr


@pytest.fixture
def for_nvidia(monkeypatch, tmp_path):
    """An index with variants for GPUs of uv's own provider."""
    monkeypatch.setattr(variant, "NAMESPACE", "nvidia")
    monkeypatch.setattr(variant, "FEATURE", "sm_arch")
    plugin = {
        "requires": ["nvidia-variant-provider"],
        "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
    }
    monkeypatch.setattr(variant, "PROVIDERS", {"nvidia": plugin})
    return published(tmp_path, dict.fromkeys(("90_real", "100_real"), SHOWN))


@pytest.mark.parametrize(
    ("arch", "label"), [("9.0", "nvidia_linux"), ("10.0", "nvidia_linux"), ("8.0", "null")]
)
def test_uv_chooses_by_gpu_where_it_can_tell(for_nvidia, any_handler, clean_env, tmp_path, arch, label):
    """Names, hashes, METADATA and both texts match uv's expectations of variants."""
    env = clean_env | {
        "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": arch,
        "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "12.8",
    }
    with serving(for_nvidia, any_handler) as (url, _):
        done = with_variants(url, env, tmp_path / "target")
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path / "target") == label


def test_uv_finds_a_variant_that_was_changed_on_the_server(for_nvidia, clean_env, tmp_path):
    served = for_nvidia / "rocm7.2/simple" / PROJECT / variant_name(NAME, "null")
    served.write_bytes(served.with_name(variant_name(NAME, "nvidia_linux")).read_bytes())
    with serving(for_nvidia) as (url, _):
        done = with_variants(url, clean_env, tmp_path / "target")
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()


# variantlib with AMD's provider


def judged(document, env, gpus=""):
    """The labels taken by a machine with these GPUs, in their order."""
    more = {"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": gpus} if gpus else {"ROCM_BOOTSTRAP_DISABLE_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-c", JUDGE], input=document, env=env | more, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("gpus", "labels"),
    [
        ("gfx942", ["amd_linux", "null"]),
        ("gfx1031", ["amd_linux", "null"]),  # it runs the code of gfx1030
        ("gfx1101", ["amd_linux", "null"]),
        ("gfx900", ["null"]),  # the wheel has no kernels for it
        ("gfx900,gfx1201", ["amd_linux", "null"]),
        ("", ["null"]),
    ],
)
def test_the_reference_implementation_chooses_by_amds_gpu(root, clean_env, gpus, labels):
    about = root / "rocm7.2/simple" / PROJECT / f"flash_attn_rocm-{VERSION}-variants.json"
    assert judged(about.read_bytes(), clean_env, gpus) == labels


def test_amds_provider_knows_every_gpu_that_is_served():
    """A GPU with a name unknown to the provider would get the fallback."""
    [feature] = AMDVariantPlugin.get_all_configs()
    assert (AMDVariantPlugin.namespace, feature.name) == (variant.NAMESPACE, variant.FEATURE)
    assert set(known_gpus()) <= set(feature.values)


def test_the_reference_implementation_reads_what_is_in_each_variant(root):
    """As variantlib's own command makes the index's file from wheels."""
    script = (
        "import json, sys, zipfile\n"
        "from variantlib.variants_json import VariantsJson\n"
        "def read(name):\n"
        "    return VariantsJson(json.loads(zipfile.ZipFile(name).read(sys.argv[1])))\n"
        "merged = read(sys.argv[2])\n"
        "merged.merge(read(sys.argv[3]))\n"
        "print(merged.to_str())\n"
    )
    folder = root / "rocm7.2/simple" / PROJECT
    wheels = [str(folder / variant_name(NAME, label)) for label in ("amd_linux", "null")]
    inside = f"flash_attn_rocm-{VERSION}.dist-info/variant.json"
    command = [sys.executable, "-c", script, inside, *wheels]
    merged = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ours = json.loads((folder / f"flash_attn_rocm-{VERSION}-variants.json").read_bytes())
    for each in (merged, ours):  # variantlib's address refers to another draft of the same form
        del each["$schema"]
        [values] = [each["variants"]["amd_linux"]["amd"]["gfx_arch"]]
        each["variants"]["amd_linux"]["amd"]["gfx_arch"] = sorted(values)
    assert merged == ours

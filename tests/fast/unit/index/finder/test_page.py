"""The page as text. tests/channel/page opens it in a browser."""

import base64
import hashlib
import json
import re
import shlex
from dataclasses import replace
from importlib.resources import files

import pytest

from tests.conftest import CHECKOUT
from tests.fast.unit.index.finder.test_data import EMULATED, UNDER_WINE, wheel, windows_wheel
from tests.fast.unit.index.finder.test_html import Parsed
from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.build.shim import NAMES
from wheel_builder.cli.commands import commands_for
from wheel_builder.cli.commands.wheels.runtime_image import image_jobs
from wheel_builder.cli.main import _parser
from wheel_builder.index.finder import finder_pages
from wheel_builder.index.finder.data import make_finder
from wheel_builder.index.finder.page import content_policy
from wheel_builder.index.finder.steps import (
    BUILDS_FOR_WINDOWS,
    DEVICES,
    DOCKER,
    SELECTOR,
    VERSION,
    WSL_LIST,
    amds_index,
    steps,
)
from wheel_builder.matrix.catalogue import Gpu, MissingRocm
from wheel_builder.matrix.model import Addresses

EVIL = "\"'><script>planted()</script><img src=x onerror=planted()>"


def pages(*wheels, catalogue=CATALOGUE, drop_ins=()):
    return finder_pages(make_finder(catalogue, wheels, drop_ins=drop_ins))


def html(*wheels, **changes):
    return pages(*wheels, **changes)["index.html"].decode()


def commands(rocm, served, system="Linux", tool="pip", *, drop_ins=NAMES):
    """The commands of one answer, in order."""
    found = steps(rocm, served, drop_ins=drop_ins, torch_floor="2.10")
    return [step.command for step in found if step.command and system in step.systems and tool in step.tools]


def test_it_says_what_is_known_of_each_wheel():
    text = html(wheel())
    assert f"Verified for gfx908: {EMULATED}." in text
    assert "pip install flash-attn-rocm==0.1.0+rocm7.2 --index-url INDEX/rocm7.2/simple/" in text
    assert "ab" * 32 in text
    assert "published without provenance statement" in text
    assert "no kernels: there is no kernel for it" in text
    assert "ROCm 5.7: no torch runs on it." in text


def test_windows_has_steps_of_its_own_and_the_words_of_its_record():
    text = html(wheel(), windows_wheel())
    [part] = re.findall(r'<details class="offer" data-rocm="windows">.*?</details>', text, re.DOTALL)
    assert "<summary>Windows: flash-attn-rocm 0.1.0</summary>" in part
    for install in ("pip install", "uv pip install"):
        assert f">{install} flash-attn-rocm==0.1.0 --index-url INDEX/public/simple/<" in part
    assert 'data-systems="Linux' not in part
    assert 'data-systems="Docker"' not in part
    assert f"What was shown for gfx1100: {UNDER_WINE}." in part
    assert "What was shown for gfx908: not executed under wine." in part
    assert "It was executed under wine on an ISA emulator, not on Windows" in part
    assert 'href="public/simple/flash-attn-rocm/flash_attn_rocm-0.1.0-py3-none-win_amd64.whl"' in part
    assert "with ROCm 7.2, Windows" in text
    assert "There is no wheel for Windows" not in text
    # The command for Linux is unchanged.
    assert text.count(">pip install flash-attn-rocm==0.1.0+rocm7.2 ") == 1
    assert f"Verified for gfx908: {EMULATED}." in text


def test_an_index_without_a_wheel_for_windows_says_what_to_do():
    text = html(wheel())
    assert "There is no wheel for Windows: this index does not have its wheel yet." in text
    assert '<p id="other-system">What to do: the wheel for Linux also works in WSL2.</p>' in text


def test_pytorch_for_windows_is_where_the_doctor_says():
    doctor = (CHECKOUT / "kernels/python/flash_attn_rocm/machine/requirements.py").read_text()
    assert f'WINDOWS: ("{BUILDS_FOR_WINDOWS}", "Windows"),' in doctor


def test_windows_is_told_which_builds_of_pytorch_fit():
    floor = CATALOGUE.torch.floor
    words = f"Install PyTorch {floor} or newer for ROCm on Windows (AMD&#x27;s own wheels for ROCm 7.2 have "
    text = html(wheel(), windows_wheel())
    [part] = re.findall(r'<details class="offer" data-rocm="windows">.*?</details>', text, re.DOTALL)
    assert words in part
    assert "pip install &quot;torch[device-GFX]&gt;=2.10&quot; --index-url https://repo.amd.com/rocm/" in part
    assert f"the wheel needs torch {floor} or newer; on Windows AMD&#x27;s own wheels" in text


BORROWER = Gpu("gfx1036", ("Radeon Graphics",), code_object="gfx908", torch_override="9.0.8")


def test_a_gpu_that_runs_the_code_of_another():
    catalogue = replace(CATALOGUE, gpus=(*CATALOGUE.gpus, BORROWER))
    text = html(wheel(verified=["gfx908", "gfx1036"]), catalogue=catalogue)
    [row] = re.findall(r'<tr data-arch="gfx1036".*?</tr>', text, re.DOTALL)
    assert 'gfx1036<span class="also"> runs the code of gfx908</span>' in row
    assert 'data-override="9.0.8"' in row
    assert ">with ROCm 7.2<" in row
    [part] = re.findall(r'<div id="override-9.0.8">.*?</div>', text, re.DOTALL)
    assert "gfx1036: PyTorch&#x27;s builds for ROCm have no kernels for these" in part
    assert "calls itself gfx908" in part
    assert "<code>export HSA_OVERRIDE_GFX_VERSION=9.0.8</code>" in part
    assert '<div id="override-' not in html(wheel())


def test_a_wheel_from_before_a_gpu_was_served_does_not_serve_it():
    """Its record names no GPUs, and its library lacks their names."""
    text = html(wheel(), catalogue=replace(CATALOGUE, gpus=(BORROWER,)))
    assert "the wheel for ROCm 7.2 has no verification record for gfx1036" in text


def test_withdrawn_wheels_are_named_with_the_reason():
    text = html(wheel(), wheel("0.2.0+rocm7.2", yanked="wrong <numbers>"))
    assert "flash_attn_rocm-0.2.0+rocm7.2-py3-none-any.whl: wrong &lt;numbers&gt;" in text
    assert "flash-attn-rocm==0.2.0" not in text
    assert "Withdrawn wheels" not in html(wheel())


def test_each_wheels_commands_are_there_once():
    text = html(wheel(), wheel("0.1.0+rocm6.4"))
    for rocm in ("7.2", "6.4"):
        assert text.count(f">pip install flash-attn-rocm==0.1.0+rocm{rocm} ") == 1


def test_who_is_not_served_learns_what_to_do():
    text = html(wheel())
    assert "If your PyTorch supports this GPU, two things work: PyTorch&#x27;s own attention" in text
    assert "its PyTorch implementation gives the same results" in text
    assert "What to do: use PyTorch&#x27;s build for ROCm 7.2." in text
    assert "What to do: wait for a published wheel." in html()


def test_its_data_is_there_for_programs():
    document = json.loads(pages(wheel())["wheels.json"])
    assert document["schema"] == 2
    assert document["catalogue"]["gpus"][2] == {
        "arch": "gfx906", "devices": ["Radeon VII"], "reason": "there is no kernel for it", "code_names": [],
        "processors": [], "code_object": "", "torch_override": "", "not_with": [], "pci_ids": [],
        "elsewhere": [],
    }  # fmt: skip
    assert document["wheels"][0]["sha256"] == "ab" * 32
    assert document["wheels"][0]["serves"] == ["7.2"]
    assert document["drop_ins"] == []


def test_nothing_of_a_record_or_of_the_matrix_becomes_markup():
    catalogue = replace(
        CATALOGUE,
        gpus=(Gpu(EVIL, (EVIL,), EVIL, (EVIL,), (EVIL,)), Gpu("gfx908", (EVIL,))),
        missing_rocm=(MissingRocm("5.7", EVIL),),
    )
    evil = wheel(filename=EVIL, sha256=EVIL, verified=["gfx908"])
    evil = replace(evil, verified={"gfx908": EVIL}, url=EVIL, attachments={"provenance": EVIL})
    text = html(evil, catalogue=catalogue)

    tags = [tag for tag, _ in Parsed(text).tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not [name for _, attributes in Parsed(text).tags for name in attributes if name.startswith("on")]


def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else():
    text = html(wheel())
    (policy,) = (
        a["content"] for _, a in Parsed(text).tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy == content_policy()
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    for name in ("script", "style"):
        (inside,) = re.findall(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert directives.pop(f"{name}-src") == f"'sha256-{digest}'"
    assert set(directives.values()) == {"'none'"}
    assert "default-src" in directives
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert not re.search(r'\sstyle="|\son[a-z]+="', text)


def test_nothing_is_loaded_from_elsewhere():
    """Links to PyTorch's own page load nothing by themselves."""
    for tag, attributes in Parsed(html(wheel())).tags:
        for name in ("src", "href", "action", "srcset", "poster", "data"):
            elsewhere = re.match(r"[a-z]+:|//", attributes.get(name) or "")
            assert not elsewhere or (tag, name) == ("a", "href")
            assert not elsewhere or attributes[name] in (SELECTOR, BUILDS_FOR_WINDOWS, WSL_LIST)
    for name in ("finder.css", "finder.js", "copy.js", "match.js"):
        assert not re.search(r"https?:|url\(|@import|import\(|fetch\(", resource(name))


def resource(name):
    return files("wheel_builder.index.finder").joinpath(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["finder.js", "copy.js", "match.js"])
def test_the_scripts_are_small_and_make_no_markup_from_text(name):
    script = resource(name)
    assert len(script.splitlines()) <= 160
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script)
    assert "</script" not in script
    assert "</style" not in resource("finder.css")


def test_what_finds_names_reads_no_page():
    assert not re.search(r"document|window|location|addEventListener", resource("match.js"))


@pytest.mark.parametrize("version", ["0.1.0+rocm7.2", "1.0rc1+rocm7.2"])
def test_commands_have_nothing_that_a_shell_would_take(version):
    known = (DEVICES, '"$TORCH_INDEX"', VERSION, '"torch>=2.10"')
    for step in steps("7.2", wheel(version), drop_ins=["flash-attn"], torch_floor="2.10"):
        for line in step.command.splitlines():
            for words in known:
                line = line.replace(words, "")  # noqa: PLW2901
            assert re.fullmatch(r"[\w .+/:=-]*", line)


@pytest.mark.parametrize(("tool", "install"), [("pip", "pip install"), ("uv", "uv pip install")])
@pytest.mark.parametrize("system", ["Linux", "WSL2"])
def test_the_steps_on_linux_are_in_order(system, tool, install):
    make, remove, pytorch, *rest = commands("7.2", wheel(), system, tool)
    assert make == f"{'python3 -m venv' if tool == 'pip' else 'uv venv'} rocm-fa\n. rocm-fa/bin/activate"
    assert remove == f"{install.replace('install', 'uninstall')}{' --yes' if tool == 'pip' else ''} torch"
    assert pytorch == f'{install} "torch>=2.10" --index-url https://download.pytorch.org/whl/rocm7.2'
    assert rest == [
        'python -c "import torch; print(torch.version.hip)"',
        f"{install} flash-attn-rocm==0.1.0+rocm7.2 --index-url INDEX/rocm7.2/simple/",
        "python -m flash_attn_rocm doctor",
        f"{install} flash-attn --index-url INDEX/rocm7.2/simple/",
        f"{install} flash-attn-3 --index-url INDEX/rocm7.2/simple/",
        f"{install} sageattention --index-url INDEX/rocm7.2/simple/",
    ]


def test_pytorch_comes_first_and_wsl_before_it():
    every = steps("6.4", wheel(), drop_ins=[], torch_floor="2.10")
    found = [step for step in every if "WSL2" in step.systems]
    assert "AMD's driver with WSL support" in found[0].words
    assert found[0].link == WSL_LIST
    [pip, uv] = [
        step for step in found if step.words.startswith("Install PyTorch 2.10 or newer for ROCm 6.4")
    ]
    assert pip.link == uv.link == SELECTOR
    assert pip.command == 'pip install "torch>=2.10" --index-url https://download.pytorch.org/whl/rocm6.4'
    assert found[0] not in [step for step in every if "Linux" in step.systems]


@pytest.mark.parametrize("rocm", ["7.14", "10.0"])
def test_amds_builds_have_a_package_for_each_arch(rocm):
    """pytorch.org has none for these. For a GPU without a package the page links the page of all builds."""
    found = steps(rocm, wheel(), drop_ins=[], torch_floor="2.10")
    [line] = [step.command for step in found if step.packaged and "pip" in step.tools]
    assert line == f'pip install "torch[device-GFX]>=2.10" --index-url {amds_index()}'
    [other] = [step for step in found if step.packaged is False]
    assert (other.command, other.link) == ("", BUILDS_FOR_WINDOWS)


def test_an_index_without_the_drop_in_does_not_name_it():
    assert "pip install flash-attn --index-url" not in html(wheel())
    text = html(wheel(), drop_ins=["flash-attn"])
    assert "pip install flash-attn --index-url INDEX/rocm7.2/simple/" in text
    assert (
        "Only for code that imports flash_attn, for example transformers and diffusers: flash-attn," in text
    )
    assert "flash-attn-3" not in text
    text = html(wheel(), drop_ins=["flash-attn-3"])
    assert "pip install flash-attn-3 --index-url INDEX/rocm7.2/simple/" in text
    assert "imports flash_attn_interface, for example" in text
    text = html(wheel(), drop_ins=["sageattention"])
    assert "Only for code that imports sageattention, for example ComfyUI and diffusers: sage" in text
    assert len(commands("7.2", wheel(), drop_ins=[])) == 6


def test_a_file_name_is_one_word_for_a_shell():
    evil = wheel(filename="flash_attn_rocm-0.1.0+rocm7.2-$(planted)-py3-none-any.whl")
    assert "'flash_attn_rocm-0.1.0+rocm7.2-$(planted)-py3-none-any.whl'" in commands("7.2", evil, DOCKER)[0]


def test_docker_makes_the_image_from_the_published_wheel_before_it_is_run(tmp_path, monkeypatch):
    served = wheel()
    made, version, doctor, dockerfile = commands("7.2", served, DOCKER, drop_ins=["flash-attn"])
    index, fetch, make = made.splitlines()
    assert index == "export TORCH_INDEX=https://download.pytorch.org/whl/rocm7.2"
    assert fetch == "pip download --no-deps flash-attn-rocm==0.1.0+rocm7.2 --index-url INDEX/rocm7.2/simple/"
    assert (
        make
        == f'scripts/wheel-builder runtime-image --for-gpu --torch-index "$TORCH_INDEX" {served.filename}'
    )
    assert doctor == f"docker run {DEVICES} rocm-fa:7.2"
    assert version == f"{doctor} {VERSION}"
    assert dockerfile.splitlines()[0::2] == [
        "FROM rocm-fa:7.2",
        "RUN python -m pip install flash-attn --index-url INDEX/rocm7.2/simple/",
    ]
    # The command line accepts the line, also without the variable, whose image is then run.
    monkeypatch.chdir(tmp_path)
    (tmp_path / served.filename).touch()
    args = _parser(commands_for([])).parse_args(shlex.split(make.replace("$TORCH_INDEX", ""))[1:])
    assert [job.rocm.version for job in image_jobs(args)] == ["7.2"]


def test_the_page_says_where_the_image_gets_its_torch():
    text = html(wheel())
    assert "Make the image once, in a checkout of the project" in text
    assert "The last command refuses any PyTorch without GPU access" in text


def test_a_wheel_of_another_rocm_version_gives_that_versions_image():
    made, _, doctor, *_ = commands("7.1", wheel(serves=("7.1",)), DOCKER)
    assert made.splitlines()[0].endswith("/rocm7.2"), "as the image's name says"
    assert "INDEX/rocm7.1/simple/" in made.splitlines()[1]
    assert "+rocm7.2-" in made.splitlines()[2]
    assert doctor.endswith(" rocm-fa:7.2")


def test_the_page_names_the_project_or_says_that_it_has_no_address_yet():
    def words(addresses):
        catalogue = replace(CATALOGUE, addresses=addresses)
        page = html(catalogue=catalogue)
        return re.search(r'<p id="addresses">(.*?)</p>', page)[1]

    assert words(Addresses()) == "No address of this project, for reports or about security, is public yet."
    some = Addresses("https://host/r", "https://host/i", security="mailto:a@host")
    assert words(some) == (
        '<a href="https://host/r">Repository</a>, <a href="https://host/i">reports</a>, '
        '<a href="mailto:a@host">security</a>.'
    )


TUNING = "flash-attn-rocm-tuning-gfx1100"


def of_candidates(version="0.1.0+rocm7.2", **changes):
    """A distribution of candidates in the index."""
    name = f"{TUNING.replace('-', '_')}-{version}-py3-none-any.whl"
    return replace(wheel(version), project=TUNING, filename=name, url=f"there/{name}", **changes)


def test_candidates_are_offered_to_the_gpus_that_run_their_code():
    """For gfx1101, too, which runs the code of gfx1100. The file is listed with its record."""
    page = html(wheel(), of_candidates())
    found = re.findall(r'<li[^>]*data-gpus="gfx1100 gfx1101"[^>]*>.*?</li>', page, re.DOTALL)
    index = "--index-url INDEX/rocm7.2/simple/"
    assert any(f"pip install {TUNING}==0.1.0+rocm7.2 {index}" in each for each in found)
    assert any(f"uv pip install {TUNING}==0.1.0+rocm7.2" in each for each in found)
    assert all("python -m flash_attn_rocm tune --apply" in each for each in found)
    assert all("executed on an ISA emulator, none on hardware" in each for each in found)
    assert f'href="there/{of_candidates().filename}"' in page
    document = json.loads(pages(wheel(), of_candidates())["wheels.json"])
    assert [each["project"] for each in document["candidates"]] == [TUNING]


@pytest.mark.parametrize("changes", [{"version": "0.2.0+rocm7.2"}, {"yanked": "wrong"}])
def test_candidates_of_another_version_or_withdrawn_ones_are_not_offered(changes):
    assert f"install {TUNING}" not in html(wheel(), of_candidates(**changes))

"""The page where users find their wheel, in a real browser."""

import re

import pytest

from tests.channel.page.conftest import NOW, NUMERICS, SCHEMES, publish_one
from tests.channel.page.pasted import lspci
from tests.conftest import CHECKOUT
from tests.tools.made.matrices import with_examples
from wheel_builder.index.finder.steps import DEVICES, MAKE_IMAGE, SELECTOR, WSL_LIST
from wheel_builder.index.folder import yank
from wheel_builder.index.simple.serve import serving
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.verify.wine import HOW, NOT_EXECUTED

CONTRAST = """() => {
  // Of every text that is shown: the ratio of WCAG 2 between its colour and the first ground behind it.
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (text) => {
    const linear = (x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = rgb(text).map((x) => linear(x / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const [, , , alpha = 1] = rgb(getComputedStyle(node).backgroundColor);
      if (alpha > 0) return getComputedStyle(node).backgroundColor;
    }
    throw new Error("no ground");
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    if (!node.checkVisibility()) continue;
    if ([...node.childNodes].some((x) => x.nodeType === 3 && x.data.trim())) {
      const contrast = ratio(light(getComputedStyle(node).color), light(ground(node)));
      found.push({name: node.tagName, text: node.textContent.slice(0, 40), ratio: contrast});
    }
    if (node.matches("select, input, button, td, th")) {
      const line = ratio(light(getComputedStyle(node).borderTopColor), light(ground(node.parentElement)));
      found.push({name: node.tagName + " border", text: "", ratio: line});
    }
  }
  return found;
}"""


@pytest.fixture(scope="session")
def matrix():
    return with_examples()


def test_without_javascript_everything_can_be_read(open_page, matrix):
    page = open_page(java_script_enabled=False)
    assert page.locator("form").is_hidden()
    for part in page.locator("details.part > summary").all():
        part.click()
    excluded = {(each.rocm, each.arch) for each in matrix.exclude}
    for arch in matrix.archs:
        cells = row_of(page, arch.name).get_by_role("cell").all_inner_texts()
        whose = "" if arch.code == arch.name else f" runs the code of {arch.code}"
        on_windows = arch.code in matrix.public.windows and arch.name != "gfx1033"
        served = {"6.4": ("6.4", arch.code) not in excluded, "Windows": on_windows}
        # First ROCm versions with their own wheel, the newest first.
        names = [name for name in ("7.2", "6.4", "7.1", "Windows") if served.get(name, True)]
        words = "with " + ", ".join(name if name == "Windows" else f"ROCm {name}" for name in names)
        assert cells[0] == arch.name + whose
        assert cells[1].partition(";")[0] == words
        assert ("not with Windows: " in cells[1]) != served["Windows"]
        assert cells[2] == "no report"
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert heads == ["GPU", "Arch", "Served", "Run on hardware"]
    for other in matrix.other_archs:
        assert f"no kernels: {other.reason}" in row_of(page, other.name).inner_text()
    offer = page.locator("details.offer").first
    offer.locator("summary").first.click()
    text = offer.inner_text()
    assert "pip install flash-attn-rocm==0.1.0+rocm7.2 --index-url INDEX/rocm7.2/simple/" in text
    for arch in matrix.archs:
        code = "" if arch.code == arch.name else f"the code of {arch.code}: "
        assert f"Verified for {arch.name}: {code}{NUMERICS}; 42 launches" in text
    assert "ROCm 5.7: no supported torch" in page.inner_text("main")
    assert "by the address of this page's folder" in page.inner_text("header")


def row_of(page, arch):
    return page.locator(f"tr[data-arch={arch}]")


def test_nothing_is_called_tested_on_a_gpu(open_page):
    text = open_page().text_content("main").lower()
    assert not re.search(r"tested on (a |an )?(amd )?(gpu|hardware)", text)
    assert NUMERICS.lower() in text


def choose(page, gpu=None, **choices):
    if gpu is not None:
        page.fill("#gpu", gpu)
    for name, value in choices.items():
        page.select_option(f"#{name}", label=value)
    return page.inner_text("#answer")


def test_a_marketing_name_gives_the_command(open_page, address):
    page = open_page()
    assert page.locator("#answer").is_hidden()
    assert page.locator("#address").is_hidden()
    text = choose(page, gpu="Radeon RX 7900 XTX")
    assert "Radeon RX 7900 XTX (gfx1100): your steps" in text
    assert f"pip install flash-attn-rocm==0.1.0+rocm7.2 --index-url {address}/rocm7.2/simple/" in text
    assert text.count("Verified for ") == 1
    assert f"Verified for gfx1100: {NUMERICS}" in text
    assert "docker run" not in text
    page.locator("details.part > summary").first.click()
    shown = page.locator("tbody tr:visible")
    assert shown.count() == 1
    assert "gfx1100" in shown.inner_text()


@pytest.mark.parametrize(
    ("typed", "title"),
    [
        ("strix halo", "Strix Halo (gfx1151): your steps"),
        ("8060S", "Radeon 8060S (gfx1151): your steps"),
        ("AMD Radeon(TM) 8060S Graphics", "Radeon 8060S (gfx1151): your steps"),
        ("Radeon RX 9070 XT", "Radeon RX 9070 XT (gfx1201): your steps"),
        ("rx 9060 xt", "Radeon RX 9060 XT (gfx1200): your steps"),
        ("Radeon VII", "Radeon VII (gfx906): your steps"),
        ("RX Vega 64", "Radeon RX Vega 64 (gfx900): what works without kernels"),
        ("AMD Radeon RX 5700 XT", "Radeon RX 5700 XT (gfx1010): your steps"),
        ("RX 6700 XT", "Radeon RX 6700 XT (gfx1031): your steps"),
        ("rx6700xt", "Radeon RX 6700 XT (gfx1031): your steps"),
        ("7900 XT / 7900 XTX", "7900 XT / 7900 XTX (gfx1100): your steps"),
        ("Sapphire Nitro+ RX 7900 XTX 24GB", "Radeon RX 7900 XTX (gfx1100): your steps"),
        ("Name: gfx1100", "gfx1100: your steps"),
        ("AMD RYZEN AI MAX+ 395", "Ryzen AI Max+ 395 (gfx1151): your steps"),
        ("Radeon 780M", "Radeon 780M (gfx1103): your steps"),
        ("Phoenix", "Phoenix (gfx1103): your steps"),
        ("RX 7900 XT", "Radeon RX 7900 XT (gfx1100): your steps"),
        ("mi300", "mi300 (gfx942): your steps"),
        ("arcturus", "Arcturus (gfx908): your steps"),
        ("GFX1030", "gfx1030: your steps"),
    ],
)
def test_one_box_knows_every_kind_of_name(open_page, typed, title):
    page = open_page()
    choose(page, gpu=typed)
    assert page.inner_text("#answer h2") == title


def test_a_gpu_that_runs_the_code_of_another_gets_what_pytorch_needs(open_page):
    page = open_page()
    text = choose(page, gpu="AMD Ryzen 9 7950X 16-Core Processor")
    assert "(gfx1036): your steps" in text
    assert "PyTorch's builds for ROCm have no kernels for these" in text
    assert "calls itself gfx1030. These GPUs run its code" in text
    assert text.count("Verified for ") == 1
    assert f"Verified for gfx1036: the code of gfx1030: {NUMERICS}" in text
    line = page.locator("#answer .line", has_text="export HSA_OVERRIDE_GFX_VERSION=10.3.0")
    assert line.get_by_role("button", name="Copy").count() == 1
    assert "HSA_OVERRIDE" not in choose(page, gpu="gfx1030")


@pytest.mark.parametrize("gpu", ["Radeon RX 5700 XT", "Radeon RX 5500 XT", "gfx1011", "Radeon VII"])
def test_a_gpu_without_kernels_in_pytorchs_own_builds(open_page, gpu):
    """As gfx1030 it hangs, so no override."""
    page = open_page()
    text = choose(page, gpu=gpu, system="Linux")
    assert "your steps" in text
    assert "Install a PyTorch that was built for this GPU, 2.10 or newer" in text
    assert "download.pytorch.org" not in text
    assert "HSA_OVERRIDE" not in text
    text = choose(page, gpu=gpu, system="Docker")
    assert "which have no kernels for this GPU. Choose Linux" in text
    assert "docker run" not in text
    assert "download.pytorch.org" in choose(page, gpu="gfx1030", system="Linux")


def test_a_name_that_fits_several_asks_which_one(open_page):
    page = open_page()
    text = choose(page, gpu="strix")
    assert "“strix” matches 2 GPUs: choose one" in text
    page.get_by_role("button", name="Strix Halo (gfx1151)").click()
    assert page.inner_text("#answer h2") == "Strix Halo (gfx1151): your steps"
    assert page.evaluate("document.activeElement.id") == "gpu"


def test_the_arch_is_one_word_in_the_table(open_page):
    """It was once split into gfx11 and 00."""
    page = open_page(viewport={"width": 360, "height": 900})
    page.locator("details.part > summary").first.click()
    heights = page.locator("td.arch").evaluate_all(
        "all => all.map((cell) => { const r = document.createRange(); r.selectNodeContents(cell.firstChild);"
        " return r.getClientRects().length; })"
    )
    assert set(heights) == {1}


@pytest.mark.parametrize("typed", ["GeForce RTX 4090", "???", "<>"])
def test_an_unknown_name_says_how_to_find_out(open_page, typed):
    page = open_page()
    text = choose(page, gpu=typed)
    assert f"“{typed}”" in text
    assert "This page does not know a GPU of that name." in text
    assert "no kernels" not in text, "that is not known"
    assert "lspci -nn -d 1002::" in text
    assert page.get_by_role("button", name="Copy").count() == 1
    page.locator("details.part > summary").first.click()
    assert page.locator("tbody tr:visible").count() == page.locator("tbody tr").count()


@pytest.mark.parametrize("system", ["Windows", "WSL2"])
def test_on_windows_nobody_is_told_to_use_programs_of_linux(open_page, system):
    text = choose(open_page(), gpu="???", system=system)
    assert "Get-CimInstance Win32_VideoController" in text
    assert "grep" not in text


def test_who_is_not_served_reads_first_what_works_and_then_why(open_page, address):
    text = choose(open_page(), gpu="RX Vega 64")
    title, works, why, *_ = filter(None, text.splitlines())
    assert title == "Radeon RX Vega 64 (gfx900): what works without kernels"
    assert works.startswith("If your PyTorch supports this GPU, two things work: PyTorch's own attention")
    assert "its PyTorch implementation gives the same results" in works
    assert why.startswith("Why it has no kernels: it lacks packed dot products")
    assert f"pip install flash-attn-rocm==0.1.0+rocm7.2 --index-url {address}/rocm7.2/simple/" in text
    assert "Verified for" not in text


BEGIN = ("Make a virtual environment", "Remove an installed PyTorch")
END = (
    "Print its ROCm version", "Install the wheel", "Check whether attention runs",
    "Only for code that imports flash_attn",
)  # fmt: skip
STEPS = {
    "Linux": (*BEGIN, "Install PyTorch 2.10 or newer for ROCm 7.2", *END),
    "Docker": (
        "Make the image once, in a checkout", "Print the ROCm version of its PyTorch",
        "Check whether attention runs on your GPU; the image has", "Only for code that imports flash_attn",
    ),
    "Windows": (*BEGIN, "Install PyTorch 2.10 or newer for ROCm on Windows", *END),
}  # fmt: skip
STEPS["WSL2"] = ("On Windows install AMD's driver with WSL support", *STEPS["Linux"])


@pytest.mark.parametrize("gpu", ["gfx1100", "gfx900"])
@pytest.mark.parametrize("system", STEPS)
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_an_answer_has_the_steps_in_order_and_nothing_of_other_systems(open_page, gpu, system, tool):
    page = open_page()
    text = choose(page, gpu=gpu, tool=tool)
    text = choose(page, system=system)
    if system == "WSL2" and gpu == "gfx900":
        system = "Linux"  # also without kernels, with AMD's list for WSL2 after it
        text = choose(page, system=system)
    words = page.locator("#answer ol > li:visible").all_inner_texts()
    found = [word.startswith(begin) for word, begin in zip(words, STEPS[system], strict=True)]
    assert found == [True] * len(STEPS[system])
    assert ("docker run" in text) == (system == "Docker")
    assert ("uv pip install flash-attn" in text) == (tool == "uv" and system != "Docker")
    assert (SELECTOR in text) == (system in ("Linux", "WSL2"))
    copies = page.get_by_role("button", name="Copy", exact=True).count()
    assert copies == page.locator("#answer pre").count() >= 3


@pytest.mark.parametrize("rocm", ["7.2", "5.7, no wheel"])
def test_on_windows_one_wheel_is_for_every_rocm_version(open_page, address, rocm):
    text = choose(open_page(), gpu="RX 7900 XTX", rocm=rocm, system="Windows")
    assert f"pip install flash-attn-rocm==0.1.0 --index-url {address}/public/simple/" in text
    assert f"pip install flash-attn --index-url {address}/public/simple/" in text
    assert f"What was shown for gfx1100: {HOW}; 42 launches of 1 kernels" in text
    page = open_page()
    text = choose(page, gpu="RX 6900 XT", rocm=rocm, system="Windows")
    page.locator("#answer .record summary").click()
    assert f"It was {HOW}: Windows' loader" in page.inner_text("#answer")
    assert page.locator("#rocm").is_hidden(), "it does not change the answer"
    assert f"What was shown for gfx1030: {NOT_EXECUTED}." in text


def test_a_gpu_that_rocm_does_not_serve_on_windows(open_page):
    text = choose(open_page(), gpu="Instinct MI300X", system="Windows")
    assert "Why it has no kernels: ROCm does not serve it on Windows." in text
    # PyTorch's override is for Linux.
    assert "HSA_OVERRIDE" not in choose(open_page(), gpu="gfx1036", system="Windows")


def test_without_a_wheel_for_windows_the_answer_says_what_works(browser, tmp_path, matrix):
    publish_one(tmp_path, matrix, "7.2", [])
    with serving(tmp_path / "index") as url:
        page = browser.new_page()
        page.goto(f"{url}/")
        text = choose(page, gpu="gfx1100", system="Windows")
        assert "Windows is not supported: this index does not have its wheel yet." in text
        assert "What to do: the wheel for Linux also works in WSL2." in text
        assert "install" not in text
        page.close()


def test_a_withdrawn_only_wheel_is_told_with_its_reason(browser, tmp_path, matrix):
    """A ROCm version in the matrix but missing from this index is also named."""
    wheel = publish_one(tmp_path, matrix, "7.2", [])
    catalogue = catalogue_of(matrix)
    yank(tmp_path / "index", "7.2", wheel.name, "wrong numbers on gfx1030", catalogue=catalogue, now=NOW)
    with serving(tmp_path / "index") as url:
        page = browser.new_page()
        page.goto(f"{url}/")
        text = choose(page, gpu="gfx1030", rocm="7.2, no wheel")
        assert f"its wheel, {wheel.name}, was withdrawn (wrong numbers on gfx1030)" in text
        assert "What to do: wait for a published wheel." in text
        assert "install" not in text.partition("What to do")[0]
        text = choose(page, rocm="6.4, no wheel")
        assert "its wheel is built, but this index does not have it yet" in text
        page.close()


@pytest.mark.parametrize(
    ("choices", "line"),
    [
        ({"tool": "uv"}, "uv pip install flash-attn-rocm==0.1.0+rocm6.4 --index-url {}/rocm6.4/simple/"),
        ({"system": "Docker"}, f"docker run {DEVICES} rocm-fa:6.4"),
    ],
)
def test_other_tools(open_page, address, choices, line):
    text = choose(open_page(), gpu="gfx908", rocm="6.4", **choices)
    assert line.format(address) in text
    made = f"{MAKE_IMAGE} flash_attn_rocm-0.1.0+rocm6.4-"
    assert (made in text) == ("system" in choices)


def test_a_runtime_that_another_wheel_serves(open_page, address):
    page = open_page()
    text = choose(page, gpu="Instinct MI300X", rocm="7.1")
    assert f"pip install flash-attn-rocm==0.1.0+rocm7.2 --index-url {address}/rocm7.1/simple/" in text
    assert "It was built with ROCm 7.2" not in text, "folded away"
    assert "It was built with ROCm 7.2, and also loaded under the runtime of ROCm 7.1." in (
        page.text_content("#answer")
    )


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"gpu": "gfx908", "rocm": "5.7, no wheel"}, "ROCm 5.7 is not supported: no supported torch"),
        ({"gpu": "gfx908", "rocm": "7.0, no wheel"}, "ROCm 7.0 is not supported: not built in our CI"),
    ],
)
def test_what_is_not_served_has_its_reason_and_no_command(open_page, choices, reason):
    text = choose(open_page(), **choices)
    assert reason in text
    assert "no wheel" in text
    assert "install" not in text


def test_the_reason_of_the_gpu_comes_first(open_page):
    text = choose(open_page(), gpu="gfx900", rocm="5.7, no wheel")
    assert "Why it has no kernels: it lacks packed dot products" in text
    assert "ROCm 5.7" not in text


TITLES = """(names) => names.map((name) => {
  // What is typed, as Playwright's fill does it, and the title of the answer to it.
  const box = document.querySelector("#gpu");
  box.value = name;
  box.dispatchEvent(new Event("input", {bubbles: true}));
  const title = document.querySelector("#answer h2");
  return title.checkVisibility() ? title.textContent : "";
})"""


def test_every_gpu_gives_an_answer(open_page, matrix):
    page = open_page()
    names = page.locator("#names option").evaluate_all("all => all.map(each => each.value)")
    assert len(names) > 300
    served = {arch.name for arch in matrix.archs}
    for name, title in zip(names, page.evaluate(TITLES, names), strict=True):
        arch = title.partition(":")[0].removesuffix(")").rpartition("(")[2]
        assert title.startswith(name)
        assert ("your steps" in title) == (arch in served), name


def test_links_lead_to_what_was_published(open_page, address, root):
    page = open_page()
    choose(page, gpu="gfx942")
    page.locator("#answer .record summary").click()
    links = page.locator(f"#answer a:not([href='{SELECTOR}'])")
    names = {link.inner_text(): link.get_attribute("href") for link in links.all()}
    assert list(names)[1:] == ["verification record", "provenance statement"]
    for target in names.values():
        assert page.request.get(f"{address}/{target}").ok
    (wheel,) = root.glob("rocm7.2/simple/flash-attn-rocm/*.whl")
    assert page.request.get(f"{address}/{next(iter(names.values()))}").body() == wheel.read_bytes()
    choose(page, rocm="6.4")
    assert "published without provenance statement" in page.text_content("#answer")


def test_copy_puts_the_command_on_the_clipboard(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    choose(page, gpu="gfx942")
    page.get_by_role("button", name="Copy").nth(4).click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#answer pre").nth(4).inner_text()
    assert copied.startswith("pip install flash-attn-rocm==0.1.0+rocm7.2 ")


def test_all_commands_can_be_copied_from_the_first_to_the_last(open_page, address):
    """The commands run as they stand. Commands for special cases are left out."""
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    choose(page, gpu="gfx942")
    page.get_by_role("button", name="Copy all").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").splitlines() == [
        "python3 -m venv rocm-fa",
        ". rocm-fa/bin/activate",
        "pip uninstall --yes torch",
        'pip install "torch>=2.10" --index-url https://download.pytorch.org/whl/rocm7.2',
        'python -c "import torch; print(torch.version.hip)"',
        f"pip install flash-attn-rocm==0.1.0+rocm7.2 --index-url {address}/rocm7.2/simple/",
        "python -m flash_attn_rocm doctor",
    ]


def test_the_override_of_pytorch_is_among_them(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    choose(page, gpu="gfx1036")
    page.get_by_role("button", name="Copy all").click()
    page.get_by_role("button", name="Copied").wait_for()
    first = page.evaluate("navigator.clipboard.readText()").splitlines()[0]
    assert first == "export HSA_OVERRIDE_GFX_VERSION=10.3.0"


def test_pytorch_for_windows_is_the_package_of_the_gpus_own_arch(open_page):
    page = open_page()
    text = choose(page, gpu="RX 9070 XT", system="Windows")
    line = 'pip install "torch[device-gfx1201]>=2.10" --index-url https://repo.amd.com/rocm/whl-multi-arch/'
    assert line in text
    # For a GPU without a package the page links AMD's page, and the list of commands is incomplete.
    text = choose(page, gpu="RX 6700 XT")
    assert "AMD's releases have no package for this GPU" in text
    assert page.get_by_role("button", name="Copy all").count() == 0


def test_wsl2_has_only_the_gpus_that_amd_supports_there(open_page):
    page = open_page()
    assert "your steps" in choose(page, gpu="RX 7900 XTX", system="WSL2")
    text = choose(page, gpu="RX 6900 XT")
    assert text.startswith("Radeon RX 6900 XT (gfx1030): not in WSL2")
    assert "install" not in text


def test_what_does_not_change_the_answer_is_not_asked(open_page):
    page = open_page()
    shown = {}
    for system in ("Linux", "Windows", "Docker"):
        choose(page, gpu="gfx1100", system=system)
        shown[system] = [name for name in ("rocm", "tool", "torch") if page.locator(f"#{name}").is_visible()]
    assert shown == {"Linux": ["rocm", "tool"], "Windows": ["tool"], "Docker": ["rocm"]}


@pytest.mark.parametrize(
    ("platform", "system"), [("Windows", "Windows"), ("Linux", "Linux"), ("macOS", "Linux")]
)
def test_the_system_is_the_browsers(open_page, browser, address, platform, system):
    context = browser.new_context()
    context.add_init_script(
        f"Object.defineProperty(navigator, 'userAgentData', {{value: {{platform: '{platform}'}}}});"
    )
    page = context.new_page()
    page.goto(f"{address}/")
    assert page.input_value("#system") == system
    context.close()


@pytest.mark.parametrize("gpu", ["Strix Halo", "Radeon 780M", "Radeon 890M"])
def test_where_pytorchs_build_has_no_kernels_a_newer_rocm_is_named(open_page, gpu):
    """HIP 6.4 was reported to refuse gfx1151: HIP's table has it, PyTorch's build lacks kernels for it."""
    page = open_page()
    assert "error 209" not in choose(page, gpu=gpu, rocm="7.2")
    assert "Choose a newer ROCm version." in choose(page, rocm="6.4")
    assert "error 209" not in choose(page, gpu="RX 7900 XTX")


def test_docker_sets_its_variable(open_page):
    text = choose(open_page(), gpu="gfx942", system="Docker")
    assert "export TORCH_INDEX=https://download.pytorch.org/whl/rocm7.2" in text


@pytest.mark.parametrize("gpu", ["gfx942", "RX 9070 XT", "7950X", "RX Vega 64", "strix", "???"])
def test_a_phones_page_is_short_and_copy_stands_below_its_command(open_page, gpu):
    """It was once 9,000 pixels long."""
    page = open_page(viewport={"width": 390, "height": 844})
    choose(page, gpu=gpu)
    assert page.evaluate("document.documentElement.scrollHeight") <= 2500
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for line in page.locator("#answer .line").all():
        command, button = (line.locator(name).bounding_box() for name in ("pre", "button"))
        assert button["y"] >= command["y"] + command["height"]


@pytest.mark.parametrize("width", [390, 1280])
def test_what_ran_on_hardware_is_in_sight(open_page, width):
    """It was the eleventh column, outside of a window of 1280 pixels."""
    page = open_page(viewport={"width": width, "height": 900})
    page.locator("details.part > summary").first.click()
    box = row_of(page, "gfx942").locator("td").last.bounding_box()
    assert box["x"] + box["width"] <= width
    assert "no report" in row_of(page, "gfx942").inner_text()


def test_without_a_clipboard_the_command_is_selected(open_page):
    page = open_page()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    choose(page, gpu="gfx942")
    page.get_by_role("button", name="Copy", exact=True).nth(1).click()
    page.get_by_role("button", name="Selected").wait_for()
    assert page.evaluate("String(getSelection())") == page.locator("#answer pre").nth(1).inner_text()


def test_the_keyboard_is_enough(open_page):
    page = open_page()
    typed = {"gpu": "gfx1100", "system": "WSL2", "rocm": "6.4", "tool": "uv"}
    for name, text in typed.items():  # in the order of the page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == name
        page.keyboard.type(text)
    assert "gfx1100: your steps" in page.inner_text("#answer")
    assert "uv pip install flash-attn-rocm==0.1.0+rocm6.4" in page.inner_text("#answer")
    for focused in (WSL_LIST, "Copy"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == focused
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_screen_readers_are_told(open_page):
    page = open_page()
    for label in ("Your GPU", "ROCm", "System", "Tool"):
        assert page.get_by_label(label, exact=True).count() == 1
    answer = page.locator("#answer")
    assert (answer.get_attribute("aria-live"), answer.get_attribute("aria-atomic")) == ("polite", "true")
    assert page.get_by_role("heading", level=1).count() == 1
    page.locator("details.part > summary").first.click()
    assert page.get_by_role("columnheader").count() == 4
    assert page.get_attribute("html", "lang") == "en"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_contrast_is_enough(open_page, scheme):
    """WCAG 2 AA: 4.5 for text, 3 for the borders of controls."""
    page = open_page(color_scheme=scheme)
    for gpu in ("", "gfx942", "gfx900", "strix"):
        choose(page, gpu=gpu)
        page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        found = page.evaluate(CONTRAST)
        assert {each["name"] for each in found} >= {
            "H1",
            "H2",
            "P",
            "LABEL",
            "TH",
            "TD",
            "SELECT border",
            "INPUT border",
        }
        low = [each for each in found if each["ratio"] < (3 if each["name"].endswith("border") else 4.5)]
        assert low == []


def test_light_and_dark_differ(open_page):
    grounds = [
        open_page(color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in SCHEMES
    ]
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 23, 26)"]


@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_is_cut_off(open_page, width):
    """At 320 pixels (1280 at 400 %), only the table scrolls sideways."""
    page = open_page(viewport={"width": width, "height": 900})
    choose(page, gpu="gfx942")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


SHOTS = {
    "served-light": ("light", (900, 600), "RX 7900 XTX"),
    "not-served-dark": ("dark", (900, 600), "Radeon RX Vega 64"),
    "phone": ("light", (360, 900), "Strix Halo"),
    "pasted-lspci": ("light", (900, 600), lspci("Navi 31 [Radeon RX 7900 XT/7900 XTX]")),
    "pasted-processor": ("dark", (800, 600), "AMD Ryzen 7 7840U w/ Radeon 780M Graphics"),
}


@pytest.mark.parametrize("name", SHOTS)
def test_screenshots(open_page, context, name):
    """For people to look at: build/page/*.png. A release's are in docs/page."""
    scheme, (width, height), gpu = SHOTS[name]
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": height})
    choose(page, gpu=gpu)
    page.locator("#gpu").blur()
    shot = context.build / "page" / f"{name}.png"
    assert page.screenshot(path=shot).startswith(b"\x89PNG")
    kept = CHECKOUT / "docs" / "page" / f"{name}.png"
    assert kept.read_bytes()[16:24] == shot.read_bytes()[16:24], "another size than the kept one"
    assert kept.stat().st_size < 100_000


def test_the_content_policy_stops_what_is_not_ours(browser, address):
    """Including injected scripts and styles."""
    context = browser.new_context()
    page = context.new_page()
    refused = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(f"{address}/")
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.planted = true";
        document.body.append(script);
        const image = document.createElement("img");
        image.src = "/planted.png";
        document.body.append(image);
        document.body.setAttribute("onclick", "window.planted = true");
        document.body.click();
    }""")
    assert page.evaluate("window.planted") is None
    assert len([text for text in refused if "Content Security Policy" in text]) >= 2
    context.close()

"""The page as HTML: readable without JavaScript, nothing loaded from elsewhere, a strict content policy."""

import base64
import hashlib
import shlex
from collections.abc import Iterator
from importlib.resources import files

from wheel_builder.index.finder.data import Answer, Finder, Wheel, answers, torch_notes
from wheel_builder.index.finder.html import Html, element, joined, void
from wheel_builder.matrix.model import PROJECT

INDEX = "INDEX"  # in commands; the script puts the page's own address there
TOOLS = ("pip", "uv", "Docker")
TITLE = f"Find your {PROJECT} wheel"
# Groups by number: the image has no group "render", and its number differs between machines.
DEVICES = (
    "--device /dev/kfd --device /dev/dri "
    "--group-add $(stat -c %g /dev/kfd) --group-add $(stat -c %g /dev/dri/renderD128)"
)
IMAGE = (
    "No registry has the image: the first two commands make it, once, from the published wheel; nothing of "
    "the wheel is compiled. Type them in a checkout of the project, after scripts/venv "
    "wheel_builder/requirements.txt."
)
EMULATED = (
    "What was verified is said for each GPU in the words of its verification record. Where it says "
    "“executed on an ISA emulator”, the wheel's machine code was run by a program that imitates the GPU's "
    "instructions; no GPU took part, and nothing was learnt about time."
)


def html_page(finder: Finder) -> bytes:
    """The whole page."""
    rows = answers(finder)
    body = element(
        "body",
        element("header", element("h1", TITLE), element("p", *_introduction())),
        element(
            "main",
            _form(finder, rows),
            _answer(),
            _table(rows),
            _rocm(finder),
            _torch(finder),
            _withdrawn(finder),
        ),
        _inline("script", _resource("finder.js")),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(), body, lang='en')}\n".encode()


def content_policy() -> str:
    """The page's Content-Security-Policy: only its own inline script and style."""
    script, style = (_digest(_resource(name)) for name in ("finder.js", "finder.css"))
    return (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"
    )


def commands(rocm: str, wheel: Wheel) -> dict[str, str]:
    """The commands to type, by tool, one per line."""
    requirement = f"{PROJECT}=={wheel.version} --index-url {INDEX}/rocm{rocm}/simple/"
    image = (
        f"pip download --no-deps {requirement}",
        f"scripts/wheel-builder runtime-image {shlex.quote(wheel.filename)}",
        f"docker run {DEVICES} rocm-fa:{wheel.rocm}",
    )
    lines = (f"pip install {requirement}", f"uv pip install {requirement}", "\n".join(image))
    return dict(zip(TOOLS, lines, strict=True))


def _head() -> Html:
    return element(
        "head",
        void("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{content_policy()}">'),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        void("meta", name="referrer", content="no-referrer"),
        element("title", TITLE),
        _inline("style", _resource("finder.css")),
    )


def _introduction() -> Iterator[str]:
    yield "Install PyTorch's ROCm build first; the wheel does not pull torch in. "
    yield "Then type the command for your GPU and ROCm version. "
    yield f"Where a command says {INDEX}, write the address of the folder that this page is in. "
    yield EMULATED


def _form(finder: Finder, rows: tuple[Answer, ...]) -> Html:
    gpus = {row.gpu.arch: row.gpu for row in rows}.values()
    groups = [
        element(
            "optgroup",
            *(element("option", name, value=gpu.arch) for name in (gpu.arch, *gpu.devices)),
            label=label,
        )
        for gpu in gpus
        for label in [f"{gpu.arch}, no kernels" if gpu.reason else gpu.arch]
    ]
    rocm = [element("option", each, value=each) for each in finder.runtimes]
    rocm += [
        element("option", f"{each}, no wheel", value=each, data_reason=reason)
        for each, reason in finder.unserved_rocm
    ]
    torch = [
        element("option", name, value=name, **{"data_note" if served else "data_reason": note})
        for name, served, note in torch_notes(finder)
    ]
    tools = [element("option", tool, value=tool) for tool in TOOLS]
    choose = element("option", "choose your GPU", value="")
    fields = {"GPU": (choose, *groups), "ROCm": rocm, "torch": torch, "Tool": tools}
    return element(
        "form",
        *(
            element(
                "div", element("label", name, for_=name.lower()), element("select", *options, id=name.lower())
            )
            for name, options in fields.items()
        ),
        id="choices",
        hidden=True,
        autocomplete="off",
    )


def _answer() -> Html:
    return element(
        "section", id="answer", hidden=True, aria_live="polite", aria_atomic="true", aria_label="Answer"
    )


def _table(rows: tuple[Answer, ...]) -> Html:
    heads = (
        element("th", name, scope="col") for name in ("GPU", "Arch", "ROCm", "Wheel, and what is known of it")
    )
    return joined(
        element("h2", "Every GPU and ROCm version", id="every"),
        element(
            "div",
            element("table", element("thead", element("tr", *heads)), element("tbody", *map(_row, rows))),
            role="region",
            tabindex="0",
            aria_labelledby="every",
        ),
    )


def _row(row: Answer) -> Html:
    return element(
        "tr",
        element("th", ", ".join(row.gpu.devices), scope="row"),
        element("td", row.gpu.arch),
        element("td", row.rocm or "every"),
        element(
            "td",
            *(
                _served(row.gpu.arch, row.rocm, row.wheel, row.text)
                if row.wheel
                else (_not_served(row.text),)
            ),
        ),
        data_arch=row.gpu.arch,
        data_rocm=row.rocm,
    )


def _served(arch: str, rocm: str, wheel: Wheel, text: str) -> Iterator[Html]:
    for tool, line in commands(rocm, wheel).items():
        yield element("pre", element("code", line), data_tool=tool)
    yield element("p", IMAGE, data_tool="Docker")
    if rocm != wheel.rocm:
        yield element(
            "p", f"It was built with ROCm {wheel.rocm}, and also loaded under the runtime of ROCm {rocm}."
        )
    yield element("p", f"Verified for {arch}: {text}.")
    yield element(
        "p",
        element("a", wheel.filename, href=wheel.url),
        f", {wheel.size} bytes, sha256 ",
        element("code", wheel.sha256),
    )
    yield element("p", *_links(wheel))


def _links(wheel: Wheel) -> Iterator[str]:
    names = {"verification": "verification record", "provenance": "provenance statement"}
    for kind, name in names.items():
        url = wheel.attachments.get(kind)
        yield element("a", name, href=url) if url else f"no {name} was published with it"
        yield "; " if kind != "provenance" else "."


def _not_served(text: str) -> Html:
    return element("p", f"Not served: {text}.", class_="no")


def _rocm(finder: Finder) -> Html:
    if not finder.unserved_rocm:
        return Html()
    lines = (element("li", f"ROCm {version}: {reason}.") for version, reason in finder.unserved_rocm)
    return joined(element("h2", "ROCm versions without a wheel"), element("ul", *lines))


def _torch(finder: Finder) -> Html:
    lines = (element("li", f"torch {name}: {note}.") for name, _, note in torch_notes(finder))
    return joined(element("h2", "PyTorch releases"), element("ul", *lines))


def _withdrawn(finder: Finder) -> Html:
    yanked = [wheel for wheel in finder.wheels if wheel.yanked is not None]
    if not yanked:
        return Html()
    lines = (element("li", f"{wheel.filename}: {wheel.yanked or 'no reason was given'}") for wheel in yanked)
    return joined(element("h2", "Withdrawn wheels"), element("ul", *lines))


def _inline(name: str, text: str) -> Html:
    # HTML does not escape the content of script and style; both files are ours, and tested.
    return Html(f"<{name}>{text}</{name}>")


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

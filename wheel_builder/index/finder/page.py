"""The page as HTML: readable without JavaScript, self-contained, with a strict content policy."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files

from wheel_builder.index.finder.data import Finder, Offer, Wheel, lack, offers, torch_notes, windows_offer
from wheel_builder.index.finder.html import Html, element, joined, void
from wheel_builder.index.finder.steps import (
    DOCKER,
    INDEX,
    LINUX,
    SYSTEMS,
    TOOLS,
    WINDOWS,
    WSL2,
    WSL_LIST,
    Step,
    steps,
)
from wheel_builder.matrix.catalogue import Gpu
from wheel_builder.matrix.hardware import HardwareRun
from wheel_builder.matrix.model import PROJECT, PUBLIC
from wheel_builder.tables.products import NO_TORCH, NO_TORCH_6_4, ON_WSL, PACKAGED

DOCUMENTATION = "docs/index.html"  # from the page
TITLE = f"Find your {PROJECT} wheel"
WORKS = (
    "If your PyTorch supports this GPU, two things work: PyTorch's own attention, "
    "torch.nn.functional.scaled_dot_product_attention; and code that calls flash_attn, with this package: "
    "its PyTorch implementation gives the same results, more slowly than kernels, with one warning. "
    "To measure both, run python -m flash_attn_rocm bench."
)
UNKNOWN = (
    "This page does not know a GPU of that name. Paste the output of this command: the page finds names of "
    "GPUs and processors, gfx names and PCI numbers in it."
)
# Commands that name the GPU for this page, with or without a driver: on Linux, on Windows and WSL2.
ASK = "lspci -nn -d 1002:: | grep -E 'VGA|Display|accelerators'"
ASK_WINDOWS = (
    'powershell.exe -Command "Get-CimInstance Win32_VideoController | Format-List Name, PNPDeviceID"'
)
EMULATED = (
    "The text for each GPU comes from its verification record. “Executed on an ISA emulator” means: a "
    "program that imitates the GPU's instructions ran the wheel's machine code. No GPU was used, and no time "
    "was measured. “Under wine” means: Python for Windows called it on a Linux machine, without Windows. "
    "Speed is only modelled. The models exclude caches, clocks under load and launch overhead. For other "
    "projects' kernels they predict 7 % to 58 % more use of the matrix units than counters of an MI300X show "
    "for long sequences, and twice as much for short ones."
)
ASKING = {LINUX: ASK, DOCKER: ASK, WSL2: ASK_WINDOWS, WINDOWS: ASK_WINDOWS}
LEFT_OUT = (
    "{}: PyTorch's builds for ROCm have no kernels for these, so its own operations fail, usually with "
    "“invalid device function”. In a shell with this line (in Docker: --env) every GPU of the machine calls "
    "itself {}. These GPUs run its code, so PyTorch works. This wheel supports both names:"
)
HEADS = ("GPU", "Arch", "Served", "Run on hardware")
OLDER_TORCH = (
    "PyTorch's own builds for this ROCm version have no kernels for this GPU, so its operations fail there "
    "(error 209, “no kernel image is available”). HIP's runtime and this wheel support it. Choose a newer "
    "ROCm version."
)
YES_OR_NO = {True: "yes", False: "no", None: ""}
NOT_ON_WSL = (
    "AMD's ROCm for WSL2 does not support this GPU, so expect it to fail there. Choose Windows or Linux for "
    "their steps. The supported GPUs:"
)
ON_WINDOWS = (
    "It is for every ROCm version. It was executed under wine on an ISA emulator, not on Windows: Windows' "
    "loader, AMD's driver and its HIP runtime were not involved. If you run it there, please send a report."
)
NO_ADDRESSES = "No address of this project, for reports or about security, is public yet."
OTHER_SYSTEM = "What to do: the wheel for Linux also works in WSL2."
REPORTS = (
    "Reports from hardware: python -m flash_attn_rocm selftest runs the same calls on your GPU and writes a "
    "report. The column “Run on hardware” shows reports sent to the project."
)


def html_page(finder: Finder, *, documented: bool = False) -> bytes:
    """The whole page. ``documented`` means there is documentation to link to."""
    found = (*offers(finder), windows_offer(finder))
    body = element(
        "body",
        element(
            "header",
            element("h1", TITLE),
            *_introduction(),
            *_documentation(documented=documented),
            _addresses(finder),
        ),
        element(
            "main",
            _form(finder, found),
            _answer(),
            *_folded("Every GPU", _table(finder, found)),
            *_folded("Steps and wheels", _commands(finder, found)),
            *_folded("What was verified", _verified(finder)),
            *_folded("GPUs without kernels in PyTorch", _overrides(finder)),
            *_folded("A GPU without kernels, or an unknown one", _without_kernels()),
            *_folded("Unsupported versions", _rocm(found)),
            *_folded("PyTorch releases", _torch(finder)),
            *_folded("Withdrawn wheels", _withdrawn(finder)),
        ),
        _inline("script", _script()),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(), body, lang='en')}\n".encode()


def content_policy() -> str:
    """The page's Content-Security-Policy: only its own inline script and style."""
    script, style = _digest(_script()), _digest(_resource("finder.css"))
    return (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"
    )


def _folded(title: str, content: Html) -> Iterator[Html]:
    """A part of the page shown on demand, empty for empty content."""
    if content:
        head = element("summary", element("h2", title))
        yield element("details", head, content, class_="part")


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


def _introduction() -> Iterator[Html]:
    yield element(
        "p",
        "Type the name of your GPU or processor, or paste the output of rocminfo or lspci, or a shop's "
        "title. The answer has all steps, with PyTorch for ROCm, because the wheel does not install it.",
    )
    # The script puts the address there, and hides this.
    words = f"In commands, replace {INDEX} by the address of this page's folder."
    yield element("p", words, id="address")


def _documentation(*, documented: bool) -> Iterator[Html]:
    if documented:
        words = "installation, features, training, troubleshooting by error message"
        link = element("a", "Documentation", href=DOCUMENTATION)
        yield element("p", link, f": {words}.", id="documentation")


def _addresses(finder: Finder) -> Html:
    """Where the project is found, by matrix.yaml."""
    known = finder.catalogue.addresses
    named = {"Repository": known.repository, "reports": known.issues, "security": known.security}
    links = [element("a", label, href=address) for label, address in named.items() if address]
    if not links:
        return element("p", NO_ADDRESSES, id="addresses")
    between = [part for link in links for part in (", ", link)][1:]
    return element("p", *between, ".", id="addresses")


def _verified(finder: Finder) -> Html:
    return joined(element("p", EMULATED), *_reports(finder))


def _reports(finder: Finder) -> Iterator[Html]:
    """Results of users' GPUs, from reports that were sent and signed off."""
    runs = finder.catalogue.hardware
    yield element("p", REPORTS if runs else f"{REPORTS} There is none yet.")
    if runs:
        yield element("ul", *(element("li", f"{run.arch}: {run.words}.") for run in runs))


def _form(finder: Finder, found: tuple[Offer, ...]) -> Html:
    names = (name for gpu in finder.catalogue.gpus for name in (*_names(gpu), *gpu.code_names, gpu.arch))
    *for_rocm, windows = found
    rocm = [
        element("option", offer.rocm, value=offer.rocm)
        if offer.wheel
        else element("option", f"{offer.rocm}, no wheel", value=offer.rocm, data_reason=offer.reason)
        for offer in for_rocm
    ]
    # On Windows the ROCm version is irrelevant: the option's offer has the answer.
    named = {WINDOWS: {"data_offer": windows.rocm, "data_reason": windows.reason}}
    system = [element("option", name, value=name, **named.get(name, {})) for name in SYSTEMS]
    tool = [element("option", name, value=name) for name in TOOLS]
    # The script hides fields without effect on the answer.
    fields = {"System": system, "ROCm": rocm, "Tool": tool}
    return element(
        "form",
        element(
            "div",
            element("label", "Your GPU", for_="gpu"),
            void(
                "input", id="gpu", type="search", list="names", placeholder="RX 7900 XTX, Strix Halo, gfx942",
                autocomplete="off", spellcheck="false",
            ),
            element("datalist", *(element("option", value=name) for name in names), id="names"),
            class_="search",
        ),
        *(
            element(
                "div", element("label", name, for_=name.lower()), element("select", *options, id=name.lower())
            )
            for name, options in fields.items()
        ),
        id="choices",
        hidden=True,
        autocomplete="off",
    )  # fmt: skip


def _names(gpu: Gpu) -> tuple[str, ...]:
    return (*gpu.devices, *gpu.processors)


def _answer() -> Html:
    return element(
        "section", id="answer", hidden=True, aria_live="polite", aria_atomic="true", aria_label="Answer"
    )


def _table(finder: Finder, found: tuple[Offer, ...]) -> Html:
    heads = (element("th", name, scope="col") for name in HEADS)
    rows = (_row(gpu, found, finder.catalogue.hardware) for gpu in finder.catalogue.gpus)
    return element("table", element("thead", element("tr", *heads)), element("tbody", *rows))


def _row(gpu: Gpu, found: tuple[Offer, ...], hardware: tuple[HardwareRun, ...]) -> Html:
    head = (element("th", *_known_as(gpu), scope="row"), element("td", *_arch(gpu), class_="arch"))
    cells = [element("td", f"no kernels: {gpu.reason}", class_="no", colspan="2")]
    if not gpu.reason:
        cells = [_served(gpu, found), _run_on_hardware(gpu, hardware)]
    names, chips = "\n".join(_names(gpu)), "\n".join(gpu.code_names)
    data = {
        "data_arch": gpu.arch, "data_names": names, "data_chips": chips, "data_reason": gpu.reason,
        "data_override": gpu.torch_override, "data_pci": " ".join(gpu.pci_ids),
        "data_lacks": json.dumps({offer.rocm: lack(gpu, offer) for offer in found if lack(gpu, offer)}),
        "data_packaged": "yes" if PACKAGED in gpu.elsewhere else "no",
        "data_wsl": "yes" if ON_WSL in gpu.elsewhere else "no",
        "data_own": "no" if NO_TORCH in gpu.elsewhere else "yes",
        "data_without_torch": "6.4" if NO_TORCH_6_4 in gpu.elsewhere else "",
    }  # fmt: skip
    return element("tr", *head, *cells, **data)


def _arch(gpu: Gpu) -> Iterator[str]:
    yield gpu.arch
    if gpu.code != gpu.arch:
        yield element("span", f" runs the code of {gpu.code}", class_="also")


def _known_as(gpu: Gpu) -> Iterator[str]:
    yield ", ".join(gpu.devices)
    if gpu.code_names:
        yield element("span", f" ({', '.join(gpu.code_names)})", class_="also")
    if gpu.processors:
        yield element("details", element("summary", "in these processors"), ", ".join(gpu.processors))


def _served(gpu: Gpu, found: tuple[Offer, ...]) -> Html:
    """The versions that serve it, and the reasons of versions with a wheel that do not."""
    served = [offer.name for offer in found if offer.wheel and not lack(gpu, offer)]
    not_served = {offer.name: lack(gpu, offer) for offer in found if offer.wheel and lack(gpu, offer)}
    reasons = "; ".join(f"not with {name}: {why}" for name, why in not_served.items())
    words = f"with {', '.join(served)}" if served else "no"
    also = [element("span", f"; {reasons}", class_="also")] if reasons else []
    return element("td", words, *also, class_="" if served else "no", data_head=HEADS[2])


def _run_on_hardware(gpu: Gpu, hardware: tuple[HardwareRun, ...]) -> Html:
    runs = [run for run in hardware if run.arch == gpu.arch]
    if not runs:
        return element("td", "no report", class_="no", data_head=HEADS[3])
    latest = runs[0]
    short = f"{latest.failed} of {latest.kernels} kernels failed" if latest.failed else "yes, passed"
    return element("td", short, title="; ".join(run.words for run in runs), data_head=HEADS[3])


def _commands(finder: Finder, found: tuple[Offer, ...]) -> Html:
    served = [_offer(finder, offer, offer.wheel) for offer in found if offer.wheel]
    return joined(*served)


def _steps(finder: Finder, offer: Offer, wheel: Wheel) -> tuple[Step, ...]:
    floor = finder.catalogue.torch.floor
    candidates = finder.candidates_of(wheel)
    return steps(offer.rocm, wheel, drop_ins=finder.drop_ins, torch_floor=floor, candidates=candidates)


def _offer(finder: Finder, offer: Offer, wheel: Wheel) -> Html:
    """One ROCm version, or Windows. The script shows parts of it in the answer."""
    # Some archs of a Windows wheel may be unexecuted.
    shown = "What was shown" if wheel.platform == offer.rocm else "Verified"
    return element(
        "details",
        element("summary", f"{offer.name}: {PROJECT} {wheel.version}"),
        element("ol", *map(_step, _steps(finder, offer, wheel))),
        *(
            element("p", f"{shown} for {arch}: {text}.", data_arch=arch)
            for arch, text in wheel.verified.items()
        ),
        element(
            "details",
            element("summary", "The file, its hash and its record"),
            *_built_with(offer.rocm, wheel),
            *(part for each in (wheel, *finder.candidates_of(wheel)) for part in _file(each)),
            class_="record",
        ),
        class_="offer",
        data_rocm=offer.rocm,
    )


def _file(wheel: Wheel) -> Iterator[Html]:
    link, digest = element("a", wheel.filename, href=wheel.url), element("code", wheel.sha256)
    yield element("p", link, f", {wheel.size} bytes, sha256 ", digest)
    yield element("p", *_links(wheel))


def _step(step: Step) -> Html:
    """One step. The script shows steps for one system and tool and hides their labels."""
    tool = "" if step.tools == TOOLS or step.systems == (DOCKER,) else f", with {', '.join(step.tools)}"
    link = (" ", element("a", step.link, href=step.link)) if step.link else ()
    return element(
        "li",
        element("span", f"{' and '.join(step.systems)}{tool}: ", class_="for"),
        step.words,
        *link,
        ":" if step.command else ".",
        *([element("pre", element("code", step.command))] if step.command else []),
        data_systems=" ".join(step.systems),
        data_tools=" ".join(step.tools),
        data_packaged=YES_OR_NO[step.packaged],
        data_own=YES_OR_NO[step.own],
        data_gpus=" ".join(step.gpus),
        data_optional=step.optional,
    )


def _built_with(rocm: str, wheel: Wheel) -> Iterator[Html]:
    if wheel.platform == rocm:
        yield element("p", ON_WINDOWS)
    elif wheel.rocm == PUBLIC:
        yield element("p", f"It is for ROCm {', '.join(wheel.serves)}; its record has the evidence.")
    elif rocm != wheel.rocm:
        yield element(
            "p", f"It was built with ROCm {wheel.rocm}, and also loaded under the runtime of ROCm {rocm}."
        )


def _overrides(finder: Finder) -> Html:
    """GPUs missing from PyTorch's own builds, and the setting that makes them run. The script shows one."""
    gpus = [gpu for gpu in finder.catalogue.gpus if gpu.torch_override]
    if not gpus:
        return Html()
    parts = (
        element(
            "div",
            element("p", LEFT_OUT.format(", ".join(same), code)),
            element("pre", element("code", command)),
            id=f"override-{value}",
        )
        for (value, code, command), same in _same(gpus).items()
    )
    return joined(*parts)


def _same(gpus: Sequence[Gpu]) -> dict[tuple[str, str, str], list[str]]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for gpu in gpus:
        found.setdefault((gpu.torch_override, gpu.code, gpu.override), []).append(gpu.arch)
    return found


def _without_kernels() -> Html:
    return joined(
        element("p", WORKS, id="works"),
        element("p", OLDER_TORCH, id="older-torch"),
        element("p", NOT_ON_WSL, " ", element("a", "AMD's list", href=WSL_LIST), ".", id="not-on-wsl"),
        element("p", UNKNOWN, id="unknown"),
        *(element("pre", element("code", line), id=f"ask-{system}") for system, line in ASKING.items()),
    )


def _links(wheel: Wheel) -> Iterator[str]:
    names = {"verification": "verification record", "provenance": "provenance statement"}
    for kind, name in names.items():
        url = wheel.attachments.get(kind)
        yield element("a", name, href=url) if url else f"published without {name}"
        yield "; " if kind != "provenance" else "."


def _rocm(found: tuple[Offer, ...]) -> Html:
    *for_rocm, windows = found
    served = [offer.rocm for offer in for_rocm if offer.wheel]
    lines = [element("li", f"{offer.name}: {offer.reason}.") for offer in for_rocm if not offer.wheel]
    others = f"use PyTorch's build for ROCm {' or '.join(served)}" if served else "wait for a published wheel"
    todo = f"What to do: {others}."
    parts = [element("ul", *lines)] if lines else []
    parts += [element("p", todo, id="other-rocm")] if lines else []
    if not windows.wheel:
        said = f"There is no wheel for Windows: {windows.reason}."
        parts += [element("p", said), element("p", OTHER_SYSTEM, id="other-system")]
    return joined(*parts)


def _torch(finder: Finder) -> Html:
    lines = (element("li", f"torch {name}: {note}.") for name, _, note in torch_notes(finder))
    return joined(element("ul", *lines))


def _withdrawn(finder: Finder) -> Html:
    yanked = [wheel for wheel in finder.wheels if wheel.yanked is not None]
    if not yanked:
        return Html()
    lines = (element("li", f"{wheel.filename}: {wheel.yanked or 'no reason was given'}") for wheel in yanked)
    return joined(element("ul", *lines))


def _inline(name: str, text: str) -> Html:
    # HTML does not escape the content of script and style. Both files are ours, and tested.
    return Html(f"<{name}>{text}</{name}>")


def _script() -> str:
    return "".join(map(_resource, ("match.js", "copy.js", "finder.js")))


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

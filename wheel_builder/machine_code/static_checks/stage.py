"""Static checks of the finished wheel's disassembly, before the first execution.

In: the wheel, the builder image with its LLVM tools, the reviewed golden file. Out: ``report.json`` with each
kernel's resources and the allowed differences from the golden file, and the disassembly, a pair
``<arch>-<n>.co``, ``<arch>-<n>.s`` for each code object. Raises ``StaticCheckError`` with every reason to
refuse the wheel.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import StaticCheckError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_tree
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.library import device_code
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, read_wheel
from wheel_builder.machine_code.disassembly.listing import list_code, tools_in
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.emulator.coverage import unimplemented
from wheel_builder.machine_code.static_checks.check import Report, check_wheel, programs, update_golden
from wheel_builder.machine_code.static_checks.findings import Finding
from wheel_builder.machine_code.static_checks.golden import CHECK as GOLDEN_CHECK
from wheel_builder.machine_code.static_checks.golden import GOLDEN

RECORD = "report.json"


def check_static(
    wheel: Path,
    builder: Artifact,
    *,
    rocm: str,
    checkout: Path,
    store: Store,
    log: Path,
    update: bool = False,
    run: Runner = run,
) -> Artifact:
    """Run every static check over ``wheel``, built by the compiler of ``rocm``.

    Facts: ``archs`` and ``differences``. ``update`` first writes the kernels' resources into the golden file.
    Other findings still refuse the wheel.
    """

    def check() -> Report:
        tools = tools_in(builder)
        return check_wheel(
            wheel, rocm=rocm, tools=tools, checkout=checkout, store=store, max_mib=MAX_READ_MIB, log=log,
            run=run,
        )  # fmt: skip

    if update:
        update_golden(checkout, check())
    content = read_wheel(wheel, max_mib=MAX_READ_MIB)
    inputs = {
        "rocm": rocm,
        "code": digests(device_code(content)),
        "image": builder.facts["image_id"],
        "reviewed": sha256_tree(checkout, [checkout / GOLDEN]),
        **programs(checkout),
    }

    def make(out: Path) -> Mapping[str, Any]:
        facts = summed_up(report := check())
        refuse(wheel.name, report.failures)
        (out / RECORD).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        return facts

    return store.get_or_make("static-checks", inputs, make)


def summed_up(report: Report) -> Mapping[str, Any]:
    """The part of a report for the record: each kernel's resources and differences from the golden file."""
    archs = {
        arch: {name: asdict(entry) for name, entry in kernels.items()}
        for arch, kernels in report.taken.items()
    }
    return {"archs": archs, "differences": [str(finding) for finding in report.findings if not finding.fails]}


def refuse(name: str, failures: Sequence[Finding]) -> None:
    """Raise ``StaticCheckError`` if there are failures, with advice for their kind."""
    if not failures:
        return
    only_golden = all(finding.check == GOLDEN_CHECK for finding in failures)
    advice = (
        "if the new numbers are right, `scripts/wheel-builder verify --update WHEEL`, and review the diff"
        if only_golden
        else "fix the kernel; the addresses are those of llvm-objdump -d"
    )
    title = f"the static checks refuse {name}"
    raise StaticCheckError(title, [str(finding) for finding in failures], advice=advice)


def disassemble_wheel(
    wheel: Path, builder: Artifact, *, store: Store, log: Path, run: Runner = run
) -> Artifact:
    """The wheel's code objects with their disassembly, in the fake HIP runtime's format.

    Facts: ``code_objects``, their number. Raises as ``check_wheel`` for unreadable wheels.
    """
    codes = device_code(read_wheel(wheel, max_mib=MAX_READ_MIB))
    inputs = {"code": digests(codes), "image": builder.facts["image_id"]}

    def make(out: Path) -> Mapping[str, Any]:
        listings = list_code(codes, tools=tools_in(builder), store=store, log=log, run=run)
        for number, (code, listing) in enumerate(zip(codes, listings, strict=True)):
            (out / f"{code.arch}-{number}.co").write_bytes(code.data)
            (out / f"{code.arch}-{number}.s").write_text(listing.disassembly, encoding="utf-8")
        return {"code_objects": len(codes)}

    return store.get_or_make("wheel-disassembly", inputs, make)


def digests(codes: Sequence[CodeObject]) -> list[list[str]]:
    """The arch and the sha256 of each code object, the only inputs of these checks from a wheel."""
    return [[code.arch, hashlib.sha256(code.data).hexdigest()] for code in codes]


def refuse_unimplemented(
    name: str, core: Core, disassembly: Artifact, *, emulator: Artifact, store: Store
) -> None:
    """Raise ``StaticCheckError`` with each mnemonic of the wheel ``name`` unknown to the emulator.

    ``core`` is that of ``emulator``. The missing mnemonics of an arch are stored by the texts.
    """
    listed: Mapping[str, str] = disassembly.manifest["files"]
    texts: dict[str, list[str]] = {}
    for file in sorted(listed):
        if file.endswith(".s"):
            texts.setdefault(file.rpartition("-")[0], []).append(file)

    def lacking(arch: str, files: Sequence[str]) -> list[str]:
        def make(_: Path) -> Mapping[str, Any]:
            read = ((disassembly.path / file).read_text(encoding="utf-8") for file in files)
            return {"missing": unimplemented(core, {arch: read})}

        inputs = {"arch": arch, "texts": [listed[file] for file in files], "emulator": emulator.key}
        return list(store.get_or_make("unimplemented", inputs, make).facts["missing"])

    if missing := [line for arch, files in texts.items() for line in lacking(arch, files)]:
        title = f"the emulator does not have instructions that the kernels of {name} use"
        advice = (
            "implement them in machine_code/emulator/core, with vectors in tests/engine/emulator/semantics"
        )
        raise StaticCheckError(title, missing, advice=advice)

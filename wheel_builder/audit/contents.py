"""Whether a wheel holds exactly the files and metadata of its sources. Pure."""

import hashlib
from collections.abc import Collection, Iterator, Sequence

from wheel_builder.audit.sbom import FOLDER as SBOMS
from wheel_builder.build.product import Product
from wheel_builder.build.sbom import FILE as SBOM
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY
from wheel_builder.files.wheels.wheelfile import (
    WheelFile,
    metadata_headers,
    wheel_headers,
    wheel_text_problems,
)

# pip and uv treat a higher major version as another format.
WHEEL_VERSION = "1.0"
DESCRIBING = ("METADATA", "WHEEL", "RECORD")
# Files added by a build to those of the sources.
BUILT = frozenset({LIBRARY, f"{{dist_info}}/{SBOMS}/{SBOM}"})
BUILT_FOR_WINDOWS = BUILT - {LIBRARY} | {WINDOWS_LIBRARY}
WHEEL_FIELDS = frozenset({"Wheel-Version", "Generator", "Root-Is-Purelib", "Build", "Tag"})


def file_problems(
    wheel: WheelFile, product: Product, built: Collection[str] = BUILT
) -> Iterator[tuple[str, str]]:
    """Found and expected, for files that are extra, missing or changed."""
    known = {f"{wheel.dist_info}/licenses/{name}": digest for name, digest in product.licenses.items()}
    known |= product.files
    made = {f"{wheel.dist_info}/{name}" for name in DESCRIBING}
    made |= {name.format(dist_info=wheel.dist_info) for name in built}
    if extra := sorted(wheel.files.keys() - known.keys() - made):
        library = ", the library" if built else ""
        yield some(extra), f"only files that its sources have{library} and what describes the wheel"
    # Other rules report a missing library, RECORD, METADATA or SBOM in more detail.
    if missing := sorted(known.keys() - wheel.files.keys()):
        yield f"no {some(missing)}", "every file of its sources"
    held = {name: wheel.files[name] for name in known.keys() & wheel.files.keys()}
    changed = [name for name, data in held.items() if hashlib.sha256(data).hexdigest() != known[name]]
    if changed:
        yield f"{some(sorted(changed))}, which its sources have with another content", "files as its sources"


def metadata_problems(wheel: WheelFile, product: Product) -> Iterator[tuple[str, str]]:
    """Found and expected, for fields of METADATA and WHEEL that differ from the sources."""
    headers, body = metadata_headers(wheel)
    found = {name: values for name, values in headers.items() if name not in ("Metadata-Version", "Version")}
    for name in sorted(found.keys() | product.fields.keys()):
        has, expected = tuple(sorted(found.get(name, ()))), product.fields.get(name, ())
        if has != expected:
            yield f"METADATA says {name}: {_values(has)}", _values(expected)
    if body.strip() != product.readme.strip():
        yield f"METADATA has a description of {len(body)} bytes", "the readme of its sources"
    yield from _wheel_problems(wheel, product)


def _wheel_problems(wheel: WheelFile, product: Product) -> Iterator[tuple[str, str]]:
    yield from ((problem, "WHEEL as its build writes it") for problem in wheel_text_problems(wheel))
    headers = wheel_headers(wheel)
    if (version := headers.get("Wheel-Version", ())) != (WHEEL_VERSION,):
        yield f"WHEEL says Wheel-Version: {_values(version)}", WHEEL_VERSION
    wanted = (product.build,) if product.build else ()
    if (build := headers.get("Build", ())) != wanted:
        yield f"WHEEL says Build: {_values(build)}", _values(wanted)
    for name in sorted(headers.keys() - WHEEL_FIELDS):
        yield f"WHEEL says {name}: {_values(headers[name])}", f"only {', '.join(sorted(WHEEL_FIELDS))}"


def _values(values: Sequence[str]) -> str:
    return ", ".join(values) or "nothing"


def some(names: Sequence[str] | frozenset[str]) -> str:
    """The first few names, and how many more there are."""
    first = sorted(names)[:4]
    more = f" and {len(names) - len(first)} more" if len(names) > len(first) else ""
    return ", ".join(first) + more

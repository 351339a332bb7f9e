"""The wheel's software bill of materials: CycloneDX, for ``dist-info/sboms`` (PEP 770). Pure.

It lists the wheel's parts and compilers, without times or places, so equal inputs give equal bytes. The
provenance statement lists every package of the image.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from wheel_builder.build.packages import compiler_packages
from wheel_builder.build.zstd import Zstd
from wheel_builder.matrix.model import PROJECT

FILE = f"{PROJECT}.cdx.json"
SPEC_VERSION = "1.6"
ZSTD_SOURCE = "zstd.c"
LLVM_LICENCE = "Apache-2.0 WITH LLVM-exception"
# Prefix of a package's name -> SPDX expression.
LICENCES = {
    "hipcc": "MIT",
    "libamdhip64": "MIT",
    "hip-dev": "MIT",
    "rocm-core": "MIT",
    "rocm-device-libs": "NCSA",
    "": LLVM_LICENCE,
}


@dataclass(frozen=True)
class Materials:
    """The materials of a wheel.

    ``sources`` is the sha256 over its sources, ``system`` the image's PRETTY_NAME, ``packages`` its packages
    (name -> version). ``libcxx`` is the release of zig's C++ library, ``torch`` the release of the stable
    headers, ``torch_sha256`` the sha256 over them. ``zstd`` is the release in the library, None
    for old commits.
    """

    version: str
    sources: str
    system: str
    packages: Mapping[str, str]
    zig: str
    libcxx: str
    torch: str
    torch_sha256: str
    zstd: Zstd | None


def materials_of(
    version: str, sources: str, image: Mapping[str, Any], torch: tuple[str, str], zstd: Zstd | None
) -> Materials:
    """The materials, from the builder image's facts. ``torch`` are release and sha256 of the headers."""
    return Materials(
        version=version,
        sources=sources,
        system=str(image["os"]),
        packages=image["packages"],
        zig=str(image["python_packages"]["ziglang"]),
        libcxx=str(image["libcxx"]),
        torch=torch[0],
        torch_sha256=torch[1],
        zstd=zstd,
    )


def sbom_text(materials: Materials) -> str:
    """The text of the SBOM in the wheel."""
    return json.dumps(sbom(materials), indent=1, sort_keys=True) + "\n"


def sbom(materials: Materials) -> dict[str, Any]:
    """The SBOM. Scope ``required``: in the wheel. ``excluded``: only used to make it."""
    product = {
        **_component("application", PROJECT, materials.version, "MIT", _pypi(PROJECT, materials.version)),
        "description": "FlashAttention for AMD GPUs",
    }
    parts = sorted(_parts(materials), key=lambda part: str(part["bom-ref"]))
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": product, "lifecycles": [{"phase": "build"}]},
        "components": parts,
        "dependencies": [{"ref": product["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def versions(document: Mapping[str, Any]) -> dict[str, str]:
    """Name -> version of an SBOM's components."""
    return {str(part["name"]): str(part.get("version", "")) for part in document["components"]}


def source_digest(document: Mapping[str, Any]) -> str:
    """The sha256 over the sources in the SBOM, empty if missing."""
    hashes = [
        h
        for part in document["components"]
        if part["name"] == f"{PROJECT} sources"
        for h in part.get("hashes", ())
    ]
    return str(hashes[0]["content"]) if hashes else ""


def _parts(materials: Materials) -> Iterator[dict[str, Any]]:
    own = _component(
        "library",
        f"{PROJECT} sources",
        materials.version,
        "MIT",
        f"{_pypi(PROJECT, materials.version)}#kernels",
    )
    what = "the host library, the Python package and what builds them; device code is of the same commit"
    own["description"] = what
    yield {**own, "scope": "required", "hashes": [{"alg": "SHA-256", "content": materials.sources}]}
    libcxx = f"pkg:github/llvm/llvm-project@llvmorg-{materials.libcxx}#libcxx"
    yield {
        **_component("library", "libc++", materials.libcxx, LLVM_LICENCE, libcxx),
        "scope": "required",
        "description": "linked statically, with libc++abi and libunwind, by zig",
    }
    torch = _component("library", "torch", materials.torch, "BSD-3-Clause", _pypi("torch", materials.torch))
    yield {
        **torch,
        "scope": "required",
        "description": "only its stable headers are compiled in; the user brings the library",
        "properties": [{"name": f"{PROJECT}:headers-sha256", "value": materials.torch_sha256}],
    }
    yield from [_zstd(materials.zstd)] if materials.zstd else []
    zig = _component("application", "ziglang", materials.zig, "MIT", _pypi("ziglang", materials.zig))
    yield {**zig, "scope": "excluded", "description": "compiles and links the host library"}
    for name, version in compiler_packages(materials.packages).items():
        licence = next(text for start, text in LICENCES.items() if name.startswith(start))
        purl = _package_url(materials.system, name, version)
        yield {**_component("application", name, version, licence, purl), "scope": "excluded"}


def _zstd(zstd: Zstd) -> dict[str, Any]:
    purl = f"pkg:github/facebook/zstd@v{zstd.version}"
    sdist = f"{zstd.sdist.name} {zstd.sdist.version}, sha256 {zstd.sdist.sha256}"
    return {
        **_component("library", "zstd", zstd.version, "BSD-3-Clause", purl),
        "scope": "required",
        "description": f"its decoder, linked statically, unpacks device code; from the source of {sdist}",
        "hashes": [{"alg": "SHA-256", "content": zstd.files[ZSTD_SOURCE]}],
    }


def _component(kind: str, name: str, version: str, licence: str, purl: str) -> dict[str, Any]:
    return {
        "type": kind,
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{"expression": licence}],
        "purl": purl,
    }


def _pypi(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{quote(version, safe='.-_~')}"


def _package_url(system: str, name: str, version: str) -> str:
    vendor = system.partition(" ")[0].lower()
    return f"pkg:deb/{vendor}/{quote(name)}@{quote(version, safe='.-_~:')}?arch=amd64"

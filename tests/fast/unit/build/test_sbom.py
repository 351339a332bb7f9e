"""The SBOM: valid by the schema, reproducible, and compared with the wheel by the audit."""

import json
from dataclasses import replace

import pytest
from packageurl import PackageURL

from tests.tools.made.wheels import EXPECTATION, MATERIALS, SBOM, good_files, write_wheel
from wheel_builder.audit.stage import audit_wheel
from wheel_builder.base.errors import AuditError
from wheel_builder.build.packages import compiler_packages
from wheel_builder.build.sbom import sbom, sbom_text, source_digest, versions


def test_it_is_valid_by_the_schema():
    # Imported late: the import makes parsers for two seconds, and each process collects this file.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom_text(MATERIALS)) is None


def test_it_names_what_is_in_the_wheel_with_versions_licences_and_purls():
    parts = {part["name"]: part for part in sbom(MATERIALS)["components"]}
    assert {name: part["scope"] for name, part in parts.items()} == {
        "flash-attn-rocm sources": "required",
        "libc++": "required",
        "torch": "required",
        "zstd": "required",
        "ziglang": "excluded",
        "clang-22": "excluded",
        "hipcc": "excluded",
    }
    assert parts["clang-22"]["purl"] == "pkg:deb/debian/clang-22@1:22.1.8-3?arch=amd64"
    assert parts["zstd"]["purl"] == "pkg:github/facebook/zstd@v1.5.7"
    assert parts["zstd"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert parts["zstd"]["hashes"] == [{"alg": "SHA-256", "content": "4" * 64}]
    assert "zstandard 0.25.0, sha256 " + "3" * 64 in parts["zstd"]["description"]
    assert parts["hipcc"]["licenses"] == [{"expression": "MIT"}]
    for part in parts.values():
        assert PackageURL.from_string(part["purl"]).to_string() == part["purl"]
        assert part["licenses"][0]["expression"]


def test_the_order_of_packages_does_not_matter():
    turned = dict(reversed(MATERIALS.packages.items()))
    assert sbom_text(replace(MATERIALS, packages=turned)) == sbom_text(MATERIALS)


def test_it_can_be_read_back():
    document = json.loads(sbom_text(MATERIALS))
    assert source_digest(document) == MATERIALS.sources
    assert versions(document)["ziglang"] == MATERIALS.zig


def test_the_compiler_is_found_among_debians_and_amds_packages():
    packages = {"rocm-llvm": "20.0", "hip-dev": "7.1", "llvmish": "1", "libllvm22": "1:22.1.8-3", "bash": "5"}
    assert sorted(compiler_packages(packages)) == ["hip-dev", "libllvm22", "rocm-llvm"]
    assert compiler_packages({"gcc": "1"}) == {"gcc": "1"}


def changed(edit):
    document = sbom(MATERIALS)
    edit(document)
    return {SBOM: json.dumps(document).encode()}


def part(document, name):
    return next(each for each in document["components"] if each["name"] == name)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (
            lambda d: d.update(serialNumber="urn:uuid:1"),
            "serialNumber in it, which differs from build to build",
        ),
        (lambda d: d["metadata"].update(timestamp="2026"), "timestamp in it, which differs"),
        (
            lambda d: d["metadata"]["component"].update(version="9"),
            "it is about version 9, but the wheel is 0.1",
        ),
        (
            lambda d: part(d, "torch").update(version="2.12.0"),
            "it says torch 2.12.0, but headers of torch 2.13.0",
        ),
        (lambda d: part(d, "libc++").update(name="libstdc++"), "it does not name libc++ and its version"),
        (lambda d: part(d, "flash-attn-rocm sources").pop("hashes"), "it has no sha256 of the sources"),
        (
            lambda d: part(d, "clang-22").update(version="1:21.1.8-1"),
            "it names clang 21.1.8, but the code objects say 22.1.8",
        ),
        (lambda d: d.update(specVersion="1.4"), "CycloneDX 1.4, not CycloneDX 1.6"),
        (lambda d: d.pop("components"), "it has not the form of a SBOM (KeyError: 'components')"),
        (lambda d: d.update(components=[1]), "it has not the form of a SBOM (TypeError"),
    ],
)
def test_the_audit_refuses_a_sbom_that_is_not_the_wheels(tmp_path, edit, words):
    wheel = write_wheel(tmp_path, good_files() | changed(edit))
    with pytest.raises(AuditError) as caught:
        audit_wheel(wheel, EXPECTATION)
    [problem] = caught.value.problems
    assert problem.startswith("sbom: found ")
    assert words in problem

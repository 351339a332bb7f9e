"""Statements: their form, their evidence, and a message for every disagreement with the wheel."""

import hashlib
import json
import subprocess
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.checkouts import GIT, commit_all
from tests.tools.made.documents import changed, places
from tests.tools.made.wheels import (
    ARCHS,
    DIST_INFO,
    KERNELS,
    MATERIALS,
    PRODUCT,
    ROCM,
    VERSION,
    code_object,
    good_files,
    write_wheel,
)
from wheel_builder.base.errors import ProvenanceError
from wheel_builder.base.store import Artifact, sha256_file
from wheel_builder.base.words import one_line
from wheel_builder.build.sbom import sbom, sbom_text
from wheel_builder.build.source import Source, changed_files, read_flags, read_remotes, remote_uri
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.index.publish import publish
from wheel_builder.matrix.model import Job, Package, Rocm
from wheel_builder.provenance.attest import facts_of, refresh_provenance, verify_provenance, write_provenance
from wheel_builder.provenance.check import provenance_problems, signature_words
from wheel_builder.provenance.commit import Base, Recipe, Tree
from wheel_builder.provenance.provenance import (
    LOCAL,
    PREDICATE,
    RunDetails,
    code_digest,
    make_provenance,
    parse_provenance,
    read_provenance,
    run_details,
)
from wheel_builder.provenance.records import provenance_path, record_path, write_record
from wheel_builder.provenance.standing import FETCH
from wheel_builder.provenance.statement import Annotations, Resource

COMMIT = "c0ffee" * 6 + "c0ff"
SOURCE = Source(COMMIT, "", (), MATERIALS.sources, {"device": ("-O3",), "host": ("-O2",)}, "315619200")
RECIPE = Recipe(
    flags=SOURCE.flags, llvm={ROCM: "/usr/lib/llvm-22/bin", "6.4": "/usr/lib/llvm-21/bin"},
    platform_tag="manylinux_2_28_x86_64", source_date_epoch=SOURCE.source_date_epoch,
    torch_headers=MATERIALS.torch, torch_headers_sha256=MATERIALS.torch_sha256, zstd=MATERIALS.zstd,
    requirements="9" * 64,
    zig=MATERIALS.zig, bases={ROCM: Base("debian:sid-slim", "sid", ("clang-22", "hipcc"))},
    pins=f"ziglang=={MATERIALS.zig} \\\n    --hash=sha256:0\n", public="6.4",
)  # fmt: skip
TREE = Tree(content=MATERIALS.sources, sources="4" * 64, recipe=RECIPE, product=PRODUCT)
PACKAGE = Package("2.10", MATERIALS.torch, MATERIALS.torch_sha256, "manylinux_2_28_x86_64", 12)
JOB = Job(Rocm(ROCM, "debian", "debian:sid-slim", "/usr/lib/llvm-22/bin", ARCHS), ARCHS)
IMAGE = Artifact(
    path=None,
    manifest={
        "key": "i",
        "inputs": {"files": {"builder-requirements.txt": "9" * 64}},
        "facts": {
            "ref": "builder:7.2", "image_id": f"sha256:{'1' * 64}", "os": MATERIALS.system,
            "packages": dict(MATERIALS.packages), "python_packages": {"ziglang": MATERIALS.zig},
            "libcxx": MATERIALS.libcxx,
            "base": {
                "ref": "flash-attn-rocm-base:sid", "image_id": f"sha256:{'2' * 64}", "origin": "mmdebstrap",
            },
        },
    },
    reused=True,
)  # fmt: skip


def code(arch, seconds=1.0):
    objects = {f"{name}.hsaco": code_object(arch, [name]) for name in KERNELS}
    files = {name: hashlib.sha256(data).hexdigest() for name, data in objects.items()}
    files["resources.json"] = str(seconds)
    return Artifact(None, {"key": arch, "files": files, "facts": {"arch": arch}}, reused=True)


@pytest.fixture
def wheel(tmp_path):
    """A good wheel with its record and the stored result it came from."""
    file = write_wheel(tmp_path)
    write_record(file, {"sha256": sha256_file(file), "archs": {}})
    return file


@pytest.fixture
def made(wheel, tmp_path):
    """The wheel's statement, as the release makes it."""
    facts = {"wheel": wheel.name, "sha256": sha256_file(wheel)}
    built = Artifact(tmp_path, {"key": "w", "inputs": {"sources": TREE.sources}, "facts": facts}, reused=True)
    (tmp_path / "manifest.json").write_text("{}")
    return make_provenance(
        JOB, PACKAGE, SOURCE, version=VERSION, image=IMAGE, device_code=[code(a) for a in ARCHS], wheel=built,
        run=RunDetails(LOCAL, "2026-11-21T10:00:00Z"),
    )  # fmt: skip


@pytest.fixture
def written(wheel, made):
    write_provenance(wheel, made)
    return read_provenance(provenance_path(wheel))


def problems(wheel, found, **changes):
    facts = facts_of(read_wheel(wheel, max_mib=64), found, CHECKOUT)
    known = {"tree": TREE, "remotes": ("git@forge.invalid:o/r.git",)}
    return list(provenance_problems(found, replace(facts, **known | changes)))


def test_a_statement_has_the_form_of_in_toto_and_slsa(wheel, made):
    statement = json.loads(write_provenance(wheel, made).read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [{"name": wheel.name, "digest": {"sha256": sha256_file(wheel)}}]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"rocm": ROCM, "archs": list(ARCHS), "version": VERSION}
    named = {one["name"]: one for one in definition["resolvedDependencies"]}
    assert named["source"]["digest"] == {"gitCommit": COMMIT}
    assert named["source"]["annotations"] == {"dirty": False, "content_sha256": MATERIALS.sources}
    assert named["builder-image"]["digest"] == {"sha256": "1" * 64}
    assert named["builder-image"]["annotations"]["packages"] == dict(MATERIALS.packages)
    assert named["base-image"]["digest"] == {"sha256": "2" * 64}
    assert named["torch-headers"]["digest"] == {"sha256": MATERIALS.torch_sha256}
    assert named["ziglang"]["uri"] == f"pkg:pypi/ziglang@{MATERIALS.zig}"
    assert definition["internalParameters"]["flags"] == {"device": ["-O3"], "host": ["-O2"]}
    byproducts = {one["name"]: one["digest"] for one in statement["predicate"]["runDetails"]["byproducts"]}
    assert byproducts[record_path(wheel).name] == {"sha256": sha256_file(record_path(wheel))}
    # Every resource has a URI or a digest.
    assert all(one.get("uri") or one.get("digest") for one in definition["resolvedDependencies"])


def test_what_is_written_is_read_back(wheel, made):
    assert parse_provenance(made.to_json().encode(), "a").to_json() == made.to_json()
    assert made.to_json() == made.to_json()


def test_how_long_a_compiler_took_is_not_in_the_statement():
    assert code_digest(code("gfx908", 1.0)) == code_digest(code("gfx908", 2.0))


def test_a_sound_statement_agrees_with_everything(wheel, written):
    assert problems(wheel, written) == []


def test_another_record_is_told_and_can_be_taken_up(wheel, written):
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": {"gfx908": {"numerics": "n"}}})
    [problem] = problems(wheel, written)
    assert problem.startswith("record: the statement says sha256 ")
    refresh_provenance(wheel)
    assert problems(wheel, read_provenance(provenance_path(wheel))) == []


def test_a_wheel_without_statement_gets_none_by_refreshing(wheel):
    refresh_provenance(wheel)
    assert not provenance_path(wheel).exists()


def test_all_faults_of_a_foreign_wheel_at_once(wheel, written):
    files = good_files()
    files["flash_attn_rocm/__init__.py"] = b"import os\n"
    write_wheel(wheel.parent, files)
    found = [problem.partition(":")[0] for problem in problems(wheel, written)]
    assert found == ["file", "record", "contents"]


def with_parameters(found, **changes):
    return replace(found, parameters={**found.parameters, **changes})


def with_source(found, **annotations):
    source = found.dependency("source").model_copy(update={"annotations": Annotations(**annotations)})
    return replace(found, dependencies=(source, *found.dependencies[1:]))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda p: replace(p, sha256="0" * 64), "file: the statement is about a wheel with sha256 0000"),
        (lambda p: replace(p, wheel="b.whl"), "file: the statement is about b.whl, but this is flash_attn"),
        (
            lambda p: replace(p, version="9+rocm7.2"),
            "file: the statement says version 9+rocm7.2, but the wheel is",
        ),
        (
            lambda p: replace(p, rocm="6.4"),
            "file: the statement says ROCm 6.4, but the wheel is 0.1.0+rocm7.2",
        ),
        (
            lambda p: replace(p, archs=("gfx908",)),
            "file: the statement says archs gfx908, but the wheel holds",
        ),
        (
            lambda p: replace(p, byproducts=()),
            "record: the statement names none, so the wheel was not verified",
        ),
        (
            lambda p: with_source(p, dirty=True, changed=["kernels/a"], content_sha256=MATERIALS.sources),
            "recipe: it was built from sources that differ from their commit: kernels/a",
        ),
        (
            lambda p: replace(p, dependencies=p.dependencies[1:]),
            "recipe: the statement names no commit, so the wheel cannot be rebuilt",
        ),
        (
            lambda p: replace(
                p, dependencies=(*p.dependencies[:1], Resource(name="source-tree"), *p.dependencies[2:])
            ),
            "recipe: it says sources with sha256 none, but those of its commit have 4444",
        ),
        (
            lambda p: replace(p, parameters={}),
            "recipe: it says device flags nothing, but those of its commit are -O3",
        ),
        (
            lambda p: with_parameters(p, flags={"device": ["-O0"], "host": ["-O2"]}),
            "recipe: it says device flags -O0, but those of its commit are -O3",
        ),
        (
            lambda p: with_parameters(p, flags={"device": ["-O3"], "host": ["-O2"], "more": ["-x"]}),
            "recipe: it says more flags -x, but those of its commit are nothing",
        ),
        (
            lambda p: with_parameters(p, llvm="/usr/lib/llvm-21/bin"),
            "recipe: it says llvm /usr/lib/llvm-21/bin, but those of its commit are /usr/lib/llvm-22/bin",
        ),
        (
            lambda p: with_parameters(p, platform_tag="linux_x86_64"),
            "recipe: it says platform_tag linux_x86_64, but those of its commit are manylinux_2_28_x86_64",
        ),
        (
            lambda p: with_parameters(p, source_date_epoch="1"),
            "recipe: it says source_date_epoch 1, but those of its commit are 315619200",
        ),
        (
            lambda p: replace(p, dependencies=tuple(d for d in p.dependencies if d.name != "torch-headers")),
            "recipe: it says torch-headers nothing, but those of its commit are pkg:pypi/torch@2.13.0 7777",
        ),
        (
            lambda p: replace(p, dependencies=tuple(d for d in p.dependencies if d.name != "ziglang")),
            "recipe: it says ziglang nothing, but those of its commit are pkg:pypi/ziglang@0.17.0",
        ),
        (
            lambda p: replace(p, dependencies=p.dependencies[:-1]),
            "recipe: it says builder-requirements nothing, but those of its commit are 9999",
        ),
    ],
)
def test_each_disagreement_is_told(wheel, written, edit, words):
    assert any(problem.startswith(words) for problem in problems(wheel, edit(written)))


def with_resource(found, name, **changes):
    """A statement with other fields of a dependency or byproduct. ``said`` are annotations."""
    said = changes.pop("said", {})

    def edited(one):
        if one.name != name:
            return one
        data = one.model_dump(exclude_unset=True)
        data["annotations"] = {**data.get("annotations", {}), **said}
        return Resource.model_validate({**data, **changes})

    parts = {part: tuple(map(edited, getattr(found, part))) for part in ("dependencies", "byproducts")}
    return replace(found, **parts)


def in_ci(found, *, uri="git+https://forge.invalid/o/r", builder=None, invocation=None):
    """The statement of a workflow's run."""
    here = "https://forge.invalid/o/r"
    run = RunDetails(
        builder or f"{here}/.github/workflows/release.yml@refs/tags/v0.1.0", "2026-11-21T10:00:00Z",
        invocation if invocation is not None else f"{here}/actions/runs/7/attempts/1",
    )  # fmt: skip
    return replace(with_resource(found, "source", uri=uri), run=run)


def finished(found, time):
    return replace(found, run=replace(found.run, finished=time))


EVIL = "https://evil.invalid/o/r"
# Each of these passed.
LIES = {
    "an arch twice": (
        lambda s: replace(s, archs=(*s.archs, s.archs[0])), "file: the statement names an arch twice: gfx",
    ),
    "device code of another build": (
        lambda s: with_resource(s, "device-code-gfx942", digest={"sha256": "0" * 64}),
        f"file: it says device code of gfx942 with sha256 {'0' * 64}, but the wheel's has ",
    ),
    "device code of two archs exchanged": (
        lambda s: with_resource(s, "device-code-gfx908", digest=s.byproduct("device-code-gfx942").digest),
        "file: it says device code of gfx908 with sha256 ",
    ),
    "no device code": (
        lambda s: replace(s, byproducts=tuple(b for b in s.byproducts if "gfx942" not in b.name)),
        "recipe: it lacks the byproduct device-code-gfx942",
    ),
    "device code of one arch more": (
        lambda s: replace(
            s, byproducts=(*s.byproducts, Resource(name="device-code-gfx1201", digest={"sha256": "0" * 64}))
        ),
        "recipe: it has the byproduct device-code-gfx1201; expected device-code-gfx",
    ),
    "a certificate": (
        lambda s: replace(s, byproducts=(*s.byproducts, Resource(name="certified by AMD", uri=EVIL))),
        "recipe: it has the byproduct certified by AMD; expected ",
    ),
    "no manifest": (
        lambda s: replace(s, byproducts=tuple(b for b in s.byproducts if b.name != "wheel-manifest")),
        "recipe: it lacks the byproduct wheel-manifest",
    ),
    "words for a digest": (
        lambda s: with_resource(s, "wheel-manifest", digest={"sha256": "certified by AMD"}),
        "recipe: wheel-manifest: it has the digest sha256 certified by AMD; expected sha256",
    ),
    "a digest of another kind": (
        lambda s: with_resource(s, "builder-image", digest={"sha256": "1" * 64, "md5": "0"}),
        "recipe: builder-image: it has the digest md5 0; expected sha256",
    ),
    "an image without digest": (
        lambda s: with_resource(s, "builder-image", digest={}), "recipe: builder-image: it has no sha256",
    ),
    "another base": (
        lambda s: with_resource(s, "base-image", said={"ref": "evil:latest"}),
        "recipe: it says base evil:latest (mmdebstrap), expected debian:sid-slim (pulled) or",
    ),
    "a base from elsewhere": (
        lambda s: with_resource(s, "base-image", said={"origin": "AMD"}),
        "recipe: it says base flash-attn-rocm-base:sid (AMD), expected debian:sid-slim (pulled) or ",
    ),
    "no base": (
        lambda s: replace(s, dependencies=tuple(d for d in s.dependencies if d.name != "base-image")),
        "recipe: it lacks the dependency base-image",
    ),
    "a base with packages": (
        lambda s: with_resource(s, "base-image", said={"packages": {"evil": "1"}}),
        "recipe: base-image: it says packages; expected origin, ref",
    ),
    "words for an image": (
        lambda s: with_resource(s, "builder-image", said={"ref": "certified by AMD"}),
        "recipe: it says image certified by AMD, expected the name of one",
    ),
    "an image without a package of the matrix": (
        lambda s: with_resource(s, "builder-image", said={"packages": {"bash": "1"}}),
        "recipe: its image has no clang-22, which its commit installs for ROCm 7.2",
    ),
    "another tool for Python": (
        lambda s: with_resource(s, "builder-image", said={"python_packages": {"evil": "1"}}),
        "recipe: its image has evil 1 for Python, but its commit pins none",
    ),
    "a dependency more": (
        lambda s: replace(s, dependencies=(*s.dependencies, Resource(name="secret sauce", uri=EVIL))),
        "recipe: it has the dependency secret sauce; expected source, ",
    ),
    "an address for sources": (
        lambda s: with_resource(s, "source-tree", uri=EVIL),
        f"recipe: source-tree: it has the address {EVIL}; expected none",
    ),
    "a digest of zig": (
        lambda s: with_resource(s, "ziglang", digest={"sha256": "0" * 64}),
        "recipe: ziglang: it has the digest sha256 0000",
    ),
    "an annotation of zig": (
        lambda s: with_resource(s, "ziglang", said={"os": "Windows"}), "recipe: ziglang: it says os;",
    ),
    "a source with a digest more": (
        lambda s: with_resource(s, "source", digest={**s.dependency("source").digest, "sha256": "0" * 64}),
        "recipe: source: it has the digest sha256 0000",
    ),
    "a source with a system": (
        lambda s: with_resource(s, "source", said={"os": "certified"}), "recipe: source: it says os;",
    ),
    "another source": (
        lambda s: with_resource(s, "source", uri=f"git+{EVIL}"),
        f"recipe: it says source git+{EVIL}, but this checkout's remotes are forge.invalid/o/r",
    ),
    "another source on the same host": (
        lambda s: with_resource(s, "source", uri="git+https://forge.invalid/o/evil"),
        "recipe: it says source git+https://forge.invalid/o/evil, but this checkout's remotes are ",
    ),
    "no address": (
        lambda s: with_resource(s, "source", uri="certified by AMD"), "recipe: it says source certified by A",
    ),
    "no host": (
        lambda s: with_resource(s, "source", uri="git+https://[o/r"), "recipe: it says source git+https://[o/",
    ),
    **{
        f"finished {time!r}": (lambda s, t=time: finished(s, t), f"run: it was finished at {words}")
        for time, words in (
            ("yesterday", "yesterday; expected a time such as 2026-11-21T10:00:00Z"), ("", "''; expe"),
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z; expected a time since 2026-11-16 in the past"),
            ("2999-01-01T00:00:00Z", "2999-01-01T00:00:00Z; expected a time since 2026-11-16 in the past"),
            ("2026-11-21T10:00:00", "2026-11-21T10:00:00; expected a time such as"),
            ("2026-11-21T10:00:00Z\n", "'2026-11-21T10:00:00Z\\n'; expected a time such as"),
        )
    },
    "a builder in words": (
        lambda s: replace(s, run=replace(s.run, builder="AMD")), "run: its builder is AMD; expected urn",
    ),
    "a builder of two lines": (
        lambda s: replace(s, run=replace(s.run, builder="AMD\ncertified \x1b[2J")),
        "run: its builder is 'AMD\\ncertified \\x1b[2J'; expected urn:",
    ),
    "a run of a machine of its user": (
        lambda s: replace(s, run=replace(s.run, invocation=EVIL)), f"run: {EVIL} is no run of a ma",
    ),
    "a workflow of another repository": (
        lambda s: in_ci(s, builder=f"{EVIL}/.github/workflows/release.yml@refs/tags/v1"),
        "run: its run is https://forge.invalid/o/r/actions/runs/7/attempts/1; expected one of https://evil.",
    ),
    "a workflow of another source": (
        lambda s: in_ci(
            s, builder=f"{EVIL}/.github/workflows/r.yml@refs/tags/v1",
            invocation=f"{EVIL}/actions/runs/7/attempts/1",
        ),
        f"run: its builder is a workflow of {EVIL}; expected one of its source, git+https:",
    ),
    "a workflow without a run": (lambda s: in_ci(s, invocation=""), "run: its run is ''; expected one of"),
    "a workflow of no source": (
        lambda s: in_ci(s, uri=""), "run: its builder is a workflow of https://forge.invalid/o/r; expect",
    ),
    "a workflow of no ref": (
        lambda s: in_ci(s, builder="https://forge.invalid/o/r/.github/workflows/release.yml"),
        "run: its builder is https://forge.invalid/o/r/.github/workflows/release.yml; expected urn:",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "words"), LIES.values(), ids=LIES)
def test_each_lie_in_a_statement_is_told(wheel, written, edit, words):
    found = problems(wheel, edit(written))
    assert any(problem.startswith(words) for problem in found), found


@pytest.mark.parametrize("remote", ["https://forge.invalid/o/r", "ssh://git@forge.invalid:22/o/r.git"])
def test_a_statement_of_ci_agrees_whatever_the_checkout_is_fetched_by(wheel, written, remote):
    assert problems(wheel, in_ci(written), remotes=(remote, "/home/somebody/r")) == []


def test_the_public_wheel_is_built_with_what_its_commit_says(wheel, written):
    """Its compiler's version was unchecked."""
    found = problems(wheel, replace(written, version="0.1.0"))
    assert "file: the statement says ROCm 7.2, but the public wheel is built with 6.4" in found


def test_the_builder_is_printed_on_one_line():
    assert one_line("AMD\n\u2028certified \x1b[2J") == "AMD\\n\\u2028certified \\x1b[2J"


def test_the_remotes_are_those_of_git(tmp_path):
    assert commit_all_with_remotes(tmp_path) == ("https://forge.invalid/o/r.git", "git@forge.invalid:o/r")


def commit_all_with_remotes(root):
    (root / "a").touch()
    commit_all(root)
    for name, address in (("origin", "https://forge.invalid/o/r.git"), ("mine", "git@forge.invalid:o/r")):
        subprocess.run([*GIT, "-C", root, "remote", "add", name, address], check=True)
    return read_remotes(root)


def test_a_sbom_that_says_something_else(wheel, written):
    lies = {"zig": "0.16.0", "sources": "6" * 64, "torch_sha256": "8" * 64}
    other = sbom_text(replace(MATERIALS, **lies)).encode()
    found = problems(wheel, written, sbom=other)
    assert 'SBOM: components[ziglang].version is "0.16.0", expected "0.17.0"' in found
    assert found[5] == "SBOM: 1 more of its values differ"
    assert len(found) == 6
    assert problems(wheel, written, sbom=b"") == ["SBOM: the wheel has none that can be read"]
    # Without the commit the wheel cannot be made again. This is reported separately.
    assert len(problems(wheel, written, sbom=other, tree=None)) == 1


def test_every_lie_in_a_sbom_is_found(wheel, written):
    """17 of 28 passed: only some versions and the digest of the sources were compared."""
    document = sbom(MATERIALS)
    lies = [changed(document, place, "another") for place in places(document) if place]
    lies += [document | {"more": 1}, document | {"components": document["components"] * 2}]
    texts = [json.dumps(lie, indent=1, sort_keys=True) + "\n" for lie in lies]
    texts += [json.dumps(document), sbom_text(MATERIALS).replace('"version": 1\n', '"version": 1.0\n')]
    assert len(texts) > 100
    for text in texts:
        found = problems(wheel, written, sbom=text.encode())
        assert found, text
        assert all(problem.startswith("SBOM: ") for problem in found)


def test_a_long_value_that_differs_at_its_end_is_found(wheel, written):
    text = sbom_text(MATERIALS).replace("device code is of the same commit", "device code is of another one")
    [problem] = problems(wheel, written, sbom=text.encode())
    assert problem.startswith("SBOM: components[flash-attn-rocm sources].description is ")


def test_a_sbom_of_a_commit_that_writes_it_otherwise_is_left_to_that_commit(wheel, written):
    text = sbom_text(replace(MATERIALS, libcxx="1")).encode()
    found = problems(wheel, written, sbom=text, tree=replace(TREE, writes_same_sbom=False))
    assert found[-1].endswith("verify it with the commit's own pipeline")
    assert problems(wheel, written, tree=replace(TREE, writes_same_sbom=False)) == []


def test_a_statement_that_contradicts_itself_about_its_image(wheel, written):
    image = written.dependency("builder-image")
    said = image.annotations.model_copy(update={"compiler": {"hipcc": "9"}})
    others = tuple(one for one in written.dependencies if one.name != "builder-image")
    found = replace(written, dependencies=(*others, image.model_copy(update={"annotations": said})))
    assert problems(wheel, found) == [
        "recipe: it says compilers hipcc=9, but its packages are clang-22=1:22.1.8-3 hipcc=7.2.4+dfsg-1~exp1"
    ]
    said = image.annotations.model_copy(update={"python_packages": {"ziglang": "9"}})
    found = replace(written, dependencies=(*others, image.model_copy(update={"annotations": said})))
    assert problems(wheel, found) == [
        "recipe: its image has ziglang 9 for Python, but its commit pins 0.17.0",
        "recipe: it says ziglang pkg:pypi/ziglang@0.17.0, but the image has pkg:pypi/ziglang@9",
    ]


def test_a_missing_record_and_an_unknown_commit(wheel, written):
    assert problems(wheel, written, record_sha256="", tree=None) == [
        f"record: there is no {wheel.name}.verification.json beside the wheel",
        f"recipe: this checkout does not have commit {COMMIT}; {FETCH}",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[" * 100_000, "its values are nested too deeply"),
        ("[]", "Input should be an object"),
        ("{}", "predicate: Field required"),
        ('{"_type": 1, "predicateType": []}', "predicateType: Input should be a valid string"),
    ],
)
def test_a_file_that_is_no_statement(wheel, text, words):
    provenance_path(wheel).write_text(text)
    with pytest.raises(ProvenanceError) as caught:
        verify_provenance(wheel, CHECKOUT)
    assert words in str(caught.value)


def test_a_value_of_the_wrong_kind_is_named(wheel, made):
    statement = json.loads(made.to_json())
    statement["predicate"]["buildDefinition"]["externalParameters"]["archs"] = "gfx908"
    statement["predicate"]["buildDefinition"]["externalParameters"]["more"] = 1
    provenance_path(wheel).write_text(json.dumps(statement))
    with pytest.raises(ProvenanceError) as caught:
        read_provenance(provenance_path(wheel))
    assert "archs: " in str(caught.value)
    assert "more: " in str(caught.value)


def test_a_statement_of_another_type_is_told(wheel, made):
    with pytest.raises(ProvenanceError, match=r"its types are https://in-toto\.io/Statement/v1, other, urn:"):
        parse_provenance(made.to_json().replace(PREDICATE, "other").encode(), "a")


DEFINITION = ("predicate", "buildDefinition")
DEPENDENCIES = (*DEFINITION, "resolvedDependencies")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        # It took the place of the subject's name and digest.
        ((*DEFINITION, "externalParameters", "wheel"), "b.whl", "externalParameters.wheel: Extra inputs"),
        ((*DEFINITION, "externalParameters", "sha256"), "0" * 64, "externalParameters.sha256: Extra inputs"),
        # These ended with a TypeError.
        ((*DEPENDENCIES, 2, "annotations", "compiler"), 5, "2.annotations.compiler: Input should be"),
        ((*DEPENDENCIES, 2, "annotations", "packages"), ["a"], "2.annotations.packages: Input should be"),
        ((*DEPENDENCIES, 0, "annotations", "changed"), 5, "0.annotations.changed: Input should be"),
        ((*DEPENDENCIES, 0, "annotations", "changed"), [5], "0.annotations.changed.0: Input should be"),
        ((*DEFINITION, "internalParameters", "flags"), ["-O3"], "internalParameters.flags: Input should be"),
        # These reach matrix.yaml, and from there commands.
        (
            (*DEPENDENCIES, 2, "annotations", "packages", "hipcc"), '1"; rm -r',
            "annotations.packages.hipcc: String should match",
        ),
        ((*DEPENDENCIES, 1, "name"), "source", "once, but source stands there again"),
        (("subject",), [], "subject: List should have at least 1 item"),
    ],
)  # fmt: skip
def test_a_statement_is_read_strictly(made, place, value, words):
    statement = json.loads(made.to_json())
    inside = statement
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    with pytest.raises(ProvenanceError) as caught:
        parse_provenance(json.dumps(statement).encode(), "a.whl.provenance.json")
    assert "a.whl.provenance.json is not a provenance statement of this pipeline" in str(caught.value)
    assert words in str(caught.value)


def test_a_published_file_agrees_with_what_is_published_beside_it(wheel, written, tmp_path):
    """The index called the record by another name, so every published wheel failed."""
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": {}})
    write_provenance(wheel, written)
    simple = publish([wheel], tmp_path / "index", "7.2", catalogue=CATALOGUE, now=datetime.now(UTC)).simple
    published = simple / "flash-attn-rocm" / wheel.name
    assert problems(published, read_provenance(provenance_path(published))) == []


def test_a_commit_whose_recipe_has_another_form_is_told(wheel, written):
    [problem] = problems(wheel, written, tree=replace(TREE, recipe="no such file: matrix.yaml"))
    assert problem == (
        "recipe: that of its commit cannot be read by this version (no such file: matrix.yaml); "
        "verify it with the commit's own pipeline"
    )


def test_no_statement(wheel):
    with pytest.raises(ProvenanceError, match=r"there is no .*\.provenance\.json beside the wheel"):
        verify_provenance(wheel, CHECKOUT)


def test_a_signature_is_never_claimed():
    assert "none beside the wheel" in signature_words(iter(["a.whl", "a.whl.verification.json"]))
    assert "--repo owner/project" in signature_words(iter(["a.whl"]), "owner/project")
    found = signature_words(iter(["a.whl", "a.whl.sigstore.json"]))
    assert "a.whl.sigstore.json is beside the wheel and was not checked here" in found
    assert "gh attestation verify" in found


def test_ci_is_named_by_its_workflow_and_run():
    runner = {
        "GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.test", "GITHUB_REPOSITORY": "o/r",
        "GITHUB_RUN_ID": "7", "GITHUB_WORKFLOW_REF": "o/r/.github/workflows/release.yml@refs/heads/main",
    }  # fmt: skip
    found = run_details(runner, "now")
    assert found.builder == "https://github.test/o/r/.github/workflows/release.yml@refs/heads/main"
    assert found.invocation == "https://github.test/o/r/actions/runs/7/attempts/1"
    assert run_details({}, "now").builder == LOCAL


# Sources


def test_changed_files_are_those_of_git_without_caches():
    status = " M kernels/a.hpp\0?? kernels/b c.txt\0!! kernels/__pycache__/a.pyc\0"
    assert changed_files(status) == ("kernels/a.hpp", "kernels/b c.txt")
    assert changed_files("") == ()


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("https://user:secret@host.test/o/r.git", "git+https://host.test/o/r.git"),
        ("https://user:planted@forge:8443/r?token=planted#planted", "git+https://forge:8443/r"),
        ("ssh://git@host.test:22/o/r", "git+ssh://host.test:22/o/r"),
        ("/home/somebody/checkout", ""),
        ("git@host.test:o/r", ""),
        # A ValueError ended the build.
        ("https://host.test:99999/o/r", ""),
        ("https://host.test:port/o/r", ""),
        ("https://[host/o/r", ""),
    ],
)
def test_a_remote_without_credentials_or_paths_of_this_machine(url, uri):
    assert remote_uri(url) == uri


def test_the_flags_are_those_of_the_build_scripts():
    flags = read_flags(CHECKOUT)
    assert "-fuse-cuid=none" in flags["device"]
    assert flags["host"][:2] == ("-target", "x86_64-linux-gnu.2.28")


def test_files_and_metadata_that_its_commit_does_not_have(tmp_path, wheel, made):
    """Only the library's and the sources' digests were compared: any Python file could be in the wheel."""
    files = good_files()
    files["flash_attn_rocm/__init__.py"] = b"import os\n"
    files["flash_attn_rocm/_evil.py"] = b""
    metadata = f"{DIST_INFO}/METADATA"
    files[metadata] = files[metadata].replace(b"Summary", b"Requires-Dist: evil\nSummary")
    (tmp_path / "other").mkdir()
    said = [p for p in problems(write_wheel(tmp_path / "other", files), made) if p.startswith("contents: ")]
    assert [each.split(";")[0] for each in said] == [
        "contents: found flash_attn_rocm/_evil.py",
        "contents: found flash_attn_rocm/__init__.py, which its sources have with another content",
        "contents: found METADATA says Requires-Dist: evil",
    ]


def test_a_commit_whose_files_cannot_be_read_is_not_passed_over(wheel, written):
    [said] = problems(wheel, written, tree=replace(TREE, product="no packages"))
    assert said.startswith("contents: what its commit puts in cannot be read here (no packages); ")


def test_a_statement_with_a_key_twice_is_refused(wheel, made):
    """We used the last one. Another reader may use the first."""
    text = made.to_json().replace('"sha256": "', '"sha256": "0", "sha256": "', 1)
    with pytest.raises(ProvenanceError, match="the key 'sha256' is in it twice"):
        parse_provenance(text.encode(), "a")

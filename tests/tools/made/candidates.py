"""Distributions of candidates that belong to finished wheels, with record and statement. No code runs."""

import hashlib

from tests.tools.made import elves
from tests.tools.made.finished import packages_of, pinned
from tests.tools.made.wheels import BUILDER_FACTS
from wheel_builder.base.store import Artifact, sha256_file
from wheel_builder.build.source import read_source
from wheel_builder.extras.tune.rows import Change, Kernel, changed, rows_of, words_of
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY, for_windows
from wheel_builder.files.device.packing import packed
from wheel_builder.files.wheels.candidates import file_name, written
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.matrix.model import Selection
from wheel_builder.matrix.plan import jobs_to_build, plan
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.matrix.tuned import candidates as form
from wheel_builder.provenance import provenance as p
from wheel_builder.provenance.attest import write_provenance
from wheel_builder.provenance.commit import read_tree
from wheel_builder.provenance.records import write_record
from wheel_builder.provenance.verification import EMULATED
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.row_ids import settings
from wheel_builder.tables.tiles import known_tiles

ARCH, OP, HEAD_DIM, DTYPES = "gfx1100", "fwd", 64, ("bf16", "fp16")
MORE = (1, 2)  # of prefetch: two candidates of each kernel


def kernels(arch=ARCH):
    return [Kernel(arch, OP, dtype, HEAD_DIM) for dtype in DTYPES]


def row_ids(arch=ARCH):
    """The ids of today's rows, as a wheel's rows.json has them."""
    found = {kernel.name: rows_of(known_tiles(), arch_named(arch), kernel) for kernel in kernels(arch)}
    return {arch: {kernel.name: [(0, found[kernel.name].id_of(kernel))] for kernel in kernels(arch)}}


def code_of(arch, kernel, number, size=512):
    """A code object as dense as machine code."""
    text = f"{arch} {kernel} {number}"
    noise = b"".join(hashlib.sha256(f"{text} {i}".encode()).digest() for i in range(size // 32))
    return elves.code_object(arch, [kernel], noise=noise)


def listed_and_bundles(owners, arch=ARCH, codes=code_of):
    """The list, and the bundles by kernel, for wheels of one version."""
    wheels = [read_wheel(owner, max_mib=64) for owner in owners]
    libraries = [each.files[WINDOWS_LIBRARY if for_windows(each) else LIBRARY] for each in wheels]
    found, bundles = {}, {}
    for kernel in kernels(arch):
        rows = rows_of(known_tiles(), arch_named(arch), kernel)
        tried = {}
        for more in MORE:
            changes = (Change("prefetch", rows.plain.prefetch + more),)
            other, code = changed(rows, changes), codes(arch, kernel.name, more)
            tried[other.id_of(kernel)] = (words_of(changes), other, code)
        bundles[kernel.name] = packed(arch, {row: code for row, (_, _, code) in tried.items()})
        bundle = bundles[kernel.name]
        found[kernel.name] = form.KernelCandidates(
            rows.id_of(kernel),
            form.Code(f"{kernel.name}.hipfb", len(bundle), hashlib.sha256(bundle).hexdigest()),
            {
                row: form.Candidate(
                    words, tuple(map(settings, other.used)), 64, 128, 0, 84, hashlib.sha256(code).hexdigest()
                )
                for row, (words, other, code) in tried.items()
            },
        )
    digests = sorted(hashlib.sha256(library).hexdigest() for library in libraries)
    belongs = form.ForWheel(str(wheels[0].version), tuple(digests))
    return form.Candidates(form.FORMAT, arch, belongs, found), bundles


def record_of(wheel, listed, **changes):
    """The record of a verified distribution. ``changes`` of what it says of each candidate."""
    said = {"numerics": EMULATED, "calls": ["unmasked and causal calls"], "checked": True, "findings": []}
    return {
        "wheel": wheel.name, "sha256": sha256_file(wheel), "archs": {},
        "candidates": {
            name: {row: said | {"sha256": each.sha256} | changes for row, each in kernel.candidates.items()}
            for name, kernel in listed.kernels.items()
        },
    }  # fmt: skip


def finished_candidates(folder, owners, root, commit, rocm="public", arch=ARCH, made=None):
    """A distribution of the commit of ``root`` for ``owners``. ``made``: its list and bundles."""
    listed, bundles = made or listed_and_bundles(owners, arch)
    wheel = folder / file_name(listed)
    wheel.write_bytes(written(listed, bundles, 315619200))
    write_record(wheel, record_of(wheel, listed))
    state(wheel, listed, owners, root, commit, rocm)
    return wheel


def state(wheel, listed, owners, root, commit, rocm="public"):
    """Write the statement. It names the current record."""
    built = wheel.parent / "candidates-built"
    built.mkdir(exist_ok=True)
    (built / "manifest.json").write_text("{}")
    [job] = jobs_to_build(plan(load_matrix(root / "matrix.yaml"), Selection(rocm=(rocm,))))
    recipe = read_tree(root, commit).recipe
    base = {"ref": recipe.bases[job.rocm.version].ref, "image_id": f"sha256:{'2' * 64}", "origin": "pulled"}
    packages = packages_of(recipe, job.rocm.version)
    image = {
        "key": "k",
        "inputs": {"files": {p.REQUIREMENTS: recipe.requirements}},
        "facts": {**BUILDER_FACTS, "packages": packages, "python_packages": pinned(recipe), "base": base},
    }
    facts = {"wheel": wheel.name, "sha256": sha256_file(wheel)}
    source = read_source(root)
    manifest = {"inputs": {"sources": source.content}, "facts": facts}
    codes = {
        name: {row: each.sha256 for row, each in kernel.candidates.items()}
        for name, kernel in listed.kernels.items()
    }
    statement = p.make_candidates_provenance(
        job, listed.arch, source, version=listed.wheel.version, image=Artifact(built, image, True),
        wheel=Artifact(built, manifest, True), codes=codes,
        owners={one.name: sha256_file(one) for one in owners},
        run=p.RunDetails(p.LOCAL, "2026-11-21T10:00:00Z"),
    )  # fmt: skip
    write_provenance(wheel, statement)

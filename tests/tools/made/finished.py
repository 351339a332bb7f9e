"""Wheels that pass the audit and agree with a commit, with record and statement.

They contain no running code.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from tests.conftest import CHECKOUT
from tests.fast.unit.audit.test_windows import dll
from tests.tools.made.checkouts import commit_all, copy_sources
from tests.tools.made.wheels import (
    BASE_VERSION,
    BUILDER_FACTS,
    DIST_INFO,
    MATERIALS,
    PLATFORM,
    SBOM,
    VERSION,
    WHEEL,
    code_object,
    library,
    of_arch,
    write_statement,
    write_wheel,
)
from wheel_builder.base.store import Artifact, key_of, sha256_file
from wheel_builder.build.packages import compiler_packages
from wheel_builder.build.product import read_product
from wheel_builder.build.sbom import sbom_text
from wheel_builder.build.shim import FLASH_ATTN, SHIMS, shim_digest
from wheel_builder.build.source import read_source
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY
from wheel_builder.matrix.model import LINUX, PUBLIC, WINDOWS, WINDOWS_TAG, Selection
from wheel_builder.matrix.plan import plan
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.matrix.support_table import TABLE as SUPPORT_TABLE
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.provenance import provenance as p
from wheel_builder.provenance.attest import write_provenance
from wheel_builder.provenance.commit import read_tree
from wheel_builder.provenance.records import write_record
from wheel_builder.provenance.statement import Annotations, Resource
from wheel_builder.verify.wine import HOW, NOT_EXECUTED, archs_under_wine

NUMERICS = "executed on an ISA emulator, not run on hardware"
# Two kernels: for publishing, a wheel of two shows as much as one of a hundred, and each is audited many
# times.
TABLE = '[[kernels]]\nop = "fwd"\ndtypes = ["fp16", "bf16"]\nhead_dims = [64]\n'
OTHERS = ("matrix.yaml", "dockerfiles/builder/builder-requirements.txt", "kernels/tables/gpus.toml")


def repository(root):
    """A repository in ``root`` with the files that decide about wheels. Returns its commit."""
    copy_sources(root)
    for name in OTHERS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((CHECKOUT / name).read_bytes())
    for shim in SHIMS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / shim.folder, root / shim.folder, symlinks=True, ignore=ignored)
    (root / SUPPORT_TABLE).write_text(TABLE)
    return commit_all(root)


@cache
def built_shim(root, commit, shim):  # the commit is part of the cache key
    """The name and the bytes of a distribution such as flash-attn, from the commit in the working tree."""
    with tempfile.TemporaryDirectory() as built:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", built]
        subprocess.run(command, cwd=root / shim.folder, check=True, capture_output=True)
        [file] = Path(built).glob("*.whl")
        return file.name, file.read_bytes()


def finished_shim(folder, root, commit, shim=FLASH_ATTN):
    """A distribution such as flash-attn of the commit of ``root``, with its record and its statement."""
    name, data = built_shim(root, commit, shim)
    wheel, built = folder / name, folder / f"{shim.folder}-built"
    wheel.write_bytes(data)
    built.mkdir(exist_ok=True)
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": {}})
    manifest = {"inputs": {"sources": shim_digest(shim, root)}}
    facts = {"wheel": wheel.name, "sha256": sha256_file(wheel)}
    (built / "manifest.json").write_text("{}")
    [(ref, *_), *_] = read_tree(root, commit).recipe.bases.values()
    base = {"ref": ref, "image_id": f"sha256:{'2' * 64}", "origin": "pulled"}
    image = {
        "key": "k",
        "inputs": {"files": {p.REQUIREMENTS: "0" * 64}},
        "facts": {**BUILDER_FACTS, "python_packages": pinned(read_tree(root, commit).recipe), "base": base},
    }
    statement = p.make_shim_provenance(
        read_source(root), version=read_product(root / shim.folder).version,
        image=Artifact(built, image, True), wheel=Artifact(built, {**manifest, "facts": facts}, True),
        run=p.RunDetails(p.LOCAL, "2026-11-21T10:00:00Z"),
    )  # fmt: skip
    assert statement.commit == commit
    write_provenance(wheel, statement)
    return wheel


@cache
def planned_job(root, rocm, platform=LINUX):
    """The job of the matrix of ``root`` for a ROCm version, or for the public wheel of a platform."""
    [job] = plan(load_matrix(root / "matrix.yaml"), Selection(rocm=(rocm,), platforms=(platform,))).jobs
    return job


def version_of(rocm):
    """The version of its wheel."""
    return BASE_VERSION if rocm == PUBLIC else f"{BASE_VERSION}+rocm{rocm}"


@cache
def device_code_of(root, commit, rocm="7.2", platform=LINUX):  # the commit is part of the cache key
    """The digest of each code object's file of the build, by arch."""
    kernels = planned_kernels(root, planned_job(root, rocm, platform).archs)
    return {
        arch: {f"{name}.hsaco": hashlib.sha256(code_object(arch, [name])).hexdigest() for name in names}
        for arch, names in kernels.items()
    }


@cache
def finished_files(root, commit, rocm="7.2", platform=LINUX):
    """The files of a wheel of the commit, including planned device code, but without RECORD."""
    version, tree = version_of(rocm), read_tree(root, commit, platform=platform)
    product, recipe = read_product(root), tree.recipe
    package = root / "kernels/python"
    archs, headers = (
        planned_job(root, rocm, platform).archs,
        {"Metadata-Version": ("2.4",), "Version": (version,)},
    )
    kernels = planned_kernels(root, archs)
    code = b"".join(of_arch(a, *(code_object(a, [name]) for name in sorted(kernels[a]))) for a in archs)
    lines = [f"{name}: {value}" for name, values in (headers | product.fields).items() for value in values]
    packages = packages_of(recipe, planned_job(root, rocm, platform).rocm.version)
    materials = replace(
        MATERIALS, version=version, packages=packages, sources=tree.content, zig=recipe.zig,
        torch=recipe.torch_headers,
        torch_sha256=recipe.torch_headers_sha256, zstd=recipe.zstd,
    )  # fmt: skip
    files = {name: (package / name).read_bytes() for name in product.files}
    files |= {f"{DIST_INFO}/licenses/{name}": (root / name).read_bytes() for name in product.licenses}
    built = (
        {WINDOWS_LIBRARY: dll(code)}
        if platform == WINDOWS
        else {LIBRARY: library(sections={".hip_fatbin": code})}
    )
    files |= built | {
        f"{DIST_INFO}/METADATA": "\n".join([*lines, "", ""]).encode() + product.readme,
        f"{DIST_INFO}/WHEEL": WHEEL.replace(PLATFORM, recipe.platform_tag).encode(),
        SBOM: sbom_text(materials).encode(),
    }
    return MappingProxyType({name.replace(VERSION, version): data for name, data in files.items()})


def packages_of(recipe, rocm):
    """The packages of a builder image, including those named by the matrix."""
    return {**dict.fromkeys(recipe.bases[rocm].packages, "1:22.1.8-3"), **MATERIALS.packages}


def pinned(recipe):
    """Its packages for Python. pip comes with it."""
    return {"ziglang": recipe.zig, "pip": "26.2"}


def finished_wheel(folder, root, commit, rocm="7.2", files=None, edit=bytes, platform=LINUX):
    """A wheel of the commit of ``root`` with its record and statement. ``files`` and ``edit`` change it."""
    name = (
        f"flash_attn_rocm-{version_of(rocm)}-py3-none-{WINDOWS_TAG if platform == WINDOWS else PLATFORM}.whl"
    )
    content = finished_files(root, commit, rocm, platform) if files is None else files
    wheel = write_wheel(folder, content, name=name)
    wheel.write_bytes(edit(wheel.read_bytes()))
    write_record(wheel, finished_record(wheel, root, rocm, platform))
    state(wheel, root, commit, rocm, platform)
    return wheel


def finished_record(wheel, root, rocm="7.2", platform=LINUX):
    """The record of a finished wheel. For Windows that of the release tier."""
    job = planned_job(root, rocm, platform)
    shown = {"numerics": NUMERICS, "findings": [], "passed": True, "tier": "release"}
    every = {
        arch: shown | {"launches": dict.fromkeys(names, 1)}
        for arch, names in planned_kernels(root, job.archs).items()
    }
    archs, serves = every, list(job.public.fits) if job.public else ["7.1"]
    if platform == WINDOWS:
        executed, serves = archs_under_wine(job.archs, full=False), []
        archs = {
            arch: every[arch] | {"numerics": HOW}
            if arch in executed
            else {"numerics": NOT_EXECUTED, "passed": False}
            for arch in job.archs
        }
    return {"wheel": wheel.name, "sha256": sha256_file(wheel), "archs": archs, "serves": serves}


def state(wheel, root, commit, rocm="7.2", platform=LINUX):
    """Write the statement of a finished wheel. It names the current record in the wheel's folder."""
    job = planned_job(root, rocm, platform)
    recipe = recipe_of(root, commit, job.rocm.version, platform)
    made = {
        f"device-code-{arch}": key_of(files, length=64)
        for arch, files in device_code_of(root, commit, rocm, platform).items()
    }
    byproducts = tuple(
        Resource(name=name, digest={"sha256": digest})
        for name, digest in (made | {p.WHEEL_MANIFEST: "0" * 64}).items()
    )
    stated = {"version": version_of(rocm), "archs": job.archs, "byproducts": byproducts}
    write_statement(wheel, rocm=job.rocm.version, **stated, **recipe)


@cache
def recipe_of(root, commit, rocm, platform=LINUX):
    """Parameters and dependencies of a statement, from the commit."""
    tree = read_tree(root, commit, platform=platform)
    recipe = tree.recipe
    packages, base = packages_of(recipe, rocm), recipe.bases[rocm]
    image = {
        "ref": "builder", "os": MATERIALS.system, "libcxx": MATERIALS.libcxx, "packages": packages,
        "compiler": compiler_packages(packages), "python_packages": pinned(recipe),
    }  # fmt: skip
    digests = {name: {"sha256": number * 64} for name, number in ((p.IMAGE, "1"), (p.BASE, "2"))}
    pulled = Annotations(ref=base.ref, origin="pulled")
    return {
        "parameters": {
            "flags": {kind: list(flags) for kind, flags in recipe.flags.items()}, "llvm": recipe.llvm[rocm],
            "platform_tag": recipe.platform_tag, "source_date_epoch": recipe.source_date_epoch,
        },
        "dependencies": (
            Resource(
                name=p.SOURCE, digest={"gitCommit": commit},
                annotations=Annotations(dirty=False, content_sha256=tree.content),
            ),
            Resource(name=p.SOURCE_TREE, digest={"sha256": tree.sources}),
            Resource(name=p.IMAGE, digest=digests[p.IMAGE], annotations=Annotations(**image)),
            Resource(name=p.BASE, digest=digests[p.BASE], annotations=pulled),
            Resource(
                name=p.HEADERS, uri=p.headers_uri(recipe.torch_headers),
                digest={"sha256": recipe.torch_headers_sha256},
            ),
            Resource(name=p.ZIG, uri=p.zig_uri(recipe.zig)),
            Resource(name=p.TOOLS, digest={"sha256": recipe.requirements}),
        ),
    }  # fmt: skip

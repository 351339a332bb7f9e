"""Device code: every instance of the support table for one arch, compiled in the builder image.

Input: the builder image, an arch, the kernel sources. Output: ``<instance>.hsaco`` per instance and
``resources.json``. It is independent of torch and Python, so it is built once per ROCm version and arch.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, DeviceCodeError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, key_of, sha256_tree
from wheel_builder.build.budget import COSTS, UPDATE, load_budgets, measured, over_budget, was_cached
from wheel_builder.build.compiler_cache import CACHE, cache_mount, cache_settings
from wheel_builder.build.packages import compiler_packages
from wheel_builder.files.device.packing import SETTINGS, SUFFIX, base_of, content_of, packed
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in

SOURCES = (
    "kernels/build/instances",
    "kernels/build/jobs.py",
    "kernels/build/machine.py",
    "kernels/device",
    "kernels/generated/archs.json",
    "kernels/generated/device",
    "kernels/generated/kinds.json",
    "kernels/generated/table.toml",
    "kernels/tables/costs.json",
)
RESOURCES = "resources.json"


def compile_arch(
    arch: str,
    *,
    image: Artifact,
    checkout: Path,
    store: Store,
    jobs: int,
    log: Path,
    cache: Path | None = None,
    run: Runner = run,
) -> Artifact:
    """Compile all instances of ``arch``.

    Raises ``DeviceCodeError`` with the compiler's last lines, or with the kernels far above their ``budget``.

    ``cache`` is ccache's folder, shared with other runs and machines.
    Facts: ``arch``, ``instances`` (names), ``cpu_seconds``, ``code_bytes`` and, with a cache, ``cache``
    (``hits``, ``misses``).
    """
    inputs = {
        "arch": arch,
        "image": image.facts["image_id"],
        "sources": sha256_tree(checkout, [checkout / source for source in SOURCES]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        with open_to_all(out):
            _compile(arch, image=image, checkout=checkout, out=out, jobs=jobs, log=log, cache=cache, run=run)
        _check_budget(arch, checkout, out)
        return _facts(arch, out)

    return store.get_or_make("device-code", inputs, make)


def measure_arch(
    arch: str, *, image: Artifact, checkout: Path, store: Store, jobs: int, log: Path, run: Runner = run
) -> Artifact:
    """Compile all instances of ``arch`` without a cache, with the compiler's phases timed.

    Only ``resources.json`` is kept.  Raises ``DeviceCodeError`` as ``compile_arch`` does for the compiler.
    """
    inputs = {
        "arch": arch,
        "image": image.facts["image_id"],
        "sources": sha256_tree(checkout, [checkout / source for source in SOURCES]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        with open_to_all(out):
            _compile(
                arch, image=image, checkout=checkout, out=out, jobs=jobs, log=log, cache=None, run=run,
                more=("--phases",),
            )  # fmt: skip
        for code_object in out.glob("*.hsaco"):
            code_object.unlink()
        return {"arch": arch}

    return store.get_or_make("device-cost", inputs, make)


def _compile(
    arch: str,
    *,
    image: Artifact,
    checkout: Path,
    out: Path,
    jobs: int,
    log: Path,
    cache: Path | None,
    run: Runner,
    more: Sequence[str] = (),
) -> None:
    argv = [
        "python3",
        "/src/kernels/build/instances/build.py",
        "--arch",
        arch,
        "--out",
        "/out",
        "--jobs",
        str(jobs),
        *more,
    ]
    mounts = [*source_mounts(checkout), Mount(out, "/out", writable=True)]
    env = {"PYTHONPATH": "/src"}
    if cache:
        argv += ["--cache", CACHE]
        mounts.append(cache_mount(cache / "device"))
        env |= cache_settings(compiler_id(image.facts))
    try:
        run_in(image.facts["ref"], argv, mounts=mounts, env=env, user=NOBODY, log=log, run=run)
    except CommandFailedError as error:
        title = f"the device code for {arch} does not build"
        raise DeviceCodeError(title, [error.message], advice="mend the kernel and run again") from error


def source_mounts(checkout: Path) -> list[Mount]:
    """Exactly the files in the key of device code."""
    return [Mount(checkout / source, f"/src/{source}") for source in SOURCES]


def code_objects(code: Artifact) -> dict[str, str]:
    """Name -> sha256 of an arch's code objects. The report is left out, as it holds times."""
    files: Mapping[str, str] = code.manifest["files"]
    return {name: digest for name, digest in files.items() if name.endswith(".hsaco")}


def pack_archs(device_code: Sequence[Artifact], store: Store) -> tuple[Artifact, ...]:
    """Each arch's code objects as ``<arch>.hipfb``, a compressed bundle. Facts: ``arch``, ``bytes``."""
    by_arch = {str(code.facts["arch"]): code for code in device_code}
    kernels = {arch: len(code_objects(code)) for arch, code in by_arch.items()}
    bases = {arch: base_of(arch, kernels) for arch in by_arch}
    return tuple(_pack(code, by_arch.get(bases[arch] or ""), store) for arch, code in by_arch.items())


def _pack(code: Artifact, base: Artifact | None, store: Store) -> Artifact:
    arch, needed = str(code.facts["arch"]), [base] if base else []

    def make(out: Path) -> Mapping[str, Any]:
        before = b"".join(content_of(str(each.facts["arch"]), _read(each)) for each in needed)
        data = packed(arch, _read(code), before)
        (out / f"{arch}{SUFFIX}").write_bytes(data)
        return {"arch": arch, "bytes": len(data)}

    codes = {str(each.facts["arch"]): code_objects(each) for each in (code, *needed)}
    inputs = {"arch": arch, "code": codes, **SETTINGS}
    return store.get_or_make("packed-code", inputs, make)


def _read(code: Artifact) -> Mapping[str, bytes]:
    return {Path(name).stem: (code.path / name).read_bytes() for name in code_objects(code)}


def compiler_id(facts: Mapping[str, Any]) -> str:
    """Identifies an image's compiler by the exact versions of its packages."""
    return key_of(compiler_packages(facts["packages"]))


def _check_budget(arch: str, checkout: Path, out: Path) -> None:
    resources = json.loads((out / RESOURCES).read_text(encoding="utf-8"))
    budget = load_budgets(checkout / COSTS).get(arch, {})
    if found := over_budget(arch, measured(resources), budget, cached=was_cached(resources)):
        title = f"kernels for {arch} cost more than {COSTS} allows"
        raise DeviceCodeError(title, found, advice=UPDATE)


def _facts(arch: str, out: Path) -> Mapping[str, Any]:
    resources = json.loads((out / RESOURCES).read_text(encoding="utf-8"))
    objects = sorted(out.glob("*.hsaco"))
    if not objects:
        title = f"the support table has no instance for {arch}"
        raise DeviceCodeError(title, ["no code object was written"])
    return {
        "arch": arch,
        "instances": [file.stem for file in objects],
        "cpu_seconds": resources["cpu_seconds"],
        "code_bytes": sum(file.stat().st_size for file in objects),
        **({"cache": resources["cache"]} if "cache" in resources else {}),
    }

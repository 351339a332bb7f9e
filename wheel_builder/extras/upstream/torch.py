"""Compiler inputs of upstream's extension besides its kernels: a Python, and a ROCm build of PyTorch.

In: the builder image, and pip's source of PyTorch wheels. Out: an image with the headers, and the headers,
libraries and hipify of PyTorch's wheel. Code of the wheel never runs on this machine.
"""

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import UpstreamError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store
from wheel_builder.build.runtime_image import BASE_PYTHON, HIP_HEADERS, Python
from wheel_builder.images import docker
from wheel_builder.images.build import ImageBuild, context, file_digests, package_groups, stored_image, tag_of
from wheel_builder.images.fetch import torch_rocm
from wheel_builder.images.hostenv import HostSettings
from wheel_builder.matrix.model import Job, Rocm

FILES = ("extension.Dockerfile", "install_packages.sh", "unpack_headers.sh")
# PyTorch's headers include headers of ROCm's mathematical libraries, as found in a vendor image.
HEADERS = (
    "libhipblas-dev",
    "libhipblas-common-dev",
    "libhipblaslt-dev",
    "libhipsparse-dev",
    "libhipsolver-dev",
    "librocprim-dev",
    "librocthrust-dev",
)
INCLUDE = "/opt/headers/usr/include"  # where unpack_headers.sh has them
ASK_PYTHON = """
import json, sys, sysconfig
print(json.dumps({
    "tag": "cp%d%d" % sys.version_info[:2],
    "include": sysconfig.get_path("include"),
    "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
}))
"""
# The files taken from PyTorch's wheel. The libraries are those linked by PyTorch into extensions.
LINKED = ("c10", "torch", "torch_cpu", "torch_python", "c10_hip", "torch_hip")
KEPT = re.compile(
    rf"torch/(include/[\w./+-]+|utils/hipify/\w+\.py|version\.py|lib/lib({'|'.join(LINKED)})\.so)"
)


@dataclass(frozen=True)
class Torch:
    """A release such as ``2.13.0``, and an index or a folder of wheels searched by pip."""

    version: str = ""
    index: str = ""


NO_TORCH = Torch()


def python_of(rocm: Rocm) -> Python:
    """The extension's Python: the one of the runtime image."""
    return BASE_PYTHON if rocm.provider == "vendor" else Python()


def arguments_of(rocm: Rocm) -> Mapping[str, str]:
    """Build arguments of the image in addition to the builder image's. The base comes with the build."""
    python = python_of(rocm)
    if rocm.provider == "vendor":
        return {"PACKAGES": package_groups([("", ("python3-dev",))]), "HEADERS": ""}
    suites = [suite for suite, names in rocm.packages if HIP_HEADERS in {n.split("=")[0] for n in names}]
    packages = (python.program, f"lib{python.program}-dev")
    return {
        "PACKAGES": package_groups([(f"{python.suite}+", packages)]),
        "HEADERS": package_groups([(suite, HEADERS) for suite in suites[:1]]),
    }


def build_extension_image(
    job: Job, builder: Artifact, store: Store, *, log: Path, run: Runner = run
) -> Artifact:
    """The builder image with headers for an extension. Facts: ``ref``, ``image_id``, ``python``.

    ``python`` has its ``program``, ``tag`` (``cp311``), ``include`` folder and ``suffix`` of extensions.
    """
    arguments, program = arguments_of(job.rocm), python_of(job.rocm).program
    inputs = {"builder": builder.facts["image_id"], "args": arguments, "files": file_digests(FILES)}

    def make(_: Path) -> Mapping[str, Any]:
        ref = f"flash-attn-rocm-extension:{job.rocm.version}-{tag_of(inputs)}"
        args = {**arguments, "BASE": builder.facts["ref"]}
        with context(FILES, f"the image for an extension of ROCm {job.rocm.version}", log) as folder:
            docker.build(folder, FILES[0], ref, args=args, log=log, run=run)
        said = docker.run_in(ref, [program, "-c", ASK_PYTHON], user=docker.NOBODY, log=log, run=run).stdout
        info = docker.inspect_image(ref, run=run)
        image_id = info.id if info else ""
        return {"ref": ref, "image_id": image_id, "python": {"program": program, **json.loads(said)}}

    return stored_image("extension-image", inputs, store, make, run=run)


def fetch_torch(
    wanted: Torch, rocm: str, image: Artifact, store: Store, *, host: HostSettings | None, log: Path,
    run: Runner = run,
) -> Artifact:  # fmt: skip
    """Headers, libraries and hipify of a PyTorch for ``rocm``. Facts: ``wheel``, ``version``, ``hip``.

    Raises ``UpstreamError`` for a CPU or CUDA build, or for another ROCm version.
    """
    inputs = {
        "torch": wanted.version,
        "index": wanted.index,
        "python": image.facts["python"]["tag"],
        "rocm": rocm,
    }

    def make(folder: Path) -> Mapping[str, Any]:
        build = ImageBuild(
            FILES[0], image.facts["ref"], {}, log, run, python=image.facts["python"]["program"],
            torch_index=wanted.index, host=host,
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-torch-") as aside:
            build.fetch(build.ref, ["--no-deps", f"torch=={wanted.version}"], Path(aside))
            wheel = next(Path(aside).glob("torch-*.whl"))
            hip = torch_rocm(wheel)
            refuse_other_rocm(wheel.name, hip, rocm)
            extract(wheel, folder)
        return {"wheel": wheel.name, "version": wheel.name.split("-")[1], "hip": hip}

    return store.get_or_make("upstream-torch", inputs, make)


def refuse_other_rocm(wheel: str, hip: str, rocm: str) -> None:
    """Raise ``UpstreamError`` unless a PyTorch wheel's HIP (empty: none) has this ROCm version."""
    if hip.split(".")[:2] == rocm.split("."):
        return
    title = "upstream's extension cannot be built with this PyTorch"
    found = f"found {wheel}, built for ROCm {hip}" if hip else f"found {wheel}, which is built without ROCm"
    problems = [f"expected PyTorch's build for ROCm {rocm}, which compiled the kernels", found]
    advice = f"give --torch-index PyTorch's wheels for ROCm {rocm}, an index or a folder"
    raise UpstreamError(title, problems, advice=advice)


def extract(wheel: Path, into: Path) -> None:
    """Extract the files needed to build extensions, with the leading ``torch/`` removed."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not KEPT.fullmatch(member.filename) or ".." in member.filename.split("/"):
                continue
            file = into / member.filename.removeprefix("torch/")
            file.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, file.open("wb") as target:
                shutil.copyfileobj(source, target)
    missing = [name for name in LINKED if not (into / "lib" / f"lib{name}.so").is_file()]
    missing += [name for name in ("include/ATen/hip", "utils/hipify") if not (into / name).is_dir()]
    if missing:
        title = f"{wheel.name} is no PyTorch that extensions for ROCm can be built with"
        advice = "give --torch-index PyTorch's own wheels for ROCm"
        raise UpstreamError(title, [f"it has no {name}" for name in missing], advice=advice)

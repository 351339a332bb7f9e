"""Kernels to model: this checkout's, compiled in the builder image, and the peer in Triton.

Needs no GPU.
"""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.process import run
from wheel_builder.base.store import sha256_file
from wheel_builder.extras.perf.run import Bench, model, subjects
from wheel_builder.extras.perf.workloads.coded import has_coded
from wheel_builder.extras.perf.workloads.gradients import has_backward
from wheel_builder.extras.perf.workloads.latent import has_latent
from wheel_builder.extras.perf.workloads.ours import finds_ranges, has_decode, has_workload
from wheel_builder.extras.perf.workloads.widening import widens
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.machine_code.disassembly.listing import tools_in
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.emulator.machine import Launch
from wheel_builder.machine_code.fake_hip.container import LIBRARY
from wheel_builder.tables.archs import known_archs

HERE = Path(__file__).parent
ARCHS = tuple(known_archs())
TRAINED = tuple(name for name, arch in known_archs().items() if "trains" in arch.features)
WITHOUT_TRITON = ("rdna1", "rdna1_0")  # ISAs not compared
PEERED = tuple(name for name, arch in known_archs().items() if arch.isa.name not in WITHOUT_TRITON)
TRITON = "3.9.0"
OLDER_TRITON = {"rdna2": "3.8.0"}  # the last release that compiles for an ISA
SOURCES = ("peer.py", "triton_attention.py")
MAX_MIB = 100.0
# Head dims of the peer too, and the head dims of an op with a single one. The others would take several times
# as long.
HEAD_DIMS = (64, 128)
ONLY = 512  # of fa_fwd_wide_*
LATENT = 576  # of fa_mla_*
OURS = (*HEAD_DIMS, 80, ONLY, LATENT)
UNEVEN = 192  # the only head dim of kernels with another head dim of v
OF_ALL = ("fa_bwd_delta", "fa_bwd_convert", "fa_mask_ranges", "fa_widen")  # one kernel for all of them


@pytest.fixture(scope="session")
def bench(builder, emulator, context):
    return Bench(Core(emulator.path / LIBRARY), tools_in(builder), context.store, context.log("listing"))


@pytest.fixture(scope="session")
def triton(context):
    """``triton("3.9.0")``: a folder with that release, from the store if present."""

    def install(release):
        locked = HERE / f"triton-{release}.txt"
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        inputs = {"locked": sha256_file(locked), "python": python, "pip": version("pip")}

        def make(out):
            argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run([*argv, "--require-hashes", "--target", out, "-r", locked], log=context.log("triton"))
            return {}

        return context.store.get_or_make("triton", inputs, make).path

    return install


@pytest.fixture(scope="session")
def peers(triton, context):
    """``peers(arch)``: a folder with the peer's code objects and launches. Causal ones are in ``causal``."""

    def build(arch):
        isa = known_archs()[arch].isa
        package = triton(OLDER_TRITON.get(isa.name, TRITON))
        sources = {name: sha256_file(HERE / name) for name in SOURCES}
        inputs = {"sources": sources, "triton": package.name, "arch": arch}

        def make(out):
            # Excludes the user's Triton settings, and a cache shared between the releases.
            env = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
            env |= {"PYTHONPATH": str(package), "TRITON_CACHE_DIR": str(out / "cache")}
            how = ["--arch", arch, "--isa", isa.name, "--wave", str(isa.wave)]
            run(
                [sys.executable, HERE / "peer.py", *how, "--out", out],
                env=env,
                log=context.log(f"triton-{arch}"),
            )
            return {}

        return context.store.get_or_make("triton-peer", inputs, make).path

    return build


@pytest.fixture(scope="session")
def known_rows(bench):
    """``known_rows(folder, which)``: the results of ``perf`` for a folder's code objects of ``OURS``, cached.

    ``which`` selects kernels by name.
    """
    known = {}

    def rows(folder, which):
        if (folder, which) not in known:
            ends = tuple(f"_d{head_dim}" for head_dim in OURS)
            files = (file for file in sorted(folder.glob("*.hsaco")) if which(file.stem))
            wanted = [
                file
                for file in files
                if file.stem.endswith(ends) or file.stem.startswith(OF_ALL) or "_uneven_" in file.stem
            ]
            only_figures = _is_for_inference(folder)
            rows = [
                row
                for file in wanted
                for row in model(file, bench, max_mib=MAX_MIB, only_figures=only_figures)
            ]
            known[folder, which] = [row for row in rows if row.head_dim in (0, UNEVEN, *OURS)]
        return known[folder, which]

    return rows


def _is_for_inference(folder):
    """Whether these are our kernels without gradients. Tests read nothing but figures of them."""
    names = [file.stem for file in folder.glob("fa_*.hsaco")]
    return bool(names) and not any(map(has_backward, names))


@pytest.fixture(scope="session")
def modelled(known_rows):
    """``modelled(folder)``: both models of its kernels."""
    return lambda folder: known_rows(folder, _is_modelled)


def _is_modelled(name):
    return has_workload(name) or has_backward(name)


@pytest.fixture(scope="session")
def decoded(known_rows):
    """``decoded(folder)``: its decode and mask-range kernels, compared with memory bandwidth."""
    return lambda folder: known_rows(folder, _is_bound_by_memory)


def _is_bound_by_memory(name):
    return has_decode(name) or has_coded(name) or widens(name) or has_latent(name) or finds_ranges(name)


@pytest.fixture
def golden(request, tmp_path):
    """``golden(text, path)``: compare the text with a file of the checkout. ``--update`` writes it there."""

    def same(found, path):
        file = CHECKOUT / path
        if request.config.getoption("--update"):
            file.write_text(found)
        new = tmp_path / path.name
        new.write_text(found)
        wanted = file.read_text() if file.exists() else ""
        assert found == wanted, f"the figures changed; if that is meant: --update, or cp {new} {file}"

    return same


class Kernel:
    """A kernel of the peer, for any arguments. A workgroup has ``rows`` rows of its tensors."""

    def __init__(self, path, arch, bench):
        self.machine = subjects((CodeObject(arch, path.read_bytes()),), bench)[0].machine
        self.row = json.loads(path.with_name(f"{path.name}.launch.json").read_text())[0]
        queries = self.row["arguments"][0]
        self.rows = queries["shape"][1] // self.row["grid"][0]

    def launch(self, seqlen):
        return Launch((seqlen // self.rows, 1, 1), tuple(self.row["block"]), self.row["dynamic_lds"])


@pytest.fixture(scope="session")
def peer_kernel(peers, bench):
    """``peer_kernel(arch, "fwd_fp16_d64")``: loaded once."""
    known = {}

    def load(arch, name):
        if (arch, name) not in known:
            known[arch, name] = Kernel(peers(arch) / f"{name}.hsaco", arch, bench)
        return known[arch, name]

    return load

"""Upstream's recipe: the downloads, the distribution of objects to jobs, and the messages about them."""

import contextlib
import tarfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import CommandFailedError, GateError, SelectionError, UpstreamError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Artifact, Store, sha256_file
from wheel_builder.cli.main import main
from wheel_builder.extras.build_log.read import Log
from wheel_builder.extras.build_log.report import explain
from wheel_builder.extras.upstream import in_container, stages
from wheel_builder.extras.upstream import run as pipeline
from wheel_builder.extras.upstream.costs import Flags, load_costs
from wheel_builder.extras.upstream.gate import Checked
from wheel_builder.extras.upstream.recipe import compile_options, rows, shard_of
from wheel_builder.extras.upstream.run import Told, check_arch
from wheel_builder.extras.upstream.sdist import fetch_sdist
from wheel_builder.extras.upstream.stages import LIBRARY, OBJECT, Workshop, link, make_object, refuse
from wheel_builder.images.sdist import BACKEND
from wheel_builder.matrix.model import Selection, Upstream
from wheel_builder.matrix.plan import plan
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.steps import Steps

MATRIX = load_matrix(CHECKOUT / "matrix.yaml")
NAMES = [f"fmha_fwd_d{dim}_{number}" for dim in (64, 128) for number in range(50)]


class FakePip:
    """``pip download`` that leaves a file and records the requested names."""

    def __init__(self, content):
        self.content = content

    def __call__(self, argv, *, env, **kwargs):
        self.argv = [str(part) for part in argv]
        self.wanted = Path(self.argv[self.argv.index("--requirement") + 1]).read_text()
        self.backend = Path(env["PYTHONPATH"], "setuptools/build_meta.py").read_text()
        Path(self.argv[self.argv.index("--dest") + 1], "flash_attn-2.8.3.tar.gz").write_bytes(self.content)
        return Completed("", 0)


def test_the_source_distribution_is_asked_for_by_hash_and_nothing_of_it_runs(tmp_path):
    (tmp_path / "x").write_bytes(b"sources")
    upstream = Upstream("2.8.3", sha256_file(tmp_path / "x"), ("gfx942",))
    pip = FakePip(b"sources")
    made = fetch_sdist(upstream, Store(tmp_path), log=tmp_path / "log", run=pip)
    assert made.facts == {"file": "flash_attn-2.8.3.tar.gz"}
    assert pip.wanted == f"flash-attn==2.8.3 --hash=sha256:{upstream.sha256}\n"
    assert {"--require-hashes", "--no-deps", "--no-binary=:all:", "--no-build-isolation"} <= set(pip.argv)
    assert pip.backend == BACKEND.format(name="flash-attn", file="flash_attn", version="2.8.3")


def test_another_file_is_refused_and_not_kept(tmp_path):
    upstream = Upstream("2.8.3", "0" * 64, ("gfx942",))
    with pytest.raises(UpstreamError) as failure:
        fetch_sdist(upstream, Store(tmp_path), log=tmp_path / "log", run=FakePip(b"others"))
    assert failure.value.problems[0] == f"expected one file with sha256 {'0' * 64}"
    assert "found {'flash_attn-2.8.3.tar.gz'" in failure.value.problems[1]
    assert not list(tmp_path.glob("upstream-sdist/*/manifest.json"))


@pytest.mark.parametrize("name", ["flash_attn-2.8.3/csrc/composable_kernel/../../../x", "a/../../x"])
def test_a_path_that_leads_out_is_not_unpacked(name, tmp_path, monkeypatch):
    monkeypatch.setattr(in_container.subprocess, "run", lambda *args, **kwargs: None)
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name))
    sdist, out = str(tmp_path / "x.tar.gz"), str(tmp_path / "out")
    with contextlib.suppress(tarfile.FilterError):
        in_container.generate(sdist, out, "csrc/composable_kernel", "g", "fwd")
    assert [path.name for path in tmp_path.rglob("x")] == []


def test_only_cks_own_files_are_unpacked(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(in_container.subprocess, "run", lambda argv, check: asked.append(argv))
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        for name in ("a/setup.py", "a/csrc/ck/include/x.hpp", "a/csrc/cutlass/y.h"):
            archive.addfile(tarfile.TarInfo(name))
        link_ = tarfile.TarInfo("a/csrc/ck/include/link.hpp")
        link_.type, link_.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link_)
    out = tmp_path / "out"
    in_container.generate(
        str(tmp_path / "x.tar.gz"), str(out), "csrc/ck", "g.py", "fwd,bwd", "--receipt", "2"
    )
    assert [path.name for path in out.rglob("*") if not path.is_dir()] == ["x.hpp"]
    assert [argv[3] for argv in asked] == ["fwd", "bwd"]
    assert asked[0][-2:] == ["--receipt", "2"]


def test_the_cost_of_a_command_and_its_limit(tmp_path):
    busy = ("python3", "-c", "x = 0\nwhile x < 3 * 10**6: x += 1")
    assert in_container.compile_one(str(tmp_path / "cost"), "0", *busy) == 0
    assert '"cpu_seconds"' in (tmp_path / "cost").read_text()
    assert in_container.compile_one(str(tmp_path / "cost"), "0", "false") == 1


def test_shards_share_all_objects_once_and_evenly():
    shards = [shard_of(NAMES[::-1], number, 7) for number in range(1, 8)]
    assert sorted(name for shard in shards for name in shard) == sorted(NAMES)
    assert {len(shard) for shard in shards} == {14, 15}
    assert {sum("d64" in name for name in shard) for shard in shards} <= {7, 8}
    assert shard_of(NAMES, 1, 1) == tuple(sorted(NAMES))


@pytest.mark.parametrize("number", [0, 8])
def test_a_shard_that_is_not_there(number):
    with pytest.raises(SelectionError, match=f"there is no shard {number} of 7"):
        shard_of(NAMES, number, 7)


def test_rows_are_one_for_each_version_arch_and_shard():
    found = rows(plan(MATRIX, Selection(all_rocm=True)), MATRIX.upstream, 3)
    assert len(found["upstream"]) == 2 * 3 * 3
    assert found["upstream"][4] == {
        "job": "rocm7.2", "rocm": "7.2", "arch": "gfx942", "shard": "2/3", "number": "2",
    }  # fmt: skip
    assert found["upstream_library"][1] == {"job": "rocm7.2", "rocm": "7.2", "arch": "gfx942"}


def test_the_compiler_is_told_the_arch_and_cks_headers():
    options = compile_options("gfx90a", "/ck")
    assert options.count("--offload-arch=gfx90a") == 1
    assert "-I/ck/include" in options
    assert not [option for option in options if "early-inline" in option]


def test_objects_have_identifiers_of_their_own_that_no_temporary_path_is_in():
    """With one shared identifier two objects fail to link: both define ``__hip_cuid_``."""
    given = [option for option in compile_options("gfx942", "/ck") if "cuid" in option]
    assert given == ["-fuse-cuid=hash"]


def test_an_arch_without_kernels_is_refused_in_words():
    with pytest.raises(SelectionError) as failure:
        check_arch(MATRIX.upstream, "gfx1030")
    assert failure.value.message.startswith("upstream's CK has no kernels for 'gfx1030'")
    assert "without matrix products, which the gate refuses" in failure.value.problems[1]
    check_arch(MATRIX.upstream, "gfx90a")


def test_an_object_without_kernels_is_refused_unless_it_is_to_have_none():
    refuse("fmha_fwd_api", [])
    with pytest.raises(GateError, match="it has no kernel of CK's attention"):
        refuse("fmha_fwd_d64_fp16", [])
    wrong = Checked("x", "FmhaFwdKernel", "gfx942", 0, "its products were left out")
    with pytest.raises(GateError) as failure:
        refuse("fmha_fwd_d64_fp16", [wrong])
    assert failure.value.problems == ("its products were left out",)


def artifact(path, **facts):
    return Artifact(path, {"key": path.name, "facts": facts, "files": {}}, reused=False)


@pytest.fixture
def shop(tmp_path):
    image = artifact(tmp_path, image_id="sha256:1", ref="builder")
    return lambda run: Workshop(image, "/llvm", Store(tmp_path / "build"), tmp_path / "log", run)


def test_a_compiler_that_fails_is_named_and_nothing_is_kept(shop, tmp_path):
    def run(argv, **kwargs):
        message = "clang++ ended with status 1\n  | fatal error: 'x.hpp' file not found"
        raise CommandFailedError(message)

    with pytest.raises(UpstreamError) as failure:
        make_object("fmha_fwd_d64_x", "gfx942", artifact(tmp_path), shop(run))
    assert failure.value.message.startswith("fmha_fwd_d64_x does not compile for gfx942")
    assert "'x.hpp' file not found" in failure.value.message
    assert not list((tmp_path / "build").glob("*/*/manifest.json"))


def test_the_linker_reads_thousands_of_objects_from_a_file(shop, tmp_path):
    seen = []

    def run(argv, **kwargs):
        if out := [part for part in argv if "target=/out" in str(part)]:
            folder = out[0].split("source=")[1].split(",")[0]
            seen.append((argv, Path(folder, "objects.rsp").read_text().splitlines()))
        message = "enough"
        raise CommandFailedError(message)

    objects = [artifact(tmp_path / f"{n:016x}", name=f"k{n:04}", kernels={}) for n in range(2775)]
    with pytest.raises(CommandFailedError, match="enough"):
        link("gfx942", objects[::-1], shop(run))
    [(argv, lines)] = seen
    assert lines == [f"/objects/{n:016x}/{OBJECT}" for n in range(2775)]
    assert sum(len(str(part)) + 1 for part in argv) < 4096
    assert "@/out/objects.rsp" in argv


def test_a_library_without_all_code_objects_is_refused(shop, tmp_path, monkeypatch):
    def run(argv, **kwargs):
        out = next(part for part in argv if "target=/out" in str(part)).split("source=")[1].split(",")[0]
        Path(out, LIBRARY).touch()
        return Completed("", 0)

    monkeypatch.setattr(stages, "code_objects", lambda data: ("one",))
    objects = [artifact(tmp_path / name, name=name, kernels={"k": 2}) for name in ("a", "b")]
    with pytest.raises(UpstreamError, match="expected 2 code objects, found 1"):
        link("gfx942", objects, shop(run))
    assert link("gfx942", objects[:1], shop(run)).facts == {"arch": "gfx942", "kernels": 1}


def test_one_object_that_fails_does_not_stop_the_others(shop, tmp_path, monkeypatch):
    tried = []

    def make(name, arch, sources, shop):
        tried.append(name)
        if name == "b":
            title = "the gate refuses b"
            raise GateError(title, ["0 of at least 2"], advice="leave its arch out")
        return artifact(tmp_path, name=name, arch=arch, cpu_seconds=1.0, peak_mib=1)

    monkeypatch.setattr(pipeline, "make_object", make)
    with pytest.raises(UpstreamError) as failure:
        pipeline.make_objects(["a", "b", "c"], "gfx942", artifact(tmp_path), shop(None), 2)
    assert sorted(tried) == ["a", "b", "c"]
    assert failure.value.message == (
        "1 of 3 objects of upstream's were not made; the others are kept\n"
        "  - the gate refuses b\n  - 0 of at least 2"
    )
    assert failure.value.advice == "leave its arch out"
    assert len(pipeline.make_objects(["a", "c"], "gfx942", artifact(tmp_path), shop(None), 2)) == 2


@pytest.mark.parametrize(
    ("mib", "most"),
    [
        (1500, {"bwd_d64": 1, "fwd_appendkv_d64": 3}),
        (2500, {"bwd_d64": 2, "fwd_appendkv_d64": 4}),
        (1, {"bwd_d64": 1}),
    ],
)
def test_as_many_compile_as_memory_has_room_for_by_their_kind(mib, most, shop, tmp_path, monkeypatch):
    """A backward takes 1180 MiB, an append 430."""
    monkeypatch.setattr(pipeline, "usable_memory", lambda: mib * 2**20)
    changed, running, seen = threading.Condition(), [], []

    def make(name, arch, sources, shop):
        with changed:
            running.append(name)
            seen.append(len(running))
            changed.notify_all()
            changed.wait_for(lambda: max(seen) >= expected, timeout=20)
        time.sleep(0.02)  # time for others to begin
        with changed:
            running.remove(name)
        return artifact(tmp_path, name=name, arch=arch, cpu_seconds=1.0, peak_mib=1)

    monkeypatch.setattr(pipeline, "make_object", make)
    for kind, expected in most.items():
        seen.clear()
        names = [f"fmha_{kind}_{number}" for number in range(8)]
        pipeline.make_objects(names, "gfx942", artifact(tmp_path), shop(None), 4)
        assert (max(seen), len(seen)) == (expected, 8)


def test_its_log_is_one_that_explain_log_reads(tmp_path):
    name = "fmha_bwd_d128_bf16_batch_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32"
    told = Told(2, tmp_path / "log")
    for number in range(2):
        facts = {"name": f"{name}_{number}", "arch": "gfx942", "cpu_seconds": 41.2, "peak_mib": 700}
        told.done(artifact(tmp_path, **facts), time.monotonic())
    log = Log()
    log.feed((tmp_path / "log").read_bytes())
    log.end()
    report = explain(log, "log")
    assert (report.done, report.total) == (2, 2)
    assert "backward" in report.objects[0].words


@pytest.mark.parametrize(("part", "changed"), [("objects", "measured"), ("flags", "flags"), ("all", "both")])
def test_what_is_not_measured_keeps_its_figures(part, changed, tmp_path, monkeypatch):
    name = "fmha_fwd_d64_fp16"
    facts = {"name": name, "arch": "gfx942", "cpu_seconds": 3.0, "peak_mib": 7, "code_bytes": 9}
    context = RunContext(CHECKOUT, tmp_path, tmp_path, tmp_path, jobs=1)
    sources = SimpleNamespace(result=artifact(tmp_path, kernels=[name]))
    prepared = pipeline._Prepared(Steps(context, None), lambda: None, sources)
    monkeypatch.setattr(pipeline, "_prepared", lambda *args: prepared)
    monkeypatch.setattr(pipeline, "make_objects", lambda *args: [artifact(tmp_path, **facts)])
    monkeypatch.setattr(pipeline, "_measure_flags", lambda *args: (Flags("", 5.0, 9),))
    before = load_costs(CHECKOUT)
    wanted = pipeline.Wanted(SimpleNamespace(id="rocm7.2"), None, MATRIX.upstream, "gfx942")
    steps, costs = pipeline.measure_upstream(wanted, part, context)
    steps.run(plain=True)
    after = costs.result
    assert (after.measured != before.measured) == (changed != "flags")
    assert (after.objects == {"fwd": 1}) == (changed != "flags")
    assert (after.flags == (Flags("", 5.0, 9),)) == (changed != "measured")
    assert (after.flags == before.flags) == (changed == "measured")


def test_the_command_says_what_it_would_do(capsys):
    assert main(["upstream", "--arch", "gfx942", "--shard", "2/9", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "upstream sources" in said
    assert "library" not in said
    assert main(["upstream", "--arch", "gfx942", "--dry-run"]) == 0
    assert "rocm7.2 library gfx942" in capsys.readouterr().out
    assert main(["upstream", "--arch", "gfx1030", "--dry-run"]) == SelectionError.exit_code


@pytest.mark.parametrize("shard", ["0/3", "4/3", "3", "a/b"])
def test_a_shard_that_cannot_be(shard, capsys):
    with pytest.raises(SystemExit):
        main(["upstream", "--arch", "gfx942", "--shard", shard])
    assert "expected a shard such as 3/24" in capsys.readouterr().err

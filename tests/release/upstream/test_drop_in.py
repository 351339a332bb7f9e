"""The drop-ins, such as flash-attn, in use: upstream's own test files, unmodified, and released libraries."""

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from tests.conftest import CHECKOUT
from tests.installed.drop_in.download import TARGET, pip_download
from tests.tools.sdist import file_of_sdist
from wheel_builder.base.store import Store, sha256_file
from wheel_builder.build.shim import SHIMS, build_shim, wheel_name
from wheel_builder.images.docker import Mount, run_in
from wheel_builder.images.wheel_tests import Suite
from wheel_builder.index.first_use import install_and_call
from wheel_builder.machine_code.fake_hip.container import fake_hip_suite
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel
from wheel_builder.provenance.provenance import read_provenance
from wheel_builder.provenance.records import provenance_path, record_path
from wheel_builder.tables.archs import arch_named, known_archs
from wheel_builder.verify.numerics import CHECKS, SEED, TIME_LIMIT

DROP_IN = CHECKOUT / "tests/installed/drop_in"
PLUGIN = "/plugin/upstream_on_cpu.py"
TESTS = 14
# Samples: each the cheapest of a few. Upstream itself skips some of their cases.
QUICK = {
    "FA_UPSTREAM_CASES": "19", "FA_UPSTREAM_SCORES": "23000", "FA_UPSTREAM_DRAWS": "8",
    "FA_UPSTREAM_SEED": "1",
}  # fmt: skip
# Cases of all lengths up to about a thousand.
FULL = {
    "FA_UPSTREAM_CASES": "50", "FA_UPSTREAM_SCORES": "1050625", "FA_UPSTREAM_DRAWS": "1",
    "FA_UPSTREAM_SEED": "2",
}  # fmt: skip
# On an emulated arch: some of each test, forward and backward.
EMULATED = {**QUICK, "FA_UPSTREAM_CASES": "2", "FA_UPSTREAM_DRAWS": "16", "FA_UPSTREAM_SEED": "4"}
# FlashAttention 3's cases have at least 4 keys. If every row sees at most one key, all gradients and the
# file's tolerance are 0.
QUICK_3 = {**QUICK, "FA_UPSTREAM_CASES": "4", "FA_UPSTREAM_KEYS": "4"}
MORE_3 = {**QUICK_3, "FA_UPSTREAM_CASES": "20"}
EMULATED_3 = {**QUICK_3, "FA_UPSTREAM_CASES": "2", "FA_UPSTREAM_DRAWS": "24", "FA_UPSTREAM_SEED": "3"}
# The test file and its imports from its folder.
FILES = ("tests/test_flash_attn.py",)
FILES_3 = ("hopper/test_flash_attn.py", "hopper/test_util.py", "hopper/padding.py")
# Packages for upstream's test files that the verify image lacks.
UPSTREAM_WHEELS = "/wheels/flash_attn*.whl /wheels/einops*.whl"
RUN = """
set -eu
python -m pip install --no-index --no-deps --no-compile --quiet ${WHEELS:-/wheels/*.whl}
cd /out
LD_PRELOAD="${PRELOAD:-}" exec python -m pytest -p no:cacheprovider -q --tb=short \\
    --junit-xml=/out/junit.xml "$@"
"""
UPSTREAM = [
    "-p", "upstream_on_cpu", "-W", "error", "-W", "ignore::flash_attn_rocm.FlashAttnFallbackWarning",
    "/upstream/test_flash_attn.py",
]  # fmt: skip
# Keeps large tensors on the heap: returning them to the system after each use costs more than the arithmetic.
HEAP = {"MALLOC_MMAP_THRESHOLD_": str(2**31), "MALLOC_TRIM_THRESHOLD_": str(2**32)}


@pytest.fixture(scope="module")
def upstream(context, tmp_path_factory):
    """``upstream(files)``: a folder with upstream's test file, from its source distribution."""

    def extract(files):
        folder = tmp_path_factory.mktemp("upstream")
        for name in files:
            (folder / name.rpartition("/")[2]).write_bytes(file_of_sdist(name, context))
        folder.chmod(0o755)
        return folder

    return extract


@pytest.fixture(scope="module")
def shims(release):
    """The released wheels of all drop-ins."""
    return {shim: next(release.wheel.parent.glob(f"{shim.package}-*.whl")) for shim in SHIMS}


each_shim = pytest.mark.parametrize("shim", SHIMS, ids=[shim.name for shim in SHIMS])


@pytest.fixture(scope="module")
def wheels(release, shims, tmp_path_factory):
    """A folder with the wheels of all distributions and of the libraries."""
    folder = tmp_path_factory.mktemp("wheels")
    done = pip_download(DROP_IN / "requirements.txt", folder, *TARGET)
    assert done.returncode == 0, done.stderr
    for wheel in (release.wheel, *shims.values()):
        (folder / wheel.name).write_bytes(wheel.read_bytes())
    folder.chmod(0o755)  # the container has another user
    return folder


@pytest.fixture
def run_tests(wheels, verifier, tmp_path):
    """``run_tests(arguments, mounts, env)``: cases by outcome and test, pytest's words, and its report."""

    def run(arguments, mounts, env):
        out = tmp_path / "out"
        out.mkdir()
        out.chmod(0o777)
        mounts = (*mounts, Mount(wheels, "/wheels"), Mount(out, "/out", writable=True))
        argv = ["sh", "-c", RUN, "sh", *arguments]
        env = {"PYTHONDONTWRITEBYTECODE": "1", **env}
        done = run_in(verifier.facts["ref"], argv, mounts=mounts, env=env, check=False)
        assert (out / "junit.xml").is_file(), done.stdout
        return outcomes(out / "junit.xml"), done.stdout, out / "junit.xml"

    return run


@pytest.fixture
def run_upstream(run_tests, upstream, emulated):
    """``run_upstream(settings, arch, files)`` runs a sample of upstream's cases with an arch's kernels.

    An empty arch means without kernels. Upstream itself skips some cases.
    """

    def run(settings, arch="", files=FILES):
        suite = emulated(DROP_IN, arch)
        path = ":".join(filter(None, ("/plugin", "/upstream", dict(suite.env).get("PYTHONPATH"))))
        mounts = (
            *suite.mounts, Mount(upstream(files), "/upstream"),
            Mount(DROP_IN / "upstream_on_cpu.py", PLUGIN),
        )  # fmt: skip
        env = {**dict(suite.env), **HEAP, **settings, "PYTHONPATH": path, "WHEELS": UPSTREAM_WHEELS}
        return run_tests(UPSTREAM, mounts, {**env, "PRELOAD": suite.preload})

    return run


@pytest.fixture
def emulated(release, builder, emulator, context, tmp_path):
    """``emulated(folder, arch)``: the suite of a folder's tests with an arch's kernels on the emulator.

    An empty arch means without kernels.
    """

    def suite(folder, arch):
        if not arch:
            return Suite(folder)
        code = disassemble_wheel(release.wheel, builder, store=context.store, log=tmp_path / "log")
        env = {
            "FA_FAKE_HIP_ARCH": arch_named(arch).device_name, "FA_FAKE_HIP_CHECKS": CHECKS,
            "FA_FAKE_HIP_SEED": SEED, "FA_FAKE_HIP_TIME_LIMIT": TIME_LIMIT,
        }  # fmt: skip
        return fake_hip_suite(folder, fake_hip=emulator, disassembly=code, checkout=CHECKOUT, env=env)

    return suite


def outcomes(junit):
    """Passed, failed and skipped cases, each by test."""
    found = {"passed": Counter(), "failed": Counter(), "skipped": Counter()}
    for case in ET.parse(junit).getroot().iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "skipped" if "skipped" in tags else "failed" if tags & {"failure", "error"} else "passed"
        found[outcome][re.match(r"\w+", case.get("name"))[0]] += 1
    return found


def kernels_of(junit):
    """The kernels of each passed case."""
    cases = ET.parse(junit).getroot().iter("testcase")
    passed = [case for case in cases if not {"skipped", "failure", "error"} & {child.tag for child in case}]
    return {case.get("name"): case.find("properties/property").get("value").split() for case in passed}


@each_shim
def test_the_release_publishes_it_with_record_and_statement(release, shims, shim):
    file = shims[shim]
    assert file.name == wheel_name(shim, CHECKOUT)
    record = json.loads(record_path(file).read_text())
    assert record["sha256"] == sha256_file(file)
    assert [one["wheel"] for one in record["beside"]] == [release.wheel.name]
    assert record["tests"][shim.tests][0]["passed"] >= 10
    assert read_provenance(provenance_path(file)).sha256 == record["sha256"]
    published = release.index / f"public/simple/{shim.name}" / file.name
    assert published.read_bytes() == file.read_bytes()


@each_shim
def test_pip_installs_it_with_the_kernels_from_the_index(release, shims, shim, verifier, context, tmp_path):
    version = shims[shim].name.split("-")[1]
    requirement, simple = f"{shim.name}=={version}", release.index / "public/simple"
    found = install_and_call(
        requirement, index=release.index, simple=simple, image=verifier, checkout=context.checkout,
        log=tmp_path / "log",
    )  # fmt: skip
    assert found["version"] == release.wheel.name.split("-")[1]
    assert found["max_error"] < 1e-2


@each_shim
def test_it_is_built_again_to_the_same_bytes(shims, shim, builder, context, tmp_path):
    again = build_shim(
        shim, image=builder, checkout=context.checkout, store=Store(tmp_path), log=tmp_path / "log"
    )
    assert again.facts["sha256"] == sha256_file(shims[shim])


@pytest.mark.parametrize(
    ("settings", "tests", "cases"),
    [
        (QUICK, TESTS - 1, 200),  # each case of test_flash_attn_race_condition takes long
        pytest.param(FULL, TESTS, 500, marks=pytest.mark.full),
    ],
    ids=["short", "all lengths"],
)
def test_a_sample_of_upstreams_own_cases_passes(run_upstream, settings, tests, cases):
    found, said, _ = run_upstream(settings)
    assert found["failed"].total() == 0, said
    assert found["passed"].total() >= cases
    assert len(found["passed"]) == tests


def archs_with(quick):
    """All archs, one of them also without --full."""
    return [pytest.param(arch, marks=() if arch == quick else pytest.mark.full) for arch in known_archs()]


@pytest.mark.parametrize("arch", archs_with("gfx942"))
def test_upstreams_own_cases_pass_with_kernels(run_upstream, arch):
    """Forward and backward, without a finding, and the PyTorch implementation gets no call."""
    found, said, junit = run_upstream(EMULATED, arch)
    assert found["failed"].total() == 0, said
    assert found["passed"].total() >= 20
    ran = kernels_of(junit)
    assert all(ran.values())
    for what in ("fa_fwd_", "fa_decode_", "fa_reference_", "fa_append_", "fa_bwd_dq_", "fa_bwd_dkdv_"):
        assert any(kernel.startswith(what) for kernels in ran.values() for kernel in kernels), what


@pytest.mark.parametrize(
    ("settings", "cases"),
    [(QUICK_3, 20), pytest.param(MORE_3, 100, marks=pytest.mark.full)],
    ids=["few", "more"],
)
def test_a_sample_of_the_cases_of_flash_attention_3_passes(run_upstream, settings, cases):
    found, said, _ = run_upstream(settings, files=FILES_3)
    assert found["failed"].total() == 0, said
    assert found["passed"].total() >= cases
    assert set(found["passed"]) == {
        "test_flash_attn_output", "test_flash_attn_varlen_output", "test_flash_attn_kvcache",
        "test_flash_attn_combine", "test_flash3_bw_compatibility",
    }  # fmt: skip


@pytest.mark.parametrize("arch", archs_with("gfx908"))
def test_the_cases_of_flash_attention_3_pass_with_kernels(run_upstream, arch):
    """Also chunks and used lengths, forward and backward: the PyTorch implementation gets no call."""
    found, said, junit = run_upstream(EMULATED_3, arch, FILES_3)
    assert found["failed"].total() == 0, said
    of_kernels = ("test_flash_attn_output", "test_flash_attn_varlen_output", "test_flash_attn_kvcache")
    ran = {case: kernels for case, kernels in kernels_of(junit).items() if case.startswith(of_kernels)}
    assert all(ran.values())
    assert {case.partition("[")[0] for case in ran} == set(of_kernels)
    for what in ("fa_fwd_", "fa_decode_", "fa_bwd_dq_", "fa_bwd_dkdv_"):
        assert any(kernel.startswith(what) for kernels in ran.values() for kernel in kernels), what


@pytest.fixture
def run_libraries(run_tests, emulated):
    """``run_libraries(arch, *chosen)``: all or the chosen tests, with an arch's kernels on the emulator.

    An empty arch means without kernels.
    """
    folder = DROP_IN / "libraries"

    def run(arch, *chosen):
        suite = emulated(folder, arch)
        mounts = (*suite.mounts, Mount(folder, "/libraries"))
        # All families of transformers, once: in float64, for which there are no kernels.
        env = {**dict(suite.env), "PRELOAD": suite.preload, "FA_FULL": "" if arch else "1"}
        return run_tests([*chosen] or ["/libraries"], mounts, env)

    return run


# One arch stands for all. On gfx908, as on some others, the libraries find no other flash attention.
PATHS = [pytest.param("", marks=pytest.mark.full), *archs_with("gfx908")]


@pytest.mark.parametrize("arch", PATHS)
def test_released_libraries_agree_with_plain_attention(run_libraries, arch):
    """Both transformers and diffusers.

    Calls with gradients go to the PyTorch implementation on every arch.
    """
    found, said, _ = run_libraries(arch)
    assert found["failed"].total() == found["skipped"].total() == 0, said
    assert set(found["passed"]) >= {"test_forward", "test_generate", "test_backward", "test_served"}
    assert found["passed"]["test_served"] >= (15 if arch else 200)


@pytest.mark.parametrize("arch", archs_with("gfx942"))
def test_deepseek_v3_agrees_with_plain_attention_on_its_own_kernels(run_libraries, arch):
    """The kernels for a separate head dim of v, which gfx908 lacks."""
    chosen = ("/libraries/test_register.py", "-k", "deepseek_v3 and test_forward_of")
    found, said, junit = run_libraries(arch, *chosen)
    assert found["failed"].total() == found["skipped"].total() == 0, said
    assert [*kernels_of(junit).values()] == [["fa_fwd_uneven_bf16_d192"] * 2] * 2

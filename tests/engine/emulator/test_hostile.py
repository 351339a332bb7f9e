"""Untrusted code objects are refused in words: known ways to crash, and a fuzz target.

All of it runs in the builder image, compiled with the address and the undefined-behaviour sanitizer.
"""

import functools
import re
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.engine.emulator.fuzz import hostile
from tests.engine.emulator.fuzz.build import CORE, build, compile_in
from tests.engine.emulator.fuzz.inputs import packed
from wheel_builder.images.docker import Mount, caller, run_in
from wheel_builder.tables.archs import arch_named, known_archs

ARCHS = tuple(known_archs())
# The first arch of each matrix unit. The emulator reads the others with the same code.
UNITS = {arch_named(arch).isa.unit: arch for arch in reversed(ARCHS)}.values()
# More memory than any code object may request. Above it the target counts as crashed.
LIMITS = "-rss_limit_mb=2560 -malloc_limit_mb=1024 -timeout=20 -detect_leaks=0"
# Freed waves are kept from reuse for a while. A larger quarantine costs page faults.
ASAN = "detect_leaks=0:quarantine_size_mb=4:thread_local_quarantine_size_kb=64"
# All archs' code objects, read and run, are in the first inputs. The fuzzer's changes of them are a sample.
RUNS, FULL_RUNS, SEED = 20_000, 2_000_000, 1
# Enough to find a bug put back.
BUG_RUNS = 100_000
ONE_BY_ONE = """
for file in /inputs/*; do
    echo "== ${file##*/}"
    FUZZ_TELL=1 /target/fuzz $LIMITS "$file" 2>&1 || echo "exit $?"
done
"""


@pytest.fixture(scope="session")
def fuzz_target(builder, job, context):
    return build(builder, job.rocm.llvm, CHECKOUT, context.store)


@pytest.fixture(scope="session")
def code(compiled, disassembled):
    """``code(arch)``: code object of data/hostile.hip, and its disassembly up to the padding."""

    def read(arch):
        file = compiled("hostile", arch)
        return file.read_bytes(), hostile.without_padding(disassembled(file))

    return read


def run_target(builder, target, inputs, script, **env):
    """The output of a script. It finds the target below /target and ``inputs`` below /inputs."""
    mounts = [Mount(target, "/target"), Mount(inputs, "/inputs")]
    env = {"LIMITS": LIMITS, "ASAN_OPTIONS": ASAN, **env}
    argv = ["sh", "-c", script]
    done = run_in(builder.facts["ref"], argv, mounts=mounts, user=caller(), env=env, check=False)
    return done.returncode, done.stdout


def answers(builder, target, cases, folder):
    """The target's answer to each case."""
    for name, case in cases.items():
        (folder / name).write_bytes(packed(case.call, case.elf, case.text))
    _, printed = run_target(builder, target, folder, ONE_BY_ONE)
    _, *parts = re.split(r"^== (\w+)\n", printed, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture(scope="session")
def told(builder, fuzz_target, code, tmp_path_factory):
    """``told(arch)``: the cases of an arch, and the target's answer to each."""
    known = {}

    def tell(arch):
        if arch not in known:
            cases = hostile.cases(*code(arch), known_archs()[arch].lds_bytes)
            known[arch] = cases, answers(builder, fuzz_target, cases, tmp_path_factory.mktemp(arch))
        return known[arch]

    return tell


@pytest.mark.parametrize("name", hostile.NAMES)
@pytest.mark.parametrize(
    "arch", [pytest.param(arch, marks=() if arch in UNITS else pytest.mark.full) for arch in ARCHS]
)
def test_hostile_input_is_refused_in_words(told, arch, name):
    cases, said = told(arch)
    assert "exit " not in said[name], said[name][-3000:]
    assert cases[name].words in said[name], said[name][-3000:]
    # A case with empty words must run.
    assert ("refused: " in said[name]) == bool(cases[name].words), said[name][-3000:]


def fuzz(builder, target, inputs, runs, seed):
    options = f"-runs={runs} -seed={seed} -max_len=65536 -len_control=0 -print_final_stats=1"
    return run_target(
        builder,
        target,
        inputs,
        f"cp -r /inputs /tmp/grown; exec /target/fuzz $LIMITS {options} /tmp/grown 2>&1",
    )


@pytest.fixture(scope="session")
def corpus(code, tmp_path_factory):
    """The fuzzer's initial corpus: real code objects, each with a working call."""
    folder = tmp_path_factory.mktemp("corpus")
    for arch in ARCHS:
        (folder / arch).write_bytes(packed(hostile.Call(), *code(arch)))
    return folder


@pytest.mark.parametrize("runs", [RUNS, pytest.param(FULL_RUNS, marks=pytest.mark.full)])
def test_the_fuzzer_finds_nothing(builder, fuzz_target, corpus, runs):
    code, printed = fuzz(builder, fuzz_target, corpus, runs, SEED)
    assert code == 0, printed[-6000:]
    assert f"stat::number_of_executed_units: {runs}" in printed


# Former bugs, put back: the case that reveals each, the core's file, the guard, and the preceding code.
PLANTED = {
    "no_offset": ("code/metadata.cpp", 'if (!v) refuse(owner + ": has no " + key);', ""),
    "filesz_exceeds_memsz": ("code/elf.cpp", "if (in_file > in_memory)", "if (false)"),
    "nested_arrays": ("code/metadata.cpp", "if (++depth > kMaxDepth)", "if (false)"),
    "hidden_offset_outside": (
        "code/metadata.cpp", "if (offset > k.kernarg || size > k.kernarg - offset)", "if (false)",
    ),
    "lds_of_the_descriptor_overflows": (
        "run/setup.cpp", "limit(l.lds_size(),", "limit(static_cast<u32>(l.lds_size()),",
    ),
    "block_of_1e8": ("run/setup.cpp", "if (threads == 0 || threads > kMaxThreads)", "if (b[0] == 0)"),
}  # fmt: skip


@pytest.fixture(scope="session")
def planted(builder, job, tmp_path_factory):
    """``planted(name)``: the target with one of PLANTED put back."""

    @functools.cache
    def make(name):
        file, guard, instead = PLANTED[name]
        source, folder = (CHECKOUT / CORE / file).read_text(), tmp_path_factory.mktemp(name)
        assert source.count(guard) == 1
        changed = folder / Path(file).name
        changed.write_text(source.replace(guard, instead))
        out = folder / "out"
        out.mkdir()
        compile_in(builder, job.rocm.llvm, CHECKOUT, out, instead=changed)
        return out

    return make


@pytest.mark.full
@pytest.mark.parametrize("name", PLANTED)
def test_a_bug_put_back_is_noticed(builder, planted, code, tmp_path, name):
    cases = {name: hostile.cases(*code("gfx942"), known_archs()["gfx942"].lds_bytes)[name]}
    said = answers(builder, planted(name), cases, tmp_path)[name]
    assert "ERROR: " in said or "runtime error: " in said


@pytest.mark.full
def test_the_fuzzer_finds_a_bug_put_back(builder, planted, corpus):
    code, printed = fuzz(builder, planted("nested_arrays"), corpus, BUG_RUNS, SEED)
    assert code != 0
    assert "ERROR: AddressSanitizer: stack-overflow" in printed

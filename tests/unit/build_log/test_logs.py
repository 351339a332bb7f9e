"""Real logs of upstream's build (logs/README.md says how each was made), and what was done to some."""

import json
import re
from pathlib import Path

import pytest

from wheel_builder.build_log.causes import MARKS, load_rules
from wheel_builder.build_log.ninja import parse_ninja_log
from wheel_builder.build_log.page import to_html
from wheel_builder.build_log.read import Log
from wheel_builder.build_log.report import explain, to_json

LOGS = Path(__file__).parent / "logs"


def report(data, spans=(), chunk=1 << 20):
    log = Log()
    for at in range(0, len(data), chunk):
        log.feed(data[at : at + chunk])
    log.end()
    return explain(log, "build.log", spans)


def read(name):
    return (LOGS / name).read_bytes()


@pytest.fixture(scope="module")
def interrupted():
    spans = parse_ninja_log((LOGS / "ck-interrupted.ninja_log.txt").read_text().splitlines())
    return report(read("ck-interrupted.txt"), spans)


def test_an_interrupted_build_of_upstreams(interrupted):
    assert interrupted.state == "interrupted"
    assert interrupted.backend == "flash-attention's Composable Kernel (CK) backend"
    assert (interrupted.done, interrupted.total, interrupted.remaining) == (2, 2782, 2780)
    assert interrupted.archs == ("gfx942",)
    assert interrupted.causes == ()
    assert [one.seconds for one in interrupted.slowest] == [pytest.approx(63.82), pytest.approx(26.956)]
    assert interrupted.objects[0].words.startswith("backward's rounding of dQ, head dim 128, bf16")
    assert interrupted.jobs_running.most == 1
    assert len(interrupted.flags) > 40


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        ("ck-memory.txt", "killed for memory", "a compiler was killed because memory ran out"),
        ("one-arch.txt", "undeclared identifier", "mul is used and not declared"),
        ("ck-cpu-torch.txt", "missing header", "ROCm's header thrust/complex.h was not found"),
        ("argument-list.txt", "argument list too long", "the link command is longer than the system allows"),
        ("disk-full.txt", "disk full", "the disk is full"),
        ("ck-gfx1030.txt", "unsupported arch", "flash-attn does not build its CK backend for 'gfx1030'"),
        ("unknown-arch.txt", "unsupported arch", "the compiler does not know the arch gfx9420"),
        (
            "abi.txt",
            "ABI mismatch",
            "the ABI does not match: _ZN3c101fEPNS_5ErrorE is in none of the libraries",
        ),
        (
            "python-h.txt",
            "Python.h missing",
            "the headers of the Python that builds are not installed: Python.h",
        ),
        ("ck-no-submodule.txt", "git submodule missing", "csrc/composable_kernel has no files"),
        ("ck-native.txt", "no GPU to ask", "this PyTorch is a CPU build"),
        ("ck-no-torch-hip.txt", "library missing", "PyTorch's library c10_hip was not found"),
        ("pip-no-torch.txt", "missing module", "the Python that builds has no torch"),
    ],
)
def test_a_failed_build_has_its_cause_first(name, key, words):
    found = report(read(name))
    assert found.state == "failed"
    assert found.causes[0].key == key
    assert words in found.causes[0].what
    assert found.causes[0].next


def test_the_pass_in_which_a_name_is_not_declared():
    found = report(read("one-arch.txt"))
    assert found.causes[0].arch == "gfx1030"
    assert found.failed == ("k.o",)
    assert "mul is used and not declared in the pass for gfx1030" in to_html(found)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus", "killed for memory"),
        ("clang++: error: unable to execute command: Killed", "killed for memory"),
        ("/bin/sh: line 1:  4711 Killed                  hipcc -c x.hip", "killed for memory"),
        ("FAILED: [code=137] a.o", "killed for memory"),
        ("LLVM ERROR: out of memory", "killed for memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "killed for memory"),
        ("OSError: [Errno 28] No space left on device: 'x.o'", "disk full"),
        ("/bin/sh: 1: hipcc: Argument list too long", "argument list too long"),
        ("clang++: error: invalid target ID 'gfx99999'; format is a processor name", "unsupported arch"),
        ("RuntimeError: No HIP GPUs are available", "no GPU to ask"),
        ("x.hip:6:10: fatal error: 'ck_tile/core.hpp' file not found", "git submodule missing"),
        ("x.hip:7:10: fatal error: 'fmha_bwd.hpp' file not found", "git submodule missing"),
        ("fatal: not a git repository (or any of the parent directories): .git", "git submodule missing"),
        ("x.cpp:1:10: fatal error: Python.h: No such file or directory", "Python.h missing"),
        ("x.cpp:1:10: fatal error: ATen/hip/HIPContext.h: No such file or directory", "missing header"),
        ("x.cpp:1:10: fatal error: 'zlib.h' file not found", "missing header"),
        ("x.cpp:9: error: 'mul' was not declared in this scope", "undeclared identifier"),
        ("x.o: undefined reference to `c10::Error::Error(std::__cxx11::basic_string)'", "ABI mismatch"),
        ("ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "ABI mismatch"),
        ("/bin/sh: 1: hipcc: not found", "compiler missing"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/rocm/bin/hipcc'", "compiler missing"),
    ],
)
def test_other_words_for_the_same_causes(line, key):
    found = report(f"[1/9] hipcc -c x.hip -o x.o\n{line}\n".encode())
    assert [cause.key for cause in found.causes] == [key]


def test_every_rule_is_reached_by_the_search_for_its_words():
    """A rule whose marks are never looked for would be dead."""
    dead = [
        (rule.key, mark)
        for rule in load_rules()
        for mark in rule.marks
        if not any(seen in mark or mark in seen or seen.endswith(b": ") for seen in MARKS)
    ]
    assert dead == []


def test_words_of_a_cause_before_a_build_goes_on_are_no_failure():
    found = report(b"fatal: not a git repository\n[1/9] hipcc -c x.hip -o x.o\n")
    assert (found.state, found.causes) == ("running or cut off", ())
    assert report(b"[1/9] hipcc -c x.hip -o x.o\nKilled\n").state == "failed"


def test_an_unknown_cause_shows_the_first_errors():
    found = report(b"[1/9] hipcc -c x.hip -o x.o\nx.hip:3:1: error: expected ';'\nninja: build stopped: x\n")
    assert (found.state, found.causes) == ("failed", ())
    assert found.errors == ((2, "x.hip:3:1: error: expected ';'"),)
    assert "the cause is none that this program knows" in to_html(found)


def test_upstreams_triton_backend_compiles_nothing():
    found = report(read("triton.txt"))
    assert (found.state, found.done, found.notes) == ("finished", 0, ())
    assert found.backend.startswith("flash-attention's Triton backend")


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_how_the_log_is_cut_into_chunks_does_not_matter(chunk):
    data = read("ck-interrupted.txt")
    assert report(data, chunk=chunk) == report(data)


def test_every_beginning_of_a_log_is_read():
    data = read("one-arch.txt")
    for size in range(len(data)):
        assert report(data[:size]).done in (0, 1)


def test_colours_carriage_returns_and_bytes_that_are_no_text():
    data = read("one-arch.txt").replace(b"error: ", b"\x1b[0;1;31merror: \x1b[0m").replace(b"\n", b"\r\n")
    found = report(b"\xff\xfe\n" + data.replace(b"[1/1]", b"\x1b[32m[1/1]\x1b[0m"))
    assert (found.done, found.causes[0].key) == (1, "undeclared identifier")
    assert found.causes[0].arch == "gfx1030"


def test_two_builds_that_write_at_the_same_time():
    lines = [
        f"[{at}/4] hipcc -c a{at}.hip -o a{at}.o[{at}/9] c++ -c b.cpp -o b{at}.o\n" for at in range(1, 5)
    ]
    found = report("".join(lines).encode())
    assert (found.done, found.total, found.other_runs) == (4, 9, ((4, 4),))


def test_a_build_that_began_again_counts_anew():
    steps = [*range(1, 6), *range(1, 3)]
    found = report("".join(f"[{at}/9] c++ -o {at}.o\n" for at in steps).encode())
    assert sorted([(found.done, found.total), *found.other_runs]) == [(2, 9), (5, 9)]


def test_brackets_of_other_programs_are_no_steps():
    found = report(b"#5 [1/3] FROM debian\n[2/7] fetching a wheel\n[-Wx] [3/4] \n")
    assert (found.done, found.total) == (0, 0)


def test_times_of_ci_systems_give_rate_and_time_left():
    lines = [
        f"2026-09-08T12:00:{2 * at:02}.5000000Z [{at}/30] hipcc -c a.hip -o a{at}.o" for at in range(1, 21)
    ]
    found = report("\n".join(lines).encode())
    assert found.per_minute == pytest.approx(30)
    assert found.left.seconds == pytest.approx(20)
    page = to_html(found)
    assert "about 20 s left (20 s to 20 s in 9 cases of 10" in page
    assert "20 steps in 38 s" in page
    points = re.search(r'points="([^"]*)"', page)[1].split()
    assert (points[0], points[-1], len(points)) == ("0.0,190.0", "1000.0,0.0", 20)


def test_buildkits_times():
    lines = [f"#12 {at}.250 [{at}/30] hipcc -c a.hip -o a{at}.o" for at in range(1, 21)]
    assert report("\n".join(lines).encode()).per_minute == pytest.approx(60)


def test_setuptools_without_ninja_counts_commands():
    lines = [
        "2026-09-08T12:00:00Z building 'flash_attn_2_cuda' extension",
        "2026-09-08T12:00:00Z /opt/rocm/bin/hipcc -O3 -c csrc/mha_fwd.hip -o build/mha_fwd.o",
        "2026-09-08T12:01:00Z /opt/rocm/bin/hipcc -O3 -c csrc/mha_bwd.hip -o build/mha_bwd.o",
    ]
    found = report("\n".join(lines).encode())
    assert (found.done, found.total) == (2, 0)
    assert [one.name for one in found.objects] == ["mha_fwd", "mha_bwd"]
    assert found.slowest[0].seconds == pytest.approx(60)


def test_our_own_log_has_times_memory_and_archs():
    lines = [
        "+ docker run … python3 /src/kernels/instances/build.py --arch gfx942 --out /out --jobs 2",
        "[1/30] fa_fwd_fp16_d128 for gfx942: 6.20 CPU-seconds, 310 MiB, from 0.00 s to 7.00 s",
        "[2/30] fa_fwd_fp16_d64 for gfx942: 3.00 CPU-seconds, 200 MiB, from 0.00 s to 3.50 s",
    ]
    found = report("\n".join(lines).encode())
    assert (found.done, found.total, found.jobs_allowed, found.archs) == (2, 30, 2, ("gfx942",))
    assert [(one.name, one.seconds, one.peak_mib) for one in found.slowest] == [
        ("fa_fwd_fp16_d128", 7.0, 310),
        ("fa_fwd_fp16_d64", 3.5, 200),
    ]
    assert found.jobs_running.mean == pytest.approx(1.5)


HOSTILE = b"\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>&\xe2\x80\xae\x9b31m'\" -->"


def test_nothing_of_a_hostile_log_reaches_the_page_or_a_terminal():
    log = b"[1/9] hipcc -c x -o <img/src=x>.o\nx: fatal error: '" + HOSTILE + b"' file not found\n"
    found = report(log + b"FAILED: <b>" + HOSTILE + b"\n")
    for text in (to_html(found), to_json(found)):
        assert not {char for char in text if ord(char) < 32 and char != "\n"}
        assert "\u202e" not in text
        assert "\x9b" not in text
    page = to_html(found)
    assert "<script" not in page
    assert "<img" not in page
    assert "<b>" not in page
    assert "default-src 'none'" in page.replace("&#x27;", "'")


def test_json_is_one_document_with_the_facts_of_names(interrupted):
    found = json.loads(to_json(interrupted))
    assert found["schema"] == 1
    assert found["remaining"] == 2780
    assert found["objects"][0]["facts"]["head_dim"] == "d128"


def test_the_page_needs_nothing_else(interrupted):
    page = to_html(interrupted)
    assert "<svg" in page
    assert "<title>27 s: backward&#x27;s rounding of dQ" in page
    assert not [word for word in ("http:", "https:", "<link", "src=", "@import", "url(") if word in page]

"""Real logs of upstream's build, some of them changed (logs/README.md says how each was made)."""

import json
import re
from pathlib import Path

import pytest

from tests.fast.unit.build_log.shapes import MUTANTS, SHAPES
from wheel_builder.extras.build_log import told
from wheel_builder.extras.build_log.causes import jobs_that_fit, load_rules
from wheel_builder.extras.build_log.ninja import parse_ninja_log
from wheel_builder.extras.build_log.page import to_html
from wheel_builder.extras.build_log.read import Log
from wheel_builder.extras.build_log.report import explain, to_json

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
        ("one-arch.txt", "undeclared identifier", "mul is used without a declaration"),
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
            "Python.h was not found",
        ),
        ("ck-no-submodule.txt", "git submodule missing", "csrc/composable_kernel has no files"),
        ("ck-native.txt", "no GPU to ask", "this PyTorch is a CPU build"),
        ("ck-no-torch-hip.txt", "library missing", "PyTorch's library c10_hip was not found"),
        ("pip-no-torch.txt", "missing module", "the build's Python has no module torch"),
        (
            "compiler-crash.txt",
            "compiler crashed",
            "a compiler crashed (segmentation fault, exit status 139)",
        ),
        ("killed.txt", "killed for memory", "a compiler was killed because memory ran out"),
        ("git-network.txt", "network", "the build could not reach git.invalid"),
        ("pip-network.txt", "network", "a download of the build failed"),
        ("bdist-wheel.txt", "missing module", "has no command bdist_wheel"),
        ("cuda-home.txt", "no ROCm build of PyTorch", "this PyTorch is a CUDA or CPU build"),
        ("no-ninja.txt", "missing header", "the header missing_header.h was not found"),
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
    assert "mul is used without a declaration in the pass for gfx1030" in to_html(found)


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
        ("FAILED: [code=139] a.o", "compiler crashed"),
        ("clang++: error: clang frontend command failed with exit code 139", "compiler crashed"),
        ("Segmentation fault (core dumped)", "compiler crashed"),
        (
            "RuntimeError: HIP error: no kernel image is available for execution on the device",
            "no kernels for this GPU",
        ),
        ("RuntimeError: HIP error: invalid device function", "no kernels for this GPU"),
        (
            "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
            "no kernels for this GPU",
        ),
        (
            "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
            "no ROCm build of PyTorch",
        ),
        (
            "UserWarning: flash_attn was requested, but nvcc was not found.  Are you sure",
            "no ROCm build of PyTorch",
        ),
        ("error: Microsoft Visual C++ 14.0 or greater is required.", "Windows"),
        (
            "clang++: error: cannot find ROCm device library; provide its path via '--rocm-path'",
            "device library missing",
        ),
        (
            "clang++: error: cannot find HIP runtime; provide its path via '--rocm-path'",
            "device library missing",
        ),
        (
            "fatal: unable to access 'https://github.com/x.git/': Failed to connect to github.com port 443",
            "network",
        ),
        ("curl: (6) fatal: Could not resolve host: github.com", "network"),
        ("fatal: clone of 'https://github.com/x.git' into submodule path 'csrc/x' failed", "network"),
        (
            "ERROR: an OSError: HTTPSConnectionPool(host='x.org', port=443): Max",
            "network",
        ),
        (
            "urllib3.exceptions.NameResolutionError: <Connection>: Failed to resolve 'x.org' ([Errno -3])",
            "network",
        ),
        ("urllib.error.URLError: <urlopen error [Errno 110] Connection timed out>", "network"),
        ("urllib.error.HTTPError: HTTP Error 404: Not Found", "network"),
        ("OSError: [Errno -3] Error: Temporary failure in name resolution", "network"),
        ("ssl.SSLCertVerificationError: certificate verify failed: unable to get local issuer", "network"),
        ("OSError: [Errno 101] Error: Network is unreachable", "network"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "network"),
        ("fatal: Could not read from remote repository.", "network"),
        ("error: RPC failed; curl 56 GnuTLS recv error (-54)", "network"),
        ("fatal: early EOF", "network"),
        (
            "CalledProcessError: Command '['git', 'submodule']' returned non-zero exit status 128.",
            "network",
        ),
        ("ERROR: No matching distribution found for torch==9.9", "no distribution"),
        ("error: could not create '/usr/lib/x': Permission denied", "permission"),
        ("PermissionError: [Errno 13] Permission denied: '/usr/lib/x'", "permission"),
        ("/bin/sh: 1: /opt/rocm/bin/hipcc: Permission denied", "permission"),
        (
            "/rocm/bin/clang++: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (by it)",
            "compiler too new",
        ),
        (
            "error: y: /l/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /rocm/bin/clang)",
            "compiler too new",
        ),
        ("ModuleNotFoundError: No module named 'wheel.bdist_wheel'", "missing module"),
        ("error: invalid command 'bdist_wheel'", "missing module"),
        ("UserWarning: flash_attn was requested, but hipcc was not found.", "compiler missing"),
        ("RuntimeError: Ninja is required to load C++ extensions (pip install ninja)", "compiler missing"),
        ("ERROR: Failed building wheel for flash-attn", "pip's last words"),
        (
            "ERROR: Failed to build installable wheels for some pyproject.toml based projects",
            "pip's last words",
        ),
        ("/bin/sh: 1: hipcc: not found", "compiler missing"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/rocm/bin/hipcc'", "compiler missing"),
    ],
)
def test_other_words_for_the_same_causes(line, key):
    found = report(f"[1/9] hipcc -c x.hip -o x.o\n{line}\n".encode())
    assert [cause.key for cause in found.causes] == [key]


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize(("line", "kind"), [(line, kind) for kind, lines in SHAPES.items() for line in lines])
def test_shapes_of_public_logs_are_told_by_kind_in_any_wrapping(line, kind, mutant):
    """16 of 21 were told as "running or cut off", or only by pip's last words."""
    text = MUTANTS[mutant](line)
    found = report(f"[1/9] hipcc -c x.hip -o x.o\n{text}\n".encode())
    assert found.state == "failed"
    assert [cause.key for cause in found.causes] == [kind]
    assert "{" not in found.causes[0].what + found.causes[0].next


def test_windows_users_learn_that_there_is_a_wheel():
    for kind in ("Windows", "path too long"):
        advice = report(f"{SHAPES[kind][0]}\n".encode()).causes[0].next
        assert "prebuilt wheel" in advice
        assert "Windows" in advice


@pytest.mark.parametrize(
    "line", ["x.hip:3:1: error: expected ';'", "error: something that nobody knows", "ERROR: neither this"]
)
def test_a_log_that_holds_an_error_is_not_running(line):
    """Without a rule for its words it was told as "running or cut off"."""
    assert report(f"[1/9] hipcc -c x.hip -o x.o\n{line}\n".encode()).state == "failed"


def test_steps_that_end_after_a_compilers_error_do_not_undo_it():
    """ninja lets running steps end."""
    found = report(
        b"[1/2] hipcc -c x.hip -o x.o\nx.hip:3:1: error: expected ';'\n[2/2] hipcc -c y.hip -o y.o\n"
    )
    assert found.state == "failed"


def test_every_rule_has_a_line_that_matches_it():
    lines = [mark.args[1] for mark in test_other_words_for_the_same_causes.pytestmark]
    known = {key for rows in lines for _, key in rows}
    known |= SHAPES.keys()
    mine = {key for mark in test_a_failed_build_has_its_cause_first.pytestmark for _, key, _ in mark.args[1]}
    assert {rule.key for rule in load_rules()} - known - mine == set()


def test_one_killed_compiler_counts_once():
    """ninja says code=137 and the shell says Killed: together they were told as "(2 times)"."""
    assert report(read("killed.txt")).causes[0].times == 1
    both = read("killed.txt").replace(
        b"ninja: build stopped", b"FAILED: [code=137] c.o \nKilled\nninja: build stopped"
    )
    assert report(both).causes[0].times == 2
    undeclared = b"x.cpp:9: error: 'mul' was not declared in this scope\n"
    assert report(b"FAILED: a.o\n" + undeclared * 2).causes[0].times == 2


@pytest.mark.parametrize(
    ("name", "done", "total"), [("killed.txt", 1, 2), ("compiler-crash.txt", 0, 1), ("one-arch.txt", 0, 1)]
)
def test_a_step_that_failed_is_not_done(name, done, total):
    """ninja counts all ended steps, including failed ones."""
    found = report(read(name))
    assert (found.done, found.total, found.remaining) == (done, total, total - done)
    assert len(found.objects) == done
    assert sum(family.done for family in found.families) == done


def test_the_command_that_failed_without_ninja_is_not_done():
    lines = [
        "building 'flash_attn_2_cuda' extension",
        "hipcc -O3 -c csrc/mha_fwd.hip -o build/mha_fwd.o",
        "hipcc -O3 -c csrc/mha_bwd.hip -o build/mha_bwd.o",
        "error: command '/opt/rocm/bin/hipcc' failed with exit code 1",
    ]
    found = report("\n".join(lines).encode())
    assert (found.state, found.done, [one.name for one in found.objects]) == ("failed", 1, ["mha_fwd"])


def test_without_ninja_one_compiler_runs_and_the_report_says_so():
    found = report(b"MAX_JOBS=8\n" + read("no-ninja.txt"))
    assert found.done == 0
    assert found.jobs_allowed == 1
    assert any(note.startswith("ninja was not found, so one compiler runs at a time") for note in found.notes)
    assert report(b"hipcc -c a.hip -o a.o\n").jobs_allowed is None


def test_memory_has_a_number_for_max_jobs():
    assert jobs_that_fit(1180, 16 << 30) == (
        "one compiler of upstream's CK kernels takes up to 1180 MiB, so with the 16.0 GiB of this machine "
        "MAX_JOBS=13"
    )
    assert jobs_that_fit(1180, 1 << 29).endswith("MAX_JOBS=1")
    for name, expected in (("killed.txt", True), ("ours-memory.txt", False), ("disk-full.txt", False)):
        log = Log()
        log.feed(read(name))
        log.end()
        # Our own build counts its compilers' memory itself.
        assert explain(log, name, room="NUMBER").causes[0].next.endswith("; NUMBER") == expected


def test_what_pip_says_last_is_a_cause_only_where_there_is_no_other():
    last = b"ERROR: Failed building wheel for flash-attn\n"
    assert [cause.key for cause in report(read("disk-full.txt") + last).causes] == ["disk full"]
    page = to_html(report(last))
    assert "pip could not build flash-attn, and the log lacks the cause" in page
    assert "unknown cause" not in page
    unknown = to_html(report(b"[1/9] hipcc -c x.hip -o x.o\nx.hip:3:1: error: expected ';'\n" + last))
    assert "unknown cause" in unknown


DIGITS = b"9" * 500


@pytest.mark.parametrize(
    "line",
    [
        b"#12 %b.5 [1/2] hipcc -c a.hip -o a.o" % DIGITS,
        b"#%b 1.5 [1/2] hipcc -c a.hip -o a.o" % DIGITS,
        b"[1/2] fa_fwd_fp16_d64 for gfx942: %b CPU-seconds, 1 MiB, from 0 s to 1 s" % DIGITS,
        b"[1/2] fa_fwd_fp16_d64 for gfx942: 1.2.3 CPU-seconds, 1 MiB, from 0 s to 1 s",
        b"[1/2] fa_fwd_fp16_d64 for gfx942: 1 CPU-seconds, %b MiB, from 0 s to 1 s" % (DIGITS * 10),
        b"[1/2] fa_fwd_fp16_d64 for gfx942: 1 CPU-seconds, 1 MiB, from 0 s to %b s" % DIGITS,
        b"MAX_JOBS=%b" % (DIGITS * 10),
        b"ninja -j %b" % (DIGITS * 10),
        b"[%b/2] hipcc -c a.hip -o a.o" % DIGITS,
        b"9999-99-99T99:99:99Z [1/2] hipcc -c a.hip -o a.o",
        b"0001-01-01T00:00:00+23:59 [1/2] hipcc -c a.hip -o a.o",
    ],
)
def test_a_number_of_any_length_gives_a_report(line):
    """500 digits of time were infinite, and ended in an OverflowError."""
    found = report(line + b"\n" + line + b"\nKilled\n")
    assert to_html(found)
    assert json.loads(to_json(found))
    assert list(told.facts(found))


def test_a_ninja_log_with_a_number_of_any_length():
    lines = ["# ninja log v5", f"0\t{'9' * 500}\t0\ta.o\tx", "0\t7\t0\tb.o\tx"]
    assert [span.name for span in parse_ninja_log(lines)] == ["b.o"]


def test_words_of_a_cause_before_a_build_goes_on_are_no_failure():
    found = report(b"fatal: not a git repository\n[1/9] hipcc -c x.hip -o x.o\n")
    assert (found.state, found.causes) == ("running or truncated", ())
    assert report(b"[1/9] hipcc -c x.hip -o x.o\nKilled\n").state == "failed"


def test_an_unknown_cause_shows_the_first_errors():
    found = report(b"[1/9] hipcc -c x.hip -o x.o\nx.hip:3:1: error: expected ';'\nninja: build stopped: x\n")
    assert (found.state, found.causes) == ("failed", ())
    assert found.errors == ((2, "x.hip:3:1: error: expected ';'"),)
    assert "unknown cause" in to_html(found)


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
    assert (found.done, found.total, found.causes[0].key) == (0, 1, "undeclared identifier")
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
        "+ docker run … python3 /src/kernels/build/instances/build.py --arch gfx942 --out /out --jobs 2",
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

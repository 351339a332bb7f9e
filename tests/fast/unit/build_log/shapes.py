"""Lines of public logs by kind of failure, and variants with other wordings and wrappings."""

# Kind -> lines, each sufficient to tell it. Names of files and functions are made up.
SHAPES = {
    "instructions of another arch": (
        "a.hpp:12:9: error: '__builtin_amdgcn_mfma_f32_32x32x8f16' needs target feature mai-insts",
        "a.hpp:12:9: error: '__builtin_amdgcn_wmma_f32_16x16x16_f16_w32' needs target feature gfx11-insts",
        "a.s:7:1: error: instruction not supported on this GPU",
    ),
    "language standard": (
        "c10/util/C++17.h:27:2: error: #error You need C++17 to compile PyTorch",
        "ATen/ATen.h:4:2: error: C++20 or later compatible compiler is required to use ATen.",
    ),
    "unknown compiler flag": (
        "clang++: error: unknown argument: '-fno-offload-uniform-block'",
        "clang (LLVM option parsing): Unknown command line argument '-amdgpu-x=1'.  error: try --help",
        "g++: error: unrecognized command-line option '--offload-arch=gfx1100'",
    ),
    "compiler crashed": (
        "clang++: error: clang frontend command failed due to signal (use -v to see invocation)",
        "PLEASE submit a bug report to https://example.org and include the crash backtrace",
        "cc1plus: internal compiler error: in expand_expr, error: at expr.c:1",
        "clang-17: a.cpp:1234: bool f(): Assertion `isa<X>(Val)' failed.",
        "UNREACHABLE executed at lib/Target/AMDGPU/x.cpp:99!",
        "Aborted (core dumped)",
        "FAILED: [code=139] a.o",
    ),
    "compiler gave up": (
        "LLVM ERROR: Cannot select: t5: f32 = llvm.amdgcn.mfma",
        "fatal error: error in backend: unsupported LDS size",
        "clang++: error: clang frontend command failed with exit code 70 (use -v to see invocation)",
        "make[2]: *** [CMakeFiles/a.dir/build.make:76: a.cpp.o] Error 70",
    ),
    "static assertion": (
        "a.hpp:3:1: error: static assertion failed due to requirement 'N % 16 == 0': wrong tile",
        "a.hpp:3:1: error: static assertion failed: wrong tile",
        "a.hpp:3:1: error: static_assert failed due to requirement 'kArch' \"not supported\"",
    ),
    "path too long": (
        "FileNotFoundError: [WinError 206] The filename or extension is too long: 'C:\\\\a'",
        "error: unable to create file csrc/a/b.hpp: Filename too long",
        "OSError: [Errno 36] File name too long: 'a'",
    ),
    "CMake": ("CMake Error at CMakeLists.txt:31 (find_package):", "CMake Error: CMAKE_HIP_COMPILER not set"),
    "make's last words": ("make[1]: *** [Makefile:9: all] Error 2",),
    "refused to install": (
        "error: externally-managed-environment",
        "error: The interpreter at /usr is externally managed, and indicates the following:",
        "error: No virtual environment found; run `uv venv` to create an environment",
        "ERROR: Package 'a' requires a different Python: 3.9.2 not in '>=3.10'",
        "ERROR: a-1.0-cp312-cp312-win_amd64.whl is not a supported wheel on this platform.",
        "  \u00d7 No solution found when resolving dependencies:",
        "ERROR: ResolutionImpossible: for help visit https://example.org",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
    ),
    "job ended from outside": (
        "##[error]The operation was canceled.",
        "Error: The operation was cancelled.",
        "##[error]The runner has received a shutdown signal.",
        "##[error]The job running on runner a has exceeded the maximum execution time of 360 minutes.",
        "ERROR: Job failed: execution took longer than 1h0m0s seconds",
        "Error: Process completed with exit code 143.",
        "Terminated",
    ),
    "no kernels for this GPU": (
        "RuntimeError: HIP error: device kernel image is invalid",
        "torch.AcceleratorError: hipErrorInvalidImage: device kernel image is invalid",
    ),
    "Windows": ("error: Microsoft Visual C++ 14.0 or greater is required. Get it with \"Build Tools\"",),
    "pip's last words": ("  \u00d7 Failed to build `flash-attn==2.8.3`",),
}  # fmt: skip

# Text added around a line by tools and CI, and other spellings.
MUTANTS = {
    "as it is": lambda line: line,
    "of a CI with times": lambda line: f"2026-01-02T03:04:05.1234567Z {line}",
    "of docker": lambda line: f"#14 7231.4 {line}",
    "coloured": lambda line: f"\x1b[1m\x1b[31m{line}\x1b[0m",
    "of Windows": lambda line: f"{line}\r",
    "indented by pip": lambda line: f"      {line}",
    "in an absolute path": lambda line: line.replace("a.hpp", "/tmp/pip-install-x/csrc/ck_tile/core/a.hpp"),
    "with typographic quotes": lambda line: line.replace("'", "\u2018", 1).replace("'", "\u2019", 1),
    "with more behind it": lambda line: f"{line} " if line.endswith((".", ":")) else line,
}

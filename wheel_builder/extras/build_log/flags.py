"""The purpose of compiler flags, in words.

Flags are grouped by purpose. Flags without a row are in the group ``unknown``. The table never guesses.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

UNKNOWN = "unknown"
# Groups in the order of a report, with descriptions.
GROUPS: Mapping[str, str] = {
    "archs": "target GPUs; each adds a pass over every object",
    "optimisation": "effort of the compiler",
    "code generation": "settings of the AMD GPU backend; every -mllvm changes the cost of all objects",
    "language": "the C++ standard, and how the source is read",
    "CK": "Composable Kernel's own switches",
    "torch": "PyTorch's requirements for extensions, and its ABI",
    "HIP": "HIP's platform and its half-precision operators",
    "warnings": "compiler warnings",
    "linking": "linking of objects and libraries",
    "reproducible": "keeps paths and times out of the result",
    "files": "folders of headers, inputs and outputs",
    "definitions": "other macros",
    UNKNOWN: "flags missing in our tables",
}
# The whole flag -> its group and its meaning. The first match counts.
TABLE: tuple[tuple[str, str, str], ...] = (
    (r"--(?:offload|cuda-gpu)-arch=(.+)", "archs", "device code for {0}"),
    (r"--amdgpu-target=(.+)", "archs", "device code for {0} (an old spelling)"),
    (r"-O([0123sgz]|fast)", "optimisation", "optimisation level {0}"),
    (r"-f(?:no-)?fast-math|-ffast-math|-fno-math-errno", "optimisation", "rules of floating point relaxed"),
    (r"-fgpu-flush-denormals-to-zero", "optimisation", "fp32 numbers near zero become zero"),
    (r"-g|-ggdb|-gline-tables-only", "optimisation", "debug information"),
    (
        r"-mllvm -{1,2}amdgpu-early-inline-all=(\w+)",
        "code generation",
        "inline every function early ({0}): code grows before it is optimised, and compiling takes longer",
    ),
    (
        r"-mllvm -{1,2}amdgpu-function-calls=(\w+)",
        "code generation",
        "device functions may be called ({0}); with false all are inlined",
    ),
    (
        r"-mllvm -{1,2}enable-post-misched=(\w+)",
        "code generation",
        "schedule again after registers are assigned ({0})",
    ),
    (
        r"-mllvm -{1,2}lsr-drop-solution=(\w+)",
        "code generation",
        "loops keep fewer induction variables ({0}), for fewer registers",
    ),
    (
        r"-mllvm -{1,2}amdgpu-coerce-illegal-types=(\w+)",
        "code generation",
        "vectors of small types become legal ones early ({0})",
    ),
    (
        r"-mllvm -{1,2}amdgpu-kernarg-preload-count=(\w+)",
        "code generation",
        "the first {0} arguments are in registers when a kernel starts",
    ),
    (
        r"-mllvm -{1,2}disable-promote-alloca-to-vector",
        "code generation",
        "arrays of accumulators stay apart instead of becoming one vector",
    ),
    (r"-mllvm (.+)", "code generation", "LLVM's setting {0}, unknown here"),
    (
        r"-fno-offload-uniform-block",
        "code generation",
        "workgroups may be smaller at the edge of a grid",
    ),
    (r"-fno-gpu-rdc|-fgpu-rdc", "code generation", "device code is complete in each object, or linked later"),
    (r"-fPIC|-fpic", "code generation", "position-independent code, for shared libraries"),
    (r"-nogpuinc|-nogpulib", "code generation", "without HIP's headers or device libraries"),
    (r"-munsafe-fp-atomics|-mwavefrontsize64|-mcumode", "code generation", "a mode of the GPU"),
    (r"--offload-device-only|--cuda-device-only", "code generation", "device code only"),
    (r"--no-gpu-bundle-output", "code generation", "a code object, not a bundle"),
    (r"-std=(.+)", "language", "the language is {0}"),
    (r"-x (.+)", "language", "the source is read as {0}"),
    (
        r"-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=(\d)",
        "CK",
        "how fp32 is rounded to bf16: {0} (0, 3 to nearest even, 1, 2 cut off, 4 ties away from zero)",
    ),
    (r"-DCK_TILE_FMHA_FWD_FAST_EXP2=(\d)", "CK", "softmax in powers of two by the hardware's exp2 ({0})"),
    (r"-DCK_ENABLE_(\w+)", "CK", "CK's kernels for {0}"),
    (r"-DCK_USE_XDL", "CK", "CK's kernels for MFMA"),
    (r"-DCK_USE_WMMA", "CK", "CK's kernels for WMMA"),
    (r"-DUSE_PROF_API=(\d)", "CK", "ROCm's profiler can follow calls ({0})"),
    (r"-DCK_\w+(?:=.*)?", "CK", "a switch of CK, unknown here"),
    (r"-DFLASHATTENTION_DISABLE_(\w+)", "CK", "flash-attention without {0}"),
    (r"-DOLD_GENERATOR_PATH", "CK", "an old PyTorch's header of random numbers"),
    (r"-DTORCH_EXTENSION_NAME=(\w+)", "torch", "the extension is {0}"),
    (r"-DTORCH_API_INCLUDE_EXTENSION_H", "torch", "the source is a PyTorch extension"),
    (r"-D_GLIBCXX_USE_CXX11_ABI=(\d)", "torch", "the ABI of std::string: {0} must be PyTorch's own"),
    (r"-DPYBIND11_\w+(?:=.*)?", "torch", "pybind11's ABI, must be PyTorch's"),
    (r"-DTORCH_\w+(?:=.*)?", "torch", "a switch of PyTorch's headers"),
    (r"-DCUDA_HAS_FP16=1", "torch", "half precision is available"),
    (r"-D__HIP_PLATFORM_(?:AMD|HCC)__=1", "HIP", "HIP for AMD GPUs"),
    (r"-DUSE_ROCM=1", "HIP", "PyTorch's headers use ROCm"),
    (r"-DHIPBLAS_V2", "HIP", "hipBLAS's second interface"),
    (
        r"-[DU]__(?:HIP|CUDA)_NO_\w+(?:=1)?",
        "HIP",
        "without (-U: with) HIP's operators and conversions of half-precision types",
    ),
    (r"-DHIP_ENABLE_WARP_SYNC_BUILTINS(?:=1)?", "HIP", "shuffles with masks of lanes"),
    (r"-W[lap],.*", "linking", "passed to the linker or assembler"),
    (r"-W.*|-w", "warnings", "a choice of warnings"),
    (r"-shared|-static-libgcc|-static-libstdc\+\+|-pthread|-pipe|-B .*", "linking", "how to link"),
    (r"-l(.+)", "linking", "with the library {0}"),
    (r"-L ?(.+)", "linking", "libraries are in {0}"),
    (r"-fuse-cuid=(\w+)", "reproducible", "the object's id is not made from a temporary path ({0})"),
    (r"-ffile-prefix-map=.*|-fdebug-prefix-map=.*", "reproducible", "paths of this machine are replaced"),
    (
        r"-fwrapv|-fstack-\S+|-fcf-protection\S*|-D_FORTIFY_SOURCE=\d",
        "definitions",
        "a distribution's default",
    ),
    (r"-c|-o .*|-M[MD]?|-M[FT] .*", "files", "compile only; output files"),
    (r"-(?:I|isystem|iquote) ?(.*)", "files", "headers are in {0}"),
    (r"-DNDEBUG", "definitions", "without assertions"),
    (r"-[DU](.*)", "definitions", "the macro {0}"),
)
COMPILED = tuple((re.compile(pattern), group, said) for pattern, group, said in TABLE)
# These take the next word with them.
PAIRS = (
    "-mllvm",
    "-x",
    "-o",
    "-isystem",
    "-iquote",
    "-I",
    "-L",
    "-D",
    "-MF",
    "-MT",
    "-B",
    "-Xclang",
    "--param",
)
MAX_WORDS = 4000


@dataclass(frozen=True)
class Flag:
    """A flag, its group, and its meaning."""

    text: str
    group: str
    words: str


def flags_of(words: Sequence[str]) -> tuple[Flag, ...]:
    """The flags among the words of a compiler's command, each once, in their order."""
    return tuple(explain(text) for text in dict.fromkeys(_flags(words[:MAX_WORDS])))


def _flags(words: Sequence[str]) -> Iterator[str]:
    waiting = ""
    for word in (word.strip("'\"") for word in words):
        if waiting:
            joined = "" if waiting in ("-I", "-D", "-L") else " "
            yield f"{waiting}{joined}{word}"
            waiting = ""
        elif word in PAIRS:
            waiting = word
        elif word.startswith("-"):
            yield word


def explain(text: str) -> Flag:
    """One flag. A pair such as ``-mllvm -x=1`` counts as one."""
    for pattern, group, said in COMPILED:
        if found := pattern.fullmatch(text):
            return Flag(text, group, said.format(*found.groups()))
    return Flag(text, UNKNOWN, "")

"""The fuzz target, compiled with sanitizers by the builder image's clang."""

from wheel_builder.base.store import sha256_tree
from wheel_builder.images.docker import Mount, caller, run_in

CORE, FUZZ = "wheel_builder/machine_code/emulator/core", "tests/engine/emulator/fuzz"
ARCH, TABLE = "kernels/device/arch", "kernels/generated/device/archs.inc"
# The kernel of the inputs uses none of their instructions. left_out.cpp stands in for them.
LEFT_OUT = (
    *("capi", "packed", "valu_double", "valu_float", "valu_half"),
    *("floats", "integers", "conversions", "dots"),  # of matrix/ and narrow/
)
# Arithmetic on registers: the trusted disassembly gives the register numbers, so all inputs stay in bounds.
PLAIN = ("compare", "cross", "salu", "valu_int")
# The address sanitizer finds null pointers. The others cost time and find nothing in such code.
UNCHECKED = "null,object-size,vptr,function"
FLAGS = (
    *("-std=c++17", "-march=haswell", "-pthread"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing"),
    *(f"-I/src/{folder}" for folder in (CORE, FUZZ, "kernels")),
)
CHECKS = (
    *("-O1", "-gline-tables-only", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"),
    *("-fsanitize=address,undefined,fuzzer-no-link", f"-fno-sanitize={UNCHECKED}"),
)
# One file for each kind takes half the time. The checked one is linked first: the linker keeps the first copy
# of a shared inline function.
COMPILE = """
set -eu
compiler=$1; shift
as_one() { for file in "$@"; do echo "#include \\"$file\\""; done; }
as_one $CHECKED > /tmp/checked.cpp
as_one $PLAIN > /tmp/plain.cpp
"$compiler" "$@" $CHECKS -c /tmp/checked.cpp -o /tmp/checked.o
"$compiler" "$@" -O0 -c /tmp/plain.cpp -o /tmp/plain.o
"$compiler" -fsanitize=address,undefined,fuzzer -pthread /tmp/checked.o /tmp/plain.o -o /out/fuzz
"""


def sources(checkout):
    """All files of the target."""
    files = [file for folder in (CORE, FUZZ) for file in sorted((checkout / folder).rglob("*.cpp"))]
    return [file for file in files if file.stem not in LEFT_OUT]


def build(builder, llvm, checkout, store):
    """A stored folder with ``fuzz``."""
    headers = [file for folder in (CORE, FUZZ) for file in (checkout / folder).rglob("*.hpp")]
    headers += (*(checkout / ARCH).iterdir(), checkout / TABLE)
    inputs = {
        "image": builder.facts["image_id"],
        "flags": [*FLAGS, *CHECKS, *PLAIN, COMPILE],
        "sources": sha256_tree(checkout, [*sources(checkout), *headers]),
    }

    def make(out):
        compile_in(builder, llvm, checkout, out)
        return {}

    return store.get_or_make("fuzz-target", inputs, make).path


def compile_in(builder, llvm, checkout, out, *, instead=None):
    """Compile the target into ``out``. The file ``instead`` replaces the one with its name."""
    mounts = [Mount(checkout / folder, f"/src/{folder}") for folder in (CORE, FUZZ, ARCH, TABLE)]
    mounts.append(Mount(out, "/out", writable=True))
    names = {file.stem: f"/src/{file.relative_to(checkout)}" for file in sources(checkout)}
    if instead:
        names[instead.stem] = f"/planted/{instead.name}"
        mounts.append(Mount(instead, names[instead.stem]))
    env = {
        "CHECKED": " ".join(path for name, path in names.items() if name not in PLAIN),
        "PLAIN": " ".join(names[name] for name in PLAIN),
        "CHECKS": " ".join(CHECKS),
    }
    argv = ["sh", "-c", COMPILE, "compile", f"{llvm}/clang++", *FLAGS]
    run_in(builder.facts["ref"], argv, mounts=mounts, user=caller(), env=env)

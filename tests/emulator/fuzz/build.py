"""The fuzz target, compiled with sanitizers by the builder image's clang."""

from wheel_builder.base.store import sha256_tree
from wheel_builder.images.docker import Mount, caller, run_in

CORE, FUZZ, INCLUDE = "wheel_builder/emulator/core", "tests/emulator/fuzz", "kernels/include"
# The kernel of the inputs has none of their instructions: left_out.cpp stands in for them.
LEFT_OUT = ("capi", "matrix", "packed", "valu_double", "valu_float", "valu_half")
# Arithmetic on registers, whose numbers the trusted disassembly gives: no input gets it out of bounds.
PLAIN = ("compare", "cross", "salu", "valu_int")
# Null pointers are the address sanitizer's; the others cost time and find nothing in such code.
UNCHECKED = "null,object-size,vptr,function"
FLAGS = (
    *("-std=c++17", "-march=haswell", "-pthread"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing"),
    *(f"-I/src/{folder}" for folder in (CORE, FUZZ, INCLUDE)),
)
CHECKS = (
    *("-O1", "-gline-tables-only", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"),
    *("-fsanitize=address,undefined,fuzzer-no-link", f"-fno-sanitize={UNCHECKED}"),
)
# Objects of files that were not changed are taken from /objects. Checked ones are linked first: of an inline
# function that both kinds have, the linker keeps the first.
COMPILE = """
set -eu
compiler=$1; jobs=$2; shift 2
mkdir -p /out/objects/checked /out/objects/plain
[ ! -d /objects ] || cp -r /objects/. /out/objects
for file in $FILES; do echo "$file"; done | xargs -P "$jobs" -I{} sh -c '
    file=$1; shift; name=$(basename "$file" .cpp)
    case " $PLAIN " in *" $name "*) kind=plain; more=-O0;; *) kind=checked; more=$CHECKS;; esac
    "$@" $more -c "$file" -o "/out/objects/$kind/$name.o"' one {} "$compiler" "$@"
"$compiler" -fsanitize=address,undefined,fuzzer -pthread /out/objects/checked/*.o /out/objects/plain/*.o \
    -o /out/fuzz
"""


def sources(checkout):
    """All files of the target."""
    files = [file for folder in (CORE, FUZZ) for file in sorted((checkout / folder).glob("*.cpp"))]
    return [file for file in files if file.stem not in LEFT_OUT]


def mounted(checkout):
    return [Mount(checkout / folder, f"/src/{folder}") for folder in (CORE, FUZZ, INCLUDE)]


def build(builder, llvm, checkout, store, *, jobs):
    """A stored folder with ``fuzz`` and its objects."""
    headers = [file for folder in (CORE, FUZZ) for file in (checkout / folder).glob("*.hpp")]
    headers += (checkout / INCLUDE / "fa/arch").iterdir()
    inputs = {
        "image": builder.facts["image_id"],
        "flags": [*FLAGS, *CHECKS, *PLAIN, COMPILE],
        "sources": sha256_tree(checkout, [*sources(checkout), *headers]),
    }
    names = [f"/src/{file.relative_to(checkout)}" for file in sources(checkout)]

    def make(out):
        mounts = [*mounted(checkout), Mount(out, "/out", writable=True)]
        compile_in(builder, llvm, names, mounts, jobs=jobs)
        return {}

    return store.get_or_make("fuzz-target", inputs, make).path


def build_planted(builder, llvm, checkout, objects, changed, out):
    """Build the target into ``out`` with one file of the core replaced."""
    mounts = [
        *mounted(checkout),
        Mount(objects, "/objects"),
        Mount(changed, f"/planted/{changed.name}"),
        Mount(out, "/out", writable=True),
    ]
    compile_in(builder, llvm, [f"/planted/{changed.name}"], mounts, jobs=1)


def compile_in(builder, llvm, names, mounts, *, jobs):
    argv = ["sh", "-c", COMPILE, "compile", f"{llvm}/clang++", str(jobs), *FLAGS]
    env = {"FILES": " ".join(names), "PLAIN": " ".join(PLAIN), "CHECKS": " ".join(CHECKS)}
    run_in(builder.facts["ref"], argv, mounts=mounts, user=caller(), env=env)

"""python -m tests.installed.drop_in.imports [--pin] FILE...

Prints the names of flash_attn used by wheels or source distributions, and those missing from the distribution
flash-attn of shim/. The exit code is 1 if a missing name is in upstream's release.  The files are read, never
executed.  --pin writes the libraries that use flash_attn to wheel_builder/verify/imports.json, for tests and
documentation.
"""

import argparse
import ast
import hashlib
import json
import re
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from packaging.utils import parse_sdist_filename, parse_wheel_filename

from wheel_builder.base.store import Store
from wheel_builder.extras.upstream.sdist import fetch_sdist
from wheel_builder.matrix.reading import load_matrix

CHECKOUT = Path(__file__).parents[3]
SHIM = CHECKOUT / "shim"
PINNED = CHECKOUT / "wheel_builder/verify/imports.json"
MODULES = ("flash_attn", "flash_attn_2_cuda")
OPERATORS = "torch.ops.flash_attn"
OURS = (*MODULES, OPERATORS)
# Modules of other distributions: FlashAttention 3 is a separate module, 4 lies below flash_attn.
OTHERS = ("flash_attn_interface", "flash_attn_3", "flash_attn_3_cuda", "flash_attn.cute", "sageattention")
REGISTERED = re.compile(r"flash_attn::(\w+)")
# From upstream's compiled module: it has no Python source.
COMPILED = {f"flash_attn_2_cuda.{name}" for name in ("fwd", "varlen_fwd", "bwd", "varlen_bwd", "fwd_kvcache")}


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.installed.drop_in.imports", description=__doc__)
    parser.add_argument("--pin", action="store_true", help=f"write {PINNED.relative_to(CHECKOUT)}")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    ours, upstream = names_of(python_files(SHIM)), upstream_names()
    rows = [row_of(file, ours, upstream) for file in options.files]
    rows = sorted(rows, key=lambda row: row["library"])
    for row in rows:
        print(as_text(row))  # noqa: T201
    if options.pin:
        lines = ",\n".join(json.dumps(row) for row in rows if row["uses"])
        PINNED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return 1 if any(row["missing"] for row in rows) else 0


def as_text(row):
    lines = [f"{row['library']} {row['version']}: {len(row['uses'])} names, {len(row['missing'])} missing"]
    for key, words in (
        ("missing", "missing"),
        ("gone", "neither here nor in upstream's release"),
        ("others", "of another distribution"),
        ("not_read", "not read, no Python of this version"),
    ):
        lines += [f"  {words}: {name}" for name in row[key]]
    return "\n".join(lines)


def row_of(file, ours, upstream):
    """A library's row: its file, the names that it takes from flash_attn, and the absent ones.

    ``missing`` names exist in upstream's release, but not in ours. ``gone`` names are in neither.
    """
    name, version = (parse_wheel_filename if file.suffix == ".whl" else parse_sdist_filename)(file.name)[:2]
    found, not_read = set(), []
    for path, text in sources(file):
        try:
            found |= uses_of(text)
        except (SyntaxError, ValueError):
            not_read.append(path)
    uses = {use for use in found if not within(use, OTHERS)}
    return {
        "library": name,
        "version": str(version),
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "uses": sorted(uses),
        **absent(uses, ours, upstream),
        "others": sorted(found - uses),
        "not_read": sorted(not_read),
    }


def absent(uses, ours, upstream):
    """The uses that are ``missing``, and those that are ``gone``."""
    lacking = {use for use in uses if not has(use, ours)}
    gone = {use for use in lacking if not has(use, upstream)}
    return {"missing": sorted(lacking - gone), "gone": sorted(gone)}


# Uses by libraries


def sources(file):
    """Path and text of every Python file of a wheel or a source distribution."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            for path in archive.namelist():
                if path.endswith(".py"):
                    yield path, archive.read(path)
        return
    with tarfile.open(file) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".py"):
                yield member.name, archive.extractfile(member).read()


def uses_of(text):
    """The dotted names taken from flash_attn by a Python file, in imports and as attributes of these."""
    if b"flash_attn" not in text and b"sageattention" not in text:
        return set()
    nodes = list(ast.walk(ast.parse(text)))
    uses, bound = set(), {"torch": {"torch"}}
    for node in nodes:
        for name, dotted in imported(node):
            uses.add(dotted)
            bound.setdefault(name, set()).add(dotted)
    for node in nodes:
        uses |= attributes(node, bound)
    return {use for use in uses if within(use, (*OURS, *OTHERS)) and use != OPERATORS}


def imported(node):
    """The names bound by an import, "" for none, and the dotted name of each."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or "", alias.name
            if alias.asname is None:
                top = alias.name.partition(".")[0]
                yield top, top
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        for alias in node.names:
            star = alias.name == "*"
            yield ("", node.module) if star else (alias.asname or alias.name, f"{node.module}.{alias.name}")
    elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
        for argument in node.args[:1]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield "", argument.value


def called(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def attributes(node, bound):
    """The possible dotted names of a chain of attributes: its root may be bound to several."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not parts or not isinstance(node, ast.Name):
        return set()
    return {".".join([root, *reversed(parts)]) for root in bound.get(node.id, ())}


def within(name, roots):
    return any(name == root or name.startswith(f"{root}.") for root in roots)


# Names of the distributions


def python_files(folder):
    """Path below the folder -> text, of the modules."""
    files = (file for module in MODULES for file in (folder / module).rglob("*.py"))
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in files}


def upstream_names():
    """Every name of upstream's release. It is fetched by its hash, and never executed."""
    upstream = load_matrix(CHECKOUT / "matrix.yaml").upstream
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-imports-") as folder:
        made = fetch_sdist(upstream, Store(Path(folder)), log=Path(folder) / "log")
        files = {
            path.partition("/")[2]: text.decode()
            for path, text in sources(made.path / made.facts["file"])
            if path.partition("/")[2].startswith("flash_attn/")
        }
    return names_of(files) | COMPILED


def names_of(files):
    """Every dotted name defined by modules, and their operators. Modules end in a dot as well."""
    names = {f"{OPERATORS}."}
    for path, text in files.items():
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        names |= {module, f"{module}."} | {f"{module}.{name}" for name in defined(ast.parse(text))}
        names |= {f"{OPERATORS}.{name}" for name in REGISTERED.findall(text)}
    return names


def defined(tree):
    """The names at the top of a module, in conditions there too."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            yield from (each.id for each in stored if isinstance(each.ctx, ast.Store))
        elif isinstance(node, ast.If | ast.Try):
            yield from defined(node)
            yield from defined(ast.Module([*node.orelse, *getattr(node, "handlers", [])], []))
        elif isinstance(node, ast.ExceptHandler):
            yield from defined(node)


def has(use, names):
    """Whether a name or module exists. Any attribute of other objects counts as existing."""
    parent, _, name = use.rpartition(".")
    if use in names or f"{parent}." in names:
        return use in names or re.fullmatch(r"__\w+__", name) is not None
    return parent in names or (bool(parent) and has(parent, names))


if __name__ == "__main__":
    sys.exit(main())

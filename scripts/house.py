"""Prints how hard the tree is to take over: big folders, circles, a kernel kind's homes, lines, words.

Usage: .venv/bin/python scripts/house.py [FILE...]. With files, only the words of these.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, HOST, BUILDER = "kernels/python", "kernels/host/", "wheel_builder/"
KINDS, CALLS = "kernels/tables/kinds.toml", "kernels/tables/calls.toml"
MOST = 15  # files in one folder
PRODUCT = ("kernels/", "wheel_builder/", "shim", "scripts/")
CODE = {".py", ".cpp", ".hpp", ".h", ".hip", ".js", ".css", ".sh", ".toml", ".yaml", ".map", ".txt", ".c"}
UPWARD = r"\s*(from|import) wheel_builder\b"
SHARED_NAMES = {"append", "combine", "decode", "fwd", "reference"}  # kinds whose names have other uses
RATES = {
    "that/which": r"\b(that|which|what|those)\b",
    "negations": r"\b(not|no|never|none|nothing|nor|neither|cannot|without)\b|n't\b",
    "semicolons": r";(?=\s)",
}
Graph = Mapping[str, set[str]]


def circles(graph: Graph) -> list[set[str]]:
    """The groups of nodes that reach each other."""

    def reached(node: str) -> set[str]:
        found: set[str] = set()
        todo = [node]
        while todo:
            new = graph.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    reach = {node: reached(node) for node in graph}
    groups = {frozenset(other for other in reach[node] if node in reach.get(other, ())) for node in graph}
    return [set(group) for group in groups if len(group) > 1]


def arrows_up(edges: Iterable[tuple[str, str]]) -> int:
    """Of two folders that use each other: the arrows of the rarer direction."""
    count = Counter(edge for edge in edges if edge[0] != edge[1])
    return sum(min(number, count[to, start]) for (start, to), number in count.items() if start < to)


def imported(text: str, modules: Collection[str]) -> Iterator[str]:
    """Those of ``modules`` that Python text imports anywhere, also with ``import_module`` of a constant."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            within = (f"{node.module}.{name.name}" for name in node.names)
            names = [name if name in modules else node.module for name in within]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            names = [str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
        yield from (name for name in names if name in modules)


def python_graph(files: Sequence[str], base: str = "") -> Graph:
    """Imports between the modules in ``files``, except a package's ``__init__``."""
    modules = {
        name.removeprefix(base).strip("/").removesuffix(".py").replace("/", "."): name
        for name in files
        if name.endswith(".py") and not name.endswith("__init__.py")
    }
    return {module: set(imported(read(path), modules)) - {module} for module, path in modules.items()}


def include_graph(files: Sequence[str]) -> Graph:
    """Includes between units (a header and its source)."""
    units = {PurePosixPath(name).name: str(PurePosixPath(name).with_suffix("")) for name in files}
    graph: dict[str, set[str]] = {unit: set() for unit in units.values()}
    for name in files:
        unit = str(PurePosixPath(name).with_suffix(""))
        found = re.findall(r'#include "(?:[^"]*/)?([^"/]+)"', read(name))
        graph[unit] |= {units[header] for header in found if header in units} - {unit}
    return graph


def shape(graph: Graph, dot: str) -> str:
    """How many nodes and arrows, how many of them in circles, and the arrows up between folders.

    A module beside the folders of a package counts as a folder of its own: users import it by that name.
    """

    def folder(node: str) -> str:
        own = node.rpartition(dot)[0]
        return own if dot in own else node

    arrows = [(folder(node), folder(other)) for node in graph for other in graph[node]]
    folders = {start: {b for a, b in arrows if a == start != b} for start, _ in arrows}
    found = circles(graph)
    return (
        f"{len(graph)} modules in {len(folders)} folders, {len(arrows)} arrows; modules in circles: "
        f"{sum(map(len, found))}, circles of folders: {len(circles(folders))}, arrows up: {arrows_up(arrows)}"
    )


def written(name: str) -> bool:
    """Whether a product file is code written by hand."""
    path = PurePosixPath(name)
    data = path.name == "golden.toml" or path.parent.name == "figures" or path.name == "requirements.txt"
    return (
        name.startswith(PRODUCT)
        and (path.suffix in CODE or not path.suffix)
        and not data
        and "Generated from" not in read(name)[:400]
    )


def prose(text: str) -> str:
    """A document's text outside of generated tables and code blocks."""
    text = re.sub(r"<!-- table: .*?<!-- end: [^>]*>", "", text, flags=re.DOTALL)
    return re.sub(r"^```.*?^```|^ {4}[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)


def remarks(name: str, text: str) -> str:
    """The docstrings and comments of Python, C++, shell or TOML."""
    if name.endswith(".py"):
        holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, holders)]
        return "\n".join([*(ast.get_docstring(node) or "" for node in nodes), *hashes(text)])
    if PurePosixPath(name).suffix in {".cpp", ".hpp", ".h", ".hip", ".js", ".c"}:
        return "\n".join(re.findall(r"//[/ ]?(.*)", text) + re.findall(r"/\*(.*?)\*/", text, re.DOTALL))
    return "\n".join(hashes(text))


def hashes(text: str) -> list[str]:
    return re.findall(r"(?:^|\s)#(?!!) (.*)", text)


def words_line(label: str, text: str) -> str:
    """Words, and the rates of habits per 1,000 of them."""
    number = len(text.split())
    rates = (1000 * len(re.findall(rate, text, re.IGNORECASE)) / max(number, 1) for rate in RATES.values())
    return f"{label:44}{number:8,}" + "".join(f"{rate:12.1f}" for rate in rates)


def words_head() -> str:
    return f"{'words, and per 1,000 words':44}{'words':>8}" + "".join(f"{name:>12}" for name in RATES)


def words_of(name: str) -> str:
    """The words of a document, or of a source's docstrings and comments."""
    return prose(read(name)) if name.endswith(".md") else remarks(name, read(name))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def tracked() -> list[str]:
    """Files tracked by git, and untracked ones that it does not ignore."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(listed.splitlines()) if (ROOT / name).is_file())


def kinds() -> list[str]:
    """The kernel kinds."""
    return [*tomllib.loads(read(KINDS))]


def operators() -> Iterable[str]:
    """The operators that launch kernels or plan, as ``torch.ops`` and the C interface name them."""
    return tomllib.loads(read(CALLS)).get("calls", {}).keys()


def homes(kind: str, files: Iterable[str], *, also_operator: bool = False) -> int:
    """How many of the files name a kernel kind.

    ``also_operator``: an operator has the same name, as the one under the public function ``mla_decode``.
    Then a file names the kind by its enumerator, its table, its kernel's definition or a string in Python.
    Not counted are the operator's ``torch.ops``, ``fa_mla``, ``impl("mla")`` and names of files.
    """
    return sum(_names_kind(kind, name, also_operator=also_operator) for name in files)


def _names_kind(kind: str, name: str, *, also_operator: bool) -> bool:
    forms = rf"\bOp::{kind}\b|^\[{kind}[\].]|FA_KERNEL\(\w+, {kind},"
    if name.endswith(".py"):
        forms += rf"|(?<!impl\()([\"']){kind}\1"
    pattern = forms if also_operator else rf"\b{kind}\b"
    return bool(re.search(pattern, read(name), re.MULTILINE))


def structure(files: Sequence[str]) -> Iterator[str]:
    """Folders, graphs, homes and lines."""
    folders = Counter(str(PurePosixPath(name).parent) for name in files)
    big = [f"{folder} {number}" for folder, number in folders.most_common() if number > MOST]
    yield f"folders with more than {MOST} files: {len(big)}" + "".join(f"\n    {line}" for line in big)
    package = python_graph([name for name in files if name.startswith(PACKAGE)], PACKAGE)
    host = include_graph([name for name in files if name.startswith(HOST) and name.endswith(("pp", ".h"))])
    builder = python_graph([name for name in files if name.startswith(BUILDER)])
    for label, graph, separator in (
        ("package", package, "."),
        ("host", host, "/"),
        ("builder", builder, "."),
    ):
        yield f"{label}: {shape(graph, separator)}"
    into = [line for name in files if name.startswith("kernels/") for line in read(name).splitlines()]
    yield f"kernels imports wheel_builder: {sum(bool(re.match(UPWARD, line)) for line in into)}"
    hand = [name for name in files if written(name)]
    named = (
        (kind, homes(kind, hand, also_operator=kind in operators()))
        for kind in kinds()
        if kind not in SHARED_NAMES
    )
    yield "homes of a kernel kind: " + ", ".join(f"{kind} {number}" for kind, number in named)
    yield "lines:"
    for label, parts in (("product", PRODUCT), ("tests", ("tests/",)), ("docs", ("docs/",)), ("all", ("",))):
        yield f"    {label}: {sum(read(n).count(chr(10)) for n in files if n.startswith(parts)):,}"


def report(files: Sequence[str]) -> Iterator[str]:
    """All figures of the tree."""
    yield from structure(files)
    yield words_head()
    documents = [name for name in files if name.endswith(".md") and not name.startswith("tests/")]
    yield from (words_line(name, words_of(name)) for name in documents)
    yield words_line("all documents", "\n".join(map(words_of, documents)))
    sources = [name for name in files if written(name)]
    for part in sorted({name.partition("/")[0] for name in sources}):
        yield words_line(
            f"remarks in {part}/", "\n".join(words_of(n) for n in sources if n.startswith(f"{part}/"))
        )
    tests = [name for name in files if name.startswith("tests/") and name.endswith((".py", "pp"))]
    yield words_line("remarks in tests/", "\n".join(map(words_of, tests)))


def main(argv: Sequence[str]) -> None:
    lines = (
        [words_head(), *(words_line(name, words_of(name)) for name in argv)] if argv else report(tracked())
    )
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])

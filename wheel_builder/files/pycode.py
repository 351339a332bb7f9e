"""Digests of the behaviour of Python files, independent of comments and most docstrings.

Left out are comments, the layout of lines, and docstrings of modules and of undecorated definitions. A
decorator may read its function's docstring. The decorators in COMPLETERS only extend it, and
tests/installed/words checks the result in every wheel.
"""

import ast
import hashlib
from functools import lru_cache

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
PRESENT = "a docstring"
# Decorators of the package (arguments/documentation.py) that read a docstring to complete it.
COMPLETERS = frozenset({"documented", "_documented"})
# With this word in its docstring, pytest leaves a module's asserts alone.
READ_BY_PYTEST = "PYTEST_DONT_REWRITE"
# Names that let a program read its own docstrings or source.
READERS = frozenset({
    "__doc__", "getdoc", "getcomments", "getsource", "getsourcelines", "getsourcefile", "findsource",
    "linecache", "tokenize", "co_firstlineno", "co_lines", "co_linetable", "co_positions", "f_lineno",
    "tb_lineno", "lineno", "doctest", "pydoc",
})  # fmt: skip


@lru_cache(maxsize=1024)  # suites of all archs ask about the same files
def code_digest(data: bytes) -> str:
    """The sha256 of a Python file's behaviour, or of its bytes if this Python cannot parse it."""
    try:
        text = ast.dump(_without_docstrings(ast.parse(data))).encode()
    except (SyntaxError, ValueError, RecursionError):
        text = data
    return hashlib.sha256(text).hexdigest()


def readers(data: bytes) -> frozenset[str]:
    """The names in a Python file that let it read its own docstrings or source."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(data)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update(part for alias in names for part in alias.name.split("."))
                found.update((getattr(node, "module", "") or "").split("."))
    return READERS & found


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """The tree with a mark for each unread docstring. A program can see whether there is one."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, *DEFINITIONS)):
            continue
        if not isinstance(node, ast.Module) and not all(map(_completes, node.decorator_list)):
            continue
        text = ast.get_docstring(node, clean=False)
        if text is not None and READ_BY_PYTEST not in text:
            node.body[0] = ast.Expr(ast.Constant(PRESENT))
    return tree


def _completes(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id in COMPLETERS

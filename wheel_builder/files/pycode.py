"""What Python files do, apart from words: digests in which comments and most docstrings have no part.

Left out are comments, the layout of lines, and docstrings of modules and of what has no decorator.  A
decorator gets the function and may read what it says.  Those in COMPLETERS only add to it: what the result is
like, tests/installed/words asks of every wheel.
"""

import ast
import hashlib

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
PRESENT = "a docstring"
# Decorators of the package (arguments/documentation.py) that read a docstring to complete it.
COMPLETERS = frozenset({"documented", "_documented"})
# pytest leaves the asserts of a module alone whose docstring has this word.
READ_BY_PYTEST = "PYTEST_DONT_REWRITE"
# With one of these names a program can read its own words.
READERS = frozenset({
    "__doc__", "getdoc", "getcomments", "getsource", "getsourcelines", "getsourcefile", "findsource",
    "linecache", "tokenize", "co_firstlineno", "co_lines", "co_linetable", "co_positions", "f_lineno",
    "tb_lineno", "lineno", "doctest", "pydoc",
})  # fmt: skip


def code_digest(data: bytes) -> str:
    """The sha256 of what a Python file does; of its bytes when this Python cannot read it."""
    try:
        text = ast.dump(_without_docstrings(ast.parse(data))).encode()
    except (SyntaxError, ValueError, RecursionError):
        text = data
    return hashlib.sha256(text).hexdigest()


def readers(data: bytes) -> frozenset[str]:
    """The names in a Python file with which it can read its own words."""
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
    """The tree with a mark for each docstring that nothing reads; whether there is one, a program can ask."""
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

"""The tables of archs are the only ones: all other mentions of an arch are compared with them."""

import ast
import re

import pytest

from tests.fast.lint.test_lint import tracked
from wheel_builder.build.shim import FOLDERS
from wheel_builder.extras.perf.golden import FIGURES
from wheel_builder.machine_code.static_checks.golden import GOLDEN, parse_golden
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.matrix.support_table import kernels_of
from wheel_builder.tables.archs import CHECKOUT, known_archs, known_gpus
from wheel_builder.tables.generated import ARCHS as GENERATED
from wheel_builder.tables.generated import PYTHON_RATES, PYTHON_TUNING, REGIMES

ARCHS = tuple(known_archs())
NAME = re.compile(r"gfx[0-9a-f]{3,}")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
MATRIX = load_matrix(CHECKOUT / "matrix.yaml")
# Users' archs without kernels, with the reason.
NOT_SERVED = {other.name for other in MATRIX.other_archs}
# Names of no arch, for tests of wrong names.
MADE_UP = {"gfx110", "gfx9080", "gfx9420", "gfx9421", "gfx99999"}
# Tests with their own lists of archs, and the reason.
LISTS_OF_THEIR_OWN = (
    "tests/installed/fake_hip/",  # runs with the installed wheel, where the table is missing
    "tests/installed/shared/machines.py",  # the archs of a made-up wheel, also used with the installed one
    "tests/tools/made/wheels.py",  # the archs of made-up wheels
    "tests/fast/unit/",  # unit tests spell out expected values
)
# Modules of the product with an arch as an example in their messages. All other strings must be free of names
# and their beginnings: a pattern or a compiler's option would be a second table.
EXAMPLES = {
    "wheel_builder/tables/products.py": "an error that says what a gfx name is",
    "wheel_builder/cli/commands/checks/emulate.py": "an option's help",
    "wheel_builder/cli/commands/extras/candidates.py": "an option's help",
    "wheel_builder/cli/commands/extras/tune.py": "an option's help",
    "wheel_builder/cli/commands/extras/tuning_wheel.py": "an option's help",
    "wheel_builder/cli/commands/extras/upstream.py": "an option's help",
    "wheel_builder/cli/options.py": "an option's help",
    "wheel_builder/files/device/fatbin.py": "what an error advises",
    "wheel_builder/index/finder/page.py": "what the page shows in an empty field",
    "wheel_builder/index/folder.py": "what an error advises",
    "wheel_builder/matrix/reading.py": "an error that says what was expected",
    "wheel_builder/matrix/tuned/candidates.py": "an error that says what was expected",
    "wheel_builder/extras/perf/table.py": "what a printed column means",
    "wheel_builder/extras/timings/wanted.py": "what a reason in a file of candidates means",
    "wheel_builder/verify/runtime_load/probe.py": "a pattern of the names in a runtime's table",
}
PREFIX = re.compile(r"gfx\W*\d")
PRODUCT = ("wheel_builder/", "kernels/", "scripts/", *(f"{folder}/" for folder in FOLDERS))


def texts(*patterns):
    """Tracked text files by name, except for the changelog and screenshots."""
    for name in tracked(*patterns):
        try:
            text = (CHECKOUT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if name != "CHANGELOG.md":
            yield name, text


def python_of_the_product():
    """Without the files generated from the tables."""
    found = texts(*(f"{place}*.py" for place in PRODUCT))
    made = {PYTHON_RATES.as_posix(), PYTHON_TUNING.as_posix()}
    return ((name, text) for name, text in found if name not in made)


def unknown_names(name, text):
    """Archs in a file that are missing in both the table and ``other_archs``."""
    known = {*known_gpus(), *NOT_SERVED, *(MADE_UP if name.startswith("tests/") else ())}
    return sorted(set(NAME.findall(text)) - known)


def named_in_cpp(text):
    """Archs named by C++ outside of comments."""
    return NAME.findall(COMMENT.sub("", text))


def nodes(text):
    """The syntax nodes of a module that may name an arch."""
    return [*ast.walk(ast.parse(text))] if "gfx" in text else []


def strings(text):
    """The strings of a module, without its docstrings."""
    tree = nodes(text)
    docs = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
    found = (node for node in tree if isinstance(node, ast.Constant) and id(node) not in docs)
    return [str(node.value) for node in found if isinstance(node.value, str | bytes)]


def is_arch(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)


def wrong_in_python(name, text):
    """Archs named by a module of the product, which should ask the tables."""
    for node in nodes(text):
        if is_arch(node):
            yield f"{name}:{node.lineno}: names {node.value}; ask wheel_builder.tables.archs"


def mentioned(text):
    """Strings of a module, without docstrings, with a gfx name or the beginning of one."""
    return [each for each in strings(text) if PREFIX.search(each)]


def copied_lists(name, text):
    """Lists in a test that repeat the table's names."""
    for node in nodes(text):
        if isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) >= len(ARCHS):
            values = [element.value for element in node.elts if is_arch(element)]
            if len(values) == len(node.elts) and set(values) >= set(ARCHS):
                yield f"{name}:{node.lineno}: take tuple(known_archs())"


def test_no_file_names_an_arch_that_nothing_is_known_of():
    found = {name: unknown for name, text in texts() if (unknown := unknown_names(name, text))}
    assert found == {}


def test_cpp_names_archs_in_generated_tables_only():
    files = dict(
        texts(*(f"{place}*.{kind}" for place in PRODUCT for kind in ("hpp", "cpp", "h", "inc", "hip")))
    )
    made = {GENERATED.as_posix(), REGIMES.as_posix()}
    assert {name for name, text in files.items() if named_in_cpp(text)} == made


def test_python_asks_the_tables():
    files = dict(python_of_the_product())
    assert len(files) > 100
    assert [problem for name, text in files.items() for problem in wrong_in_python(name, text)] == []


def test_only_words_for_people_mention_an_arch():
    files = {name for name, text in python_of_the_product() if mentioned(text)}
    assert files == set(EXAMPLES)


def test_tests_take_the_list_of_archs_from_the_table():
    files = [(name, text) for name, text in texts("tests/*.py") if not name.startswith(LISTS_OF_THEIR_OWN)]
    assert [problem for name, text in files for problem in copied_lists(name, text)] == []


def test_the_matrix_builds_the_tables_archs():
    assert [arch.name for arch in MATRIX.archs] == list(known_gpus())
    assert not NOT_SERVED & set(known_gpus())


def test_every_arch_has_a_kernel():
    assert {arch for kernel in kernels_of(CHECKOUT) for arch in kernel.archs} == set(ARCHS)


def test_goldens_cover_the_table():
    golden = parse_golden((CHECKOUT / GOLDEN).read_text())
    excluded = {(each.rocm, each.arch) for each in MATRIX.exclude}
    built = {rocm: {arch for arch in ARCHS if (rocm, arch) not in excluded} for rocm in golden}
    assert {rocm: set(archs) for rocm, archs in golden.items()} == built
    assert {path.stem for path in (CHECKOUT / FIGURES).glob("gfx*.toml")} == set(ARCHS)


@pytest.mark.parametrize("name", ["README.md", "kernels/README.md", "kernels/python/README.md"])
def test_what_users_read_names_an_arch_of_every_isa(name):
    """Pages made from the tables name all of them."""
    named = set(NAME.findall((CHECKOUT / name).read_text())) & set(ARCHS)
    assert {known_archs()[arch].isa.name for arch in named} == {a.isa.name for a in known_archs().values()}

"""The documents name only files, folders, modules, commands and options that exist."""

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import pytest
from pip._internal.commands import create_command

from tests import walk
from tests.lint.test_lint import CHECKOUT, tracked
from wheel_builder.cli.commands import NAMES, commands_for
from wheel_builder.cli.main import _parser
from wheel_builder.index.finder.steps import DEVICES

DOCUMENTS = [
    *walk.DOCUMENTS, "CONTRIBUTING.md", "kernels/README.md", "kernels/python/README.md", "shim/README.md",
    "shim3/README.md", "wheel_builder/machine_code/emulator/README.md", "wheel_builder/extras/perf/README.md",
]  # fmt: skip
SUFFIXES = {".cpp", ".hpp", ".inc", ".md", ".py", ".toml", ".txt", ".yaml", ".yml"}
RESULTS = ("build/", "dist/")  # what commands write; git ignores it
COMMANDS = "scripts/wheel-builder …"  # the heading of a table of commands


def existing(files):
    """The files and all folders that hold some."""
    return {*files, *(str(folder) for file in files for folder in PurePosixPath(file).parents)}


def code(text):
    """The lines of code blocks, and the text between backticks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield from block.splitlines()
    yield from re.findall(r"^    .*", text, re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", text)


def looks_like_a_path(word, top):
    """Whether it can only be a folder or file of this repository."""
    if not re.fullmatch(r"[\w.*/-]+", word) or word.startswith(("/", "*", *RESULTS)):
        return False
    below_root = "/" in word and word.partition("/")[0] in top
    return below_root or word.endswith("/") or PurePosixPath(word).suffix in SUFFIXES


def is_there(word, paths):
    """Whether a path exists below the root or, as in the tables of a folder's README, below any folder."""
    wanted = word.rstrip("/")
    if "*" not in wanted:
        return wanted in paths or any(path.endswith(f"/{wanted}") for path in paths)
    return any(fnmatchcase(path, wanted) or fnmatchcase(path, f"*/{wanted}") for path in paths)


def unknown_commands(text):
    named = re.findall(r"scripts/wheel-builder (?!…)(\S+?)[`\s]", text)
    _, _, table = text.partition(COMMANDS)
    for row in re.findall(r"^\| (`.*?) \|", table.partition("\n\n")[0], re.MULTILINE):
        named += [span.split()[0] for span in re.findall(r"`([^`]+)`", row)]
    return [name for name in named if name not in NAMES]


def unknown_modules(text, paths):
    names = [name.replace(".", "/") for name in re.findall(r"-m ((?:tests|wheel_builder)[.\w]*)", text)]
    return [name for name in names if not {f"{name}.py", f"{name}/__main__.py"} & paths]


def broken_links(text, folder):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    return [link for link in links if not (folder / link).exists()]


def problems(text, paths, folder=CHECKOUT):
    """Everything that the document names and the repository does not have."""
    top = {path.partition("/")[0] for path in paths if "/" in path}
    words = {word for line in code(text) for word in line.split() if looks_like_a_path(word, top)}
    return [
        *sorted(word for word in words if not is_there(word, paths)),
        *unknown_commands(text),
        *unknown_modules(text, paths),
        *broken_links(text, folder),
    ]


@pytest.fixture(scope="module")
def paths():
    return existing(tracked())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_names_only_what_exists(name, paths):
    document = CHECKOUT / name
    assert problems(document.read_text(), paths, document.parent) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("`tests/upstream.py`", "`tests/downstream.py`", "tests/downstream.py"),
        ("`tests/page`", "`tests/pages`", "tests/pages"),
        ("`tests/perf`", "`tests/perf/gold-*.txt`", "tests/perf/gold-*.txt"),
        ("`commands/`", "`subcommands/`", "subcommands/"),
        ("`cdna.py`", "`cdna4.py`", "cdna4.py"),
        ("`scripts/lock`", "`scripts/lock-all`", "scripts/lock-all"),
        ("`scripts/test --full`", "`scripts/tests --full`", "scripts/tests"),
        ("wheel-builder device-code", "wheel-builder devicecode", "devicecode"),
        ("-m wheel_builder.build.repair", "-m wheel_builder.repair", "wheel_builder/repair"),
        ("-m tests.mutation --arch", "-m tests.mutants --arch", "tests/mutants"),
        ("](wheel_builder/extras/perf/README.md)", "](wheel_builder/README.md)", "wheel_builder/README.md"),
    ],
)
def test_what_is_gone_is_found(old, new, found, paths):
    text = (CHECKOUT / "CONTRIBUTING.md").read_text()
    assert old in text
    assert set(problems(text.replace(old, new), paths)) == {found}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("| `audit WHEEL` |", "| `check WHEEL` |", "check"),
        ("`device-code`, `wheel`", "`device-code`, `wheels`", "wheels"),
        ("    scripts/release --dry-run", "    scripts/build --dry-run", "scripts/build"),
        ("    scripts/wheel-builder rebuild WHEEL", "    scripts/wheel-builder again WHEEL", "again"),
    ],
)
def test_a_command_that_is_gone_is_found(old, new, found, paths):
    document = CHECKOUT / "docs/release.md"
    text = document.read_text()
    assert old in text
    assert set(problems(text.replace(old, new), paths, document.parent)) == {found}


def test_results_and_examples_are_no_claims(paths):
    text = "`build/ccache/`, `dist/*.whl`, `<index>/`, `/dev/kfd`, `*.whl.json`, `FILE.launch.json`, `a / b`"
    assert problems(text, paths) == []


def test_every_command_is_typed_by_a_test():
    assert set(walk.shown()) == set(walk.WALK)
    for where in set(walk.WALK.values()) - {walk.TYPED, walk.IN_CONTAINER, walk.DRY}:
        assert (CHECKOUT / where).exists(), where


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that commands name are in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("WHEEL", "build.log", "requirements.txt"):
        (tmp_path / name).touch()


def parses(line):
    """Whether a command's own parser takes its options."""
    first, *rest = line.partition(" 2>&1")[0].replace("URL", "https://builds.example/x").split()
    if rest[:2] == ["-m", "pip"]:
        first, *rest = rest[1:]
    try:
        if first == "scripts/wheel-builder":
            _parser(commands_for([])).parse_args(rest)
        else:
            create_command(rest[0]).parse_args(rest[1:])
    except SystemExit:
        return False
    return True


@pytest.mark.parametrize(
    "line", [line for line in walk.WALK if re.match(r"scripts/wheel-builder |(python -m )?pip ", line)]
)
def test_the_options_of_a_command_exist(line, files):
    assert parses(line)
    assert not parses(line.replace(" --", " --not-", 1) if " --" in line else f"{line} --not-there")


def test_a_container_gets_the_device_files_that_the_index_names():
    assert f"docker run {DEVICES} rocm-fa:7.2" in walk.WALK

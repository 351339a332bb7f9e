"""All files, folders, headings, modules, commands and options named in documents exist."""

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import pytest
from pip._internal.commands import create_command

from tests.fast.lint.test_lint import CHECKOUT, tracked
from tests.tools import commands
from wheel_builder.cli.commands import NAMES, commands_for
from wheel_builder.cli.main import _parser
from wheel_builder.index.finder.steps import DEVICES

# Test data include documents of other projects.
DOCUMENTS = [name for name in tracked("*.md") if not name.startswith("tests/")]
SUFFIXES = {".cpp", ".hpp", ".inc", ".md", ".py", ".toml", ".txt", ".yaml", ".yml"}
RESULTS = ("build/", "dist/")  # written by commands, ignored by git
COMMANDS = "scripts/wheel-builder …"  # the heading of a table of commands


def existing(files):
    """The files and their folders."""
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


def places(text):
    """The anchors of a document: explicit ones, and those of headings as made by GitHub and by mkdocs."""
    for heading in headings(text):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).strip()
        yield from (plain.replace(" ", "-"), re.sub(r"[- ]+", "-", plain))
    yield from re.findall(r'id="([^"]+)"', text)


def headings(text):
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#+ (.+)$", prose, re.MULTILINE)


def dead_anchors(text, folder):
    """Links to missing headings, in this document or another one."""
    for name, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
        document = (folder / name).read_text() if name and (folder / name).is_file() else text
        if anchor not in places(document):
            yield f"{name}#{anchor}"


NAMED = re.compile(r"""([\w./-]+\.md)(?:#([\w-]+)|, ["“]([^"”\n]+)["”])""")


def dead_headings(text):
    """Missing headings named by comments, data and messages as (A.md, "B")."""
    for name, anchor, heading in NAMED.findall(text):
        document = CHECKOUT / name
        known = document.read_text() if document.is_file() else ""
        if anchor not in places(known) and heading not in headings(known):
            yield f"{name}: {anchor or heading}"


def problems(text, paths, folder=CHECKOUT):
    """Everything named by the document but missing from the repository."""
    top = {path.partition("/")[0] for path in paths if "/" in path}
    words = {word for line in code(text) for word in line.split() if looks_like_a_path(word, top)}
    return [
        *sorted(word for word in words if not is_there(word, paths)),
        *unknown_commands(text),
        *unknown_modules(text, paths),
        *broken_links(text, folder),
        *dead_anchors(text, folder),
    ]


@pytest.fixture(scope="module")
def paths():
    return existing(tracked())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_names_only_what_exists(name, paths):
    document = CHECKOUT / name
    assert problems(document.read_text(), paths, document.parent) == []


@pytest.mark.parametrize(
    ("there", "gone", "found"),
    [
        ("`tests/installed/shared/upstream.py`", "`tests/downstream.py`", "tests/downstream.py"),
        ("`tests/channel/page`", "`tests/pages`", "tests/pages"),
        ("`tests/engine/perf/*.txt`", "`tests/engine/perf/gold-*.txt`", "tests/engine/perf/gold-*.txt"),
        ("`commands/`", "`subcommands/`", "subcommands/"),
        ("`cdna.py`", "`cdna4.py`", "cdna4.py"),
        ("`scripts/lock`", "`scripts/lock-all`", "scripts/lock-all"),
        ("    scripts/release --dry-run", "    scripts/build --dry-run", "scripts/build"),
        ("`scripts/wheel-builder image`", "`scripts/wheel-builder images`", "images"),
        (
            f"| command (`{COMMANDS}`)\n| `audit WHEEL` |",
            f"| command (`{COMMANDS}`)\n| `check WHEEL` |",
            "check",
        ),
        (f"| (`{COMMANDS}`)\n| `audit`, `wheel` |", f"| (`{COMMANDS}`)\n| `audit`, `wheels` |", "wheels"),
        ("`-m wheel_builder.build.repair`", "`-m wheel_builder.repair`", "wheel_builder/repair"),
        ("`-m tests.tools.mutation`", "`-m tests.mutants`", "tests/mutants"),
        ("[a](CONTRIBUTING.md)", "[a](CONTRIBUTION.md)", "CONTRIBUTION.md"),
        ("[a](CONTRIBUTING.md#how-to-add)", "[a](CONTRIBUTING.md#a-gfx-arch)", "CONTRIBUTING.md#a-gfx-arch"),
        ("# A `b` c\n[a](#a-b-c)", "# A `b` d\n[a](#a-b-c)", "#a-b-c"),
    ],
)
def test_what_is_gone_is_found(there, gone, found, paths):
    assert problems(there, paths) == []
    assert set(problems(gone, paths)) == {found}


def test_comments_and_data_name_headings_that_exist():
    """matrix.yaml named a missing heading of CONTRIBUTING.md."""
    found = {}
    for name in tracked("*.py", "*.toml", "*.yaml", "*.yml", "*.[ch]pp", "*.h", "*.sh", "scripts/*"):
        if not name.startswith("tests/") and (dead := list(dead_headings((CHECKOUT / name).read_text()))):
            found[name] = dead
    assert found == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('# To add one: CONTRIBUTING.md, "How to add".', []),
        ('# To add one: CONTRIBUTING.md, "A gfx arch".', ["CONTRIBUTING.md: A gfx arch"]),
        ("// docs/verify.md#gone", ["docs/verify.md: gone"]),
        ("// docs/gone.md#there", ["docs/gone.md: there"]),
    ],
)
def test_a_dead_heading_is_found(text, found):
    assert list(dead_headings(text)) == found


def test_results_and_examples_are_no_claims(paths):
    text = "`build/ccache/`, `dist/*.whl`, `<index>/`, `/dev/kfd`, `*.whl.json`, `FILE.launch.json`, `a / b`"
    assert problems(text, paths) == []


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files named by commands are in the current folder."""
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
    "line", [line for line in commands.shown() if re.match(r"scripts/wheel-builder |(python -m )?pip ", line)]
)
def test_the_options_of_a_command_exist(line, files):
    assert parses(line)
    assert not parses(line.replace(" --", " --not-", 1) if " --" in line else f"{line} --not-there")


def test_a_container_gets_the_device_files_that_the_index_names():
    assert f"docker run {DEVICES} rocm-fa:7.2" in commands.shown()

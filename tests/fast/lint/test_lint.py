"""The tree passes its linters. A failure shows the command and the tool's output."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
INSTALLED = ("kernels/python", "shim/flash", "shim3/flash", "shim_sage/sage")  # what users install
SCRIPTS = [
    *(f"scripts/{name}" for name in ("lock", "release", "test", "test-on-gpu", "venv")),
    ".ci/run",
    ".ci/index-branch",
]


def tracked(*patterns: str) -> list[str]:
    """Files tracked or trackable by git, so that a new file is linted before its first commit."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=CHECKOUT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return sorted(name for name in listed.stdout.splitlines() if (CHECKOUT / name).is_file())


def lint(*argv: str) -> None:
    program = shutil.which(argv[0], path=str(BIN)) or argv[0]
    done = subprocess.run([program, *argv[1:]], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}{done.stderr}"


def test_ruff_check():
    lint("ruff", "check")


def test_ruff_format():
    lint("ruff", "format", "--check")


def test_mypy():
    lint("mypy")


def test_installed_packages_use_nothing_newer_than_their_python():
    """datetime.UTC of 3.11 made the import fail with Python 3.10, which the wheel promises."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))
    oldest = settings["project"]["requires-python"].removeprefix(">=")
    installed = [name for name in settings["tool"]["mypy"]["files"] if name.startswith(INSTALLED)]
    lint("mypy", "--python-version", oldest, *installed)


def test_codespell():
    lint("codespell", *tracked("*.md", "*.py", "*.hpp", "*.cpp", "*.yaml", "*.toml"))


def test_clang_format():
    lint("clang-format", "--dry-run", "--Werror", *tracked("*.hpp", "*.cpp", "*.h", "*.hip"))


def test_shellcheck():
    lint("shellcheck", *SCRIPTS, *tracked("*.sh"))


def test_hadolint():
    lint("hadolint", *tracked("dockerfiles/*.Dockerfile", "tests/**/*.Dockerfile"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run(script):
    assert (CHECKOUT / script).stat().st_mode & 0o111, f"chmod +x {script}"


def test_actionlint():
    # It finds shellcheck by PATH.
    lint("actionlint", "-shellcheck", shutil.which("shellcheck", path=str(BIN)) or "shellcheck")


def test_zizmor():
    lint(
        "zizmor",
        "--offline",
        "--no-progress",
        "--quiet",
        "--persona=pedantic",
        "--strict-collection",
        ".github",
    )


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("docs: a page\n\nWhy: a long story.\n", False),
        ("Merge branch 'docs' into main\n", False),
        (f"docs: {'a' * 66}\n", False),
        (f"docs: {'a' * 67}\n", True),
        ("Figures\n", True),
        ("docs:\n", True),
    ],
)
def test_the_hook_refuses_other_commit_subjects(message, refused):
    config = (CHECKOUT / ".pre-commit-config.yaml").read_text()
    [pattern] = re.findall(r"^ +entry: '(.*)'$", config, re.MULTILINE)
    assert bool(re.search(pattern, message, re.MULTILINE | re.DOTALL)) == refused

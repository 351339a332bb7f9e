"""The workflows of .github as values, for tests that compare them with the command line or run them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[2]
FOLDER = CHECKOUT / ".github" / "workflows"
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
OUTPUT = '>> "$GITHUB_OUTPUT"'
BUILDER = [".venv/bin/python", "-m", "wheel_builder"]


@dataclass(frozen=True)
class Job:
    workflow: str
    name: str
    body: dict[str, Any]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.body.get("steps", [])

    @property
    def rows(self) -> str:
        """The output of job ``plan`` that feeds this job's matrix. Empty without a matrix."""
        matrix = self.body.get("strategy", {}).get("matrix", "")
        found = re.fullmatch(r"\$\{\{ fromJSON\(needs\.plan\.outputs\.(\w+)\) \}\}", matrix)
        assert found or not matrix, f"{self}: a matrix that plan does not make: {matrix}"
        return found[1] if found else ""

    def __str__(self) -> str:
        return f"{self.workflow}:{self.name}"


def load(name: str) -> dict[str, Any]:
    """A workflow. Its triggers are under "on": YAML 1.1 reads the key as a boolean."""
    document = yaml.safe_load((FOLDER / name).read_text())
    return document | {"on": document[True]}


def all_jobs() -> list[Job]:
    return [
        Job(file.name, name, body)
        for file in sorted(FOLDER.glob("*.yml"))
        for name, body in load(file.name)["jobs"].items()
    ]


def job_of(workflow: str, name: str) -> Job:
    return Job(workflow, name, load(workflow)["jobs"][name])


def filled(text: str, values: dict[str, str]) -> str:
    """The text with its expressions replaced by their values. Raises KeyError for an unknown one."""
    return EXPRESSION.sub(lambda found: values[found[1]], text)


def words(line: str, env: dict[str, str]) -> list[str]:
    """The words of a run line, except its redirection to the step's outputs."""
    quoted = {name: shlex.quote(value) for name, value in env.items()}
    text = re.sub(r'"\$(\w+)"', lambda found: quoted[found[1]], line.removesuffix(OUTPUT))
    return shlex.split(text)

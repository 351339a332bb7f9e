"""The build back end: hatchling, extended by a build number in the wheel's name.

Wheels of one version differ by this number. Installers take the highest.
"""

import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hatchling.build import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel
from hatchling.builders.wheel import RecordFile, WheelArchive, WheelBuilder

__all__ = ["build_sdist", "build_wheel", "get_requires_for_build_sdist", "get_requires_for_build_wheel"]


class NumberedWheelBuilder(WheelBuilder):
    """Writes the build number into the file's name and into WHEEL."""

    @staticmethod
    def write_archive_metadata(
        archive: WheelArchive, records: RecordFile, build_data: dict[str, Any]
    ) -> None:
        fields = {
            "Wheel-Version": "1.0",
            "Generator": f"hatchling {version('hatchling')}",
            "Root-Is-Purelib": "true",
            "Build": build_number(),
            "Tag": build_data["tag"],
        }
        text = "".join(f"{name}: {value}\n" for name, value in fields.items())
        records.write(archive.write_metadata("WHEEL", text))

    def build_standard(self, directory: str, **build_data: Any) -> str:  # noqa: ANN401
        build_data["tag"] = "py3-none-any"
        made = Path(super().build_standard(directory, **build_data))
        numbered = f"{self.artifact_project_id}-{build_number()}-{build_data['tag']}.whl"
        return str(made.rename(made.with_name(numbered)))


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,  # noqa: ARG001
    metadata_directory: str | None = None,  # noqa: ARG001
) -> str:
    """PEP 517's hook. Returns the file's name."""
    builder = NumberedWheelBuilder(str(Path.cwd()))
    return Path(next(builder.build(directory=wheel_directory, versions=["standard"]))).name


def build_number() -> str:
    """``build`` of the table in [tool] with the project's name."""
    found = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    return str(found["tool"][found["project"]["name"]]["build"])

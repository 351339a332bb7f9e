"""What kernels read of the tables of archs and tiles: ``python3 -m wheel_builder.base.generated`` writes it.

C++ includes two of the files.  The third is for kernels/instances, which runs without wheel_builder.  So
neither kernels nor wheels are built again for a fact that they do not use, such as a GPU's name.

Standard library only.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from wheel_builder.base.archs import CHECKOUT, cpp_table, kernels_archs, known_archs, known_gpus
from wheel_builder.base.tiles import cpp_tiles, known_tiles

ARCHS = Path("kernels/include/fa/arch/archs.inc")
TILES = Path("kernels/include/fa/kernel/tiles.inc")
INSTANCES = Path("kernels/instances/archs.json")


def generated() -> Mapping[Path, str]:
    """The texts of the generated files; raises ``ArchError`` and ``TileError``."""
    return {
        ARCHS: cpp_table(known_gpus()),
        TILES: cpp_tiles(known_tiles()),
        INSTANCES: kernels_archs(known_archs()),
    }


def write(checkout: Path = CHECKOUT) -> None:
    """Write what differs, and say so."""
    for name, text in generated().items():
        path = checkout / name
        changed = not path.exists() or path.read_text(encoding="utf-8") != text
        if changed:
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}: {'written' if changed else 'nothing to change'}\n")


if __name__ == "__main__":
    write()

"""Queries and threads of a workgroup, from the kernels' own config.hpp: the compiler makes a table of them.

It is compiled in the builder image and read out of the object file; nothing of it is executed.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

from wheel_builder.docker import NOBODY, Mount, open_to_all, run_in
from wheel_builder.elf import section_bytes
from wheel_builder.emulator.attention import Tile
from wheel_builder.emulator.disassembly import ImageLlvm
from wheel_builder.emulator.formats import DTYPES
from wheel_builder.errors import EmulatorError
from wheel_builder.process import Runner, run
from wheel_builder.store import Store, sha256_tree

STAGE = "emulator-tiles"
OBJECT = "tiles.o"
SECTION = "tiles"
ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")
COMPILER = ("/opt/python/cp39-cp39/bin/python", "-m", "ziglang", "c++", "-target", "x86_64-linux-gnu.2.28")
HEADER = "fa/kernel/config.hpp"
ROW = struct.Struct("<5i")  # arch and dtype by their places in ARCHS and DTYPES, head dim, queries, threads
PROGRAM = f"""#include <array>
#include "{HEADER}"
namespace fa {{
constexpr Gfx kArchs[] = {{{", ".join(f"Gfx::{arch}" for arch in ARCHS)}}};
constexpr DType kDTypes[] = {{{", ".join(f"DType::{dtype}" for dtype in DTYPES)}}};
struct Row {{ int arch, dtype, head_dim, block_m, threads; }};
constexpr auto rows() {{
  std::array<Row, std::size(kArchs) * std::size(kDTypes) * std::size(kFwdHeadDims)> all{{}};
  int n = 0;
  for (int a = 0; a < int(std::size(kArchs)); ++a)
    for (int d = 0; d < int(std::size(kDTypes)); ++d)
      for (int head_dim : kFwdHeadDims) {{
        const FwdTile tile = fwd_tile(kArchs[a], kDTypes[d], head_dim);
        all[n++] = {{a, d, head_dim, tile.block_m, tile.threads}};
      }}
  return all;
}}
}}
extern "C" __attribute__((used, section("{SECTION}"))) const auto fa_tiles = fa::rows();
"""


def forward_tile(
    arch: str,
    dtype: str,
    head_dim: int,
    *,
    image: ImageLlvm,
    include: Path,
    store: Store,
    log: Path,
    run: Runner = run,
) -> Tile:
    """What ``fa::fwd_tile`` answers; raises ``EmulatorError`` for what the header does not have."""

    def make(out: Path) -> Mapping[str, str]:
        (out / "tiles.cpp").write_text(PROGRAM, encoding="utf-8")
        mounts = [Mount(include, "/include"), Mount(out, "/out", writable=True)]
        argv = [*COMPILER, "-std=c++20", "-O2", "-I/include", "-c", "/out/tiles.cpp", "-o", f"/out/{OBJECT}"]
        with open_to_all(out):
            run_in(image.ref, argv, mounts=mounts, user=NOBODY, log=log, run=run)
        return {}

    inputs = {"headers": sha256_tree(include, [include]), "program": PROGRAM, "image": image.image_id}
    made = store.get_or_make(STAGE, inputs, make)
    table = section_bytes((made.path / OBJECT).read_bytes(), SECTION) or b""
    tiles = {(ARCHS[a], DTYPES[d], dim): Tile(m, n) for a, d, dim, m, n in ROW.iter_unpack(table)}
    if (arch, dtype, head_dim) not in tiles:
        known = ", ".join(" ".join(map(str, key)) for key in tiles)
        message = f"{HEADER} has no tile for {arch} {dtype} {head_dim}; it has: {known}"
        raise EmulatorError(message, advice="choose one of these")
    return tiles[arch, dtype, head_dim]

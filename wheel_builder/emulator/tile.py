"""Queries and threads of a workgroup, from the kernels' own config.hpp: the compiler makes a table of them.

It is compiled in the builder image and read from the object file; none of it is executed.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

from wheel_builder.base.archs import known_archs
from wheel_builder.base.errors import EmulatorError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Store, sha256_tree
from wheel_builder.emulator.attention import Tile
from wheel_builder.emulator.formats import DTYPES
from wheel_builder.files.elf import section_bytes
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in
from wheel_builder.images.listing import Tools

STAGE = "emulator-tiles"
OBJECT = "tiles.o"
SECTION = "tiles"
COMPILER = ("/opt/python/cp39-cp39/bin/python", "-m", "ziglang", "c++", "-target", "x86_64-linux-gnu.2.28")
HEADER = "fa/kernel/config.hpp"
ROW = struct.Struct(
    "<5i"
)  # arch and dtype by their places in the table of archs and in DTYPES, head dim, queries, threads
PROGRAM = f"""#include <array>
#include "{HEADER}"
namespace fa {{
constexpr DType kDTypes[] = {{{", ".join(f"DType::{dtype}" for dtype in DTYPES)}}};
struct Row {{ int arch, dtype, head_dim, block_m, threads; }};
constexpr int head_dims() {{
  int n = 0;
  for (int head_dim = 1; head_dim <= kMaxHeadDim; ++head_dim) n += is_fwd_head_dim(head_dim);
  return n;
}}
constexpr auto rows() {{
  std::array<Row, std::size(kAllGfx) * std::size(kDTypes) * head_dims()> all{{}};
  int n = 0;
  for (int a = 0; a < int(std::size(kAllGfx)); ++a)
    for (int d = 0; d < int(std::size(kDTypes)); ++d)
      for (int head_dim = 1; head_dim <= kMaxHeadDim; ++head_dim) {{
        if (!is_fwd_head_dim(head_dim)) continue;
        const FwdTile tile = fwd_tile(kAllGfx[a], kDTypes[d], head_dim);
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
    tools: Tools,
    include: Path,
    store: Store,
    log: Path,
    run: Runner = run,
) -> Tile:
    """The result of ``fa::fwd_tile``; raises ``EmulatorError`` for cases that the header does not have."""

    def make(out: Path) -> Mapping[str, str]:
        (out / "tiles.cpp").write_text(PROGRAM, encoding="utf-8")
        mounts = [Mount(include, "/include"), Mount(out, "/out", writable=True)]
        argv = [*COMPILER, "-std=c++20", "-O2", "-I/include", "-c", "/out/tiles.cpp", "-o", f"/out/{OBJECT}"]
        with open_to_all(out):
            run_in(tools.image, argv, mounts=mounts, user=NOBODY, log=log, run=run)
        return {}

    inputs = {"headers": sha256_tree(include, [include]), "program": PROGRAM, "image": tools.identity}
    made = store.get_or_make(STAGE, inputs, make)
    table = section_bytes((made.path / OBJECT).read_bytes(), SECTION) or b""
    archs = tuple(known_archs())
    tiles = {(archs[a], DTYPES[d], dim): Tile(m, n) for a, d, dim, m, n in ROW.iter_unpack(table)}
    if (arch, dtype, head_dim) not in tiles:
        known = ", ".join(" ".join(map(str, key)) for key in tiles)
        message = f"{HEADER} has no tile for {arch} {dtype} {head_dim}; it has: {known}"
        raise EmulatorError(message, advice="choose one of these")
    return tiles[arch, dtype, head_dim]

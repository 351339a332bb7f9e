"""The order of workgroups on GPUs of several dies, and its savings: modelled, not measured.

A die fetches the keys and values of each head read by one of its workgroups into its L2.
"""

import subprocess
from pathlib import Path

import pytest

from tests.tools.programs import CHECKOUT, compile_program
from wheel_builder.tables.archs import known_archs

DIES = 8  # of an MI300X


@pytest.fixture(scope="session")
def orders(builder_image, tmp_path_factory):
    """``orders("gfx942 304 8 16 1", ...)``: for each, the dies, and the workgroups' work, in order."""
    sources = (Path(__file__).with_name("programs") / "orders.cpp", CHECKOUT / "kernels/host/plan/plan.cpp")
    program = compile_program(builder_image, tmp_path_factory.mktemp("orders") / "orders", *sources)

    def ask(*launches):
        text = "\n".join(launches)
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        found = [line.split() for line in done.stdout.splitlines()]
        assert len(found) == len(launches)
        return [(int(dies), [tuple(map(int, p.split(","))) for p in places]) for dies, *places in found]

    return ask


def in_the_hardwares_order(blocks, heads, batch):
    return [(x, y, z) for z in range(batch) for y in range(heads) for x in range(blocks)]


def fetched(places, group):
    """Heads of keys fetched into the L2s of all dies. ``group`` heads of q share one of keys."""
    return len({(number % DIES, head // group, batch) for number, (_, head, batch) in enumerate(places)})


@pytest.mark.parametrize(
    ("arch", "units", "dies"),
    [
        # MI300X, MI300A, and the MI300X's partitions.
        *(("gfx942", 38 * dies, dies) for dies in (8, 6, 4, 2, 1)),
        *(("gfx942", units, 1) for units in (80, 0, 300)),
        *(("gfx950", 32 * dies, dies) for dies in (8, 4, 2, 1)),
        ("gfx950", 38, 1),
        ("gfx90a", 110, 1),
    ],
)
def test_the_dies_of_a_device_follow_from_its_compute_units(orders, arch, units, dies):
    assert orders(f"{arch} {units} 1 1 1")[0][0] == dies


@pytest.mark.parametrize("arch", [name for name, arch in known_archs().items() if not arch.die_units])
def test_other_archs_have_one_die_and_the_hardwares_order(orders, arch):
    [(dies, places)] = orders(f"{arch} 120 4 3 2")
    assert dies == 1
    assert places == in_the_hardwares_order(4, 3, 2)


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 1, 1), (3, 5, 7), (7, 16, 1), (16, 12, 3), (129, 3, 1)])
@pytest.mark.parametrize("units", [304, 228])
def test_everything_is_computed_once(orders, shape, units):
    [(_, places)] = orders(f"gfx942 {units} {' '.join(map(str, shape))}")
    assert sorted(places) == sorted(in_the_hardwares_order(*shape))


def test_short_prologues_divide_without_error(builder_image, tmp_path):
    source = Path(__file__).with_name("programs") / "quotients.cpp"
    program = compile_program(builder_image, tmp_path / "quotients", source)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == "102003\n"


@pytest.mark.parametrize("shape", [(8, 16, 1), (16, 12, 3), (7, 5, 1)])
def test_a_die_has_neighbours(orders, shape):
    [(_, places)] = orders(f"gfx942 304 {' '.join(map(str, shape))}")
    plain = {place: at for at, place in enumerate(in_the_hardwares_order(*shape))}
    for die in range(DIES):
        positions = [plain[place] for place in places[die::DIES]]
        assert positions == [*range(positions[0], positions[0] + len(positions))]


# Rows of q in blocks of 128, heads of q and keys, batch: heads of keys fetched into L2s, before and now.
SAVED = [
    ("1024 rows, 16 heads, batch 16", (8, 16, 16), 1, 2048, 256),
    ("16384 rows, 16 heads, batch 16", (128, 16, 16), 1, 2048, 256),
    ("8192 rows, 64 heads of 8, batch 8", (64, 64, 8), 8, 512, 64),
    ("4096 rows, 32 heads of 8, batch 1", (32, 32, 1), 4, 64, 8),
    ("2048 rows, 12 heads, batch 1", (16, 12, 1), 1, 96, 16),
    ("8192 rows, 1 head, batch 1", (64, 1, 1), 1, 8, 8),
]


@pytest.mark.parametrize(
    ("shape", "group", "before", "now"), [row[1:] for row in SAVED], ids=[r[0] for r in SAVED]
)
def test_fewer_keys_are_fetched_into_the_l2s(orders, shape, group, before, now):
    [(_, places)] = orders(f"gfx942 304 {' '.join(map(str, shape))}")
    assert fetched(in_the_hardwares_order(*shape), group) == before
    assert fetched(places, group) == now

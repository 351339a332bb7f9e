"""The order of workgroups on GPUs of several dies, and its savings: modelled, not measured.

A die fetches the keys and values of each head read by one of its workgroups into its L2.
"""

import subprocess
from pathlib import Path

import pytest

from tests.tools.programs import CHECKOUT, compile_program
from wheel_builder.extras.perf.launch.order import heads_in_turn, most_in_turn
from wheel_builder.extras.perf.launch.shapes import Shape, forward_works
from wheel_builder.tables.archs import known_archs

DIES = 8  # of an MI300X
NUMBERS = 8  # of a launch, with its arch


@pytest.fixture(scope="session")
def orders(builder_image, tmp_path_factory):
    """``orders("gfx942 304 8 16 1 0 0 0", ...)``: for each, dies, heads in turn, and all work, in order.

    Numbers: compute units, blocks, heads, sequences, bytes of a head, whether blocks have unequal work,
    whether sequences are packed. Another 1: the last blocks start first.
    """
    sources = (Path(__file__).with_name("programs") / "orders.cpp", CHECKOUT / "kernels/host/plan/order.cpp")
    program = compile_program(builder_image, tmp_path_factory.mktemp("orders") / "orders", *sources)

    def ask(*launches):
        text = "\n".join(launch if len(launch.split()) > NUMBERS else f"{launch} 0" for launch in launches)
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        found = [line.split() for line in done.stdout.splitlines()]
        assert len(found) == len(launches)
        return [
            (int(dies), int(together), [tuple(map(int, p.split(","))) for p in places])
            for dies, together, *places in found
        ]

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
    assert orders(f"{arch} {units} 1 1 1 0 0 0")[0][0] == dies


@pytest.mark.parametrize("arch", [name for name, arch in known_archs().items() if not arch.die_units])
def test_other_archs_have_one_die_and_the_hardwares_order(orders, arch):
    [(dies, _, places)] = orders(f"{arch} 120 4 3 2 0 0 0")
    assert dies == 1
    assert places == in_the_hardwares_order(4, 3, 2)


SHAPES = [
    (blocks, heads, batch)
    for blocks in (1, 2, 7, 16, 65)
    for heads in (1, 3, 5, 8, 12, 32, 40)
    for batch in (1, 3, 8)
]
# MI300X, its partitions, MI300A, MI250X and GPUs of RDNA.
DEVICES = [
    ("gfx942", 304),
    ("gfx942", 228),
    ("gfx942", 38),
    ("gfx950", 256),
    ("gfx90a", 110),
    ("gfx1100", 96),
]


@pytest.mark.parametrize("size", [0, 1 << 20, 9 << 20], ids=["equal", "1M", "9M"])
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: f"{device[0]}-{device[1]}")
def test_everything_is_computed_once(orders, device, size):
    """With the order made by the host, as the kernels read it."""
    head = f"{device[0]} {device[1]}"
    works = ("1 0", "0 1", "1 1") if size else ("0 0",)
    lines = [
        (shape, f"{head} {' '.join(map(str, shape))} {size} {each}") for shape in SHAPES for each in works
    ]
    for (shape, _), (_, _, places) in zip(lines, orders(*(line for _, line in lines)), strict=True):
        assert sorted(places) == sorted(in_the_hardwares_order(*shape)), shape


def test_without_a_mask_heads_follow_one_another(orders):
    [(_, together, places)] = orders(f"gfx1100 96 4 8 2 {1 << 20} 0 0")
    assert together == 1
    assert places == in_the_hardwares_order(4, 8, 2)


def test_long_launches_keep_the_hardwares_order(orders):
    [(dies, together, places)] = orders(f"gfx942 304 {1 << 14} 32 4 {1 << 20} 1 0")
    assert (dies, together) == (0, 1)
    assert places[:: 1 << 14] == [(0, head, batch) for batch in range(4) for head in range(32)]


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: f"{device[0]}-{device[1]}")
@pytest.mark.parametrize("blocks", [16, 1 << 14])
def test_the_last_blocks_start_first(orders, device, blocks):
    """Under a causal mask they see the most keys. Long launches keep that, too."""
    line = f"{device[0]} {device[1]} {blocks} 32 4 {1 << 20} 1 0"
    (*of_first, first), (*of_last, last) = orders(line, f"{line} 1")
    assert of_last == of_first
    assert last == [(blocks - 1 - block, head, batch) for block, head, batch in first]


def test_orders_divide_without_error(builder_image, tmp_path):
    source = Path(__file__).with_name("programs") / "quotients.cpp"
    program = compile_program(builder_image, tmp_path / "quotients", source)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == "101281\n"


@pytest.mark.parametrize("shape", [(8, 16, 1), (16, 12, 3), (7, 5, 1)])
def test_a_die_has_neighbours(orders, shape):
    [(_, _, places)] = orders(f"gfx942 304 {' '.join(map(str, shape))} 0 0 0")
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
    [(_, _, places)] = orders(f"gfx942 304 {' '.join(map(str, shape))} 0 0 0")
    assert fetched(in_the_hardwares_order(*shape), group) == before
    assert fetched(places, group) == now


# Blocks, heads, batch and bytes of a head on a GPU of several dies and of one: heads in turn.
TOGETHER = [
    ((64, 32, 1), 4 << 20, 4, 8),  # a die has 4 heads; 16 would be more bytes than stay in caches
    ((16, 32, 4), 1 << 20, 16, 16),
    ((16, 64, 4), 1 << 18, 16, 16),
    ((256, 32, 1), 16 << 20, 2, 2),
    ((512, 32, 1), 32 << 20, 1, 1),
    ((16, 24, 2), 1 << 20, 2, 8),
    ((16, 7, 8), 1 << 20, 1, 1),
    ((16, 40, 1), 1 << 20, 1, 8),
]


@pytest.mark.parametrize(("shape", "size", "of_dies", "of_one"), TOGETHER)
def test_heads_of_causal_calls_start_in_turn(orders, shape, size, of_dies, of_one):
    line = f"{' '.join(map(str, shape))} {size} 1 0"
    (dies, together, places), (_, one, alone) = orders(f"gfx942 304 {line}", f"gfx1100 96 {line}")
    assert (dies, together, one) == (DIES, of_dies, of_one)
    assert [most_in_turn(*shape[1:], each, size) for each in (DIES, 1)] == [together, one], "the launch model"
    assert [head for _, head, _ in alone[: one * 2]] == ([*range(one)] * 2 if one > 1 else [0, 0])
    for die in range(DIES):
        run = places[die::DIES]
        assert [block for block, _, _ in run[:together]] == [0] * together
    assert max(len(dies_of_heads) for dies_of_heads in dies_by_head(places).values()) == 1


def dies_by_head(places):
    """The dies that compute each head."""
    found = {}
    for number, (_, head, batch) in enumerate(places):
        found.setdefault((head, batch), set()).add(number % DIES)
    return found


def most_work(places):
    """Of a die, if block 0 of 64 has 64 tiles of keys and the last has 1."""
    return max(sum(64 - block for block, _, _ in places[die::DIES]) for die in range(DIES))


@pytest.mark.parametrize(("heads", "batch"), [(12, 1), (4, 1), (7, 1), (20, 1), (2, 3)])
def test_a_few_heads_of_unequal_blocks_are_dealt_to_the_dies(orders, heads, batch):
    """Runs of neighbours would give a die the first blocks of a head, with the most work."""
    line = f"gfx942 304 64 {heads} {batch} {1 << 20}"
    (dealt, _, places), (dies, _, runs) = orders(f"{line} 1 0", f"{line} 0 0")
    assert (dealt, dies) == (1, DIES)
    assert most_work(places) < most_work(runs)
    assert most_work(places) < 1.11 * sum(64 - block for block, _, _ in places) / DIES


@pytest.mark.parametrize(("heads", "batch"), [(33, 1), (7, 5), (28, 3)])
def test_many_heads_stay_on_dies(orders, heads, batch):
    [(dies, _, places)] = orders(f"gfx942 304 64 {heads} {batch} {1 << 20} 1 0")
    assert dies == DIES
    assert max(map(len, dies_by_head(places).values())) <= 2


@pytest.mark.parametrize(
    ("heads", "together", "of_a_head"), [(16, 16, 1), (8, 8, 1), (32, 16, 1), (12, 4, 2)]
)
def test_packed_sequences_are_dealt_to_the_dies(orders, heads, together, of_a_head):
    """Whole heads on a die were 1.9 times as slow where lengths differ, by the launch model."""
    [(dies, found, places)] = orders(f"gfx942 304 32 {heads} 16 {1 << 20} 0 1")
    assert (dies, found) == (1, together)
    assert max(map(len, dies_by_head(places).values())) == of_a_head
    for die in range(DIES):
        assert {batch for _, _, batch in places[die::DIES]} == set(range(16))
    [(_, alone, _)] = orders(f"gfx1100 96 32 {heads} 16 {1 << 20} 0 1")
    assert alone == 1, "with one die, only a window gives blocks unequal work"


@pytest.mark.parametrize("shape", [(16, 32, 1), (7, 24, 2), (64, 8, 8), (5, 32, 3)])
def test_the_launch_model_has_the_same_order(orders, shape):
    """``perf --launch`` plays the order that the host gives."""
    blocks, heads, batch = shape
    call = Shape(128 * blocks, 128 * blocks, heads, heads, batch=batch, causal=True)
    works = tuple(forward_works(call, 128))
    [(dies, together, places)] = orders(f"gfx942 304 {' '.join(map(str, shape))} {1 << 20} 1 0")
    assert dies == DIES
    for die, queue in enumerate(heads_in_turn(together)(works, dies)):
        played = [(work.block, work.head % heads, work.head // heads) for work in queue]
        assert places[die::DIES] == played

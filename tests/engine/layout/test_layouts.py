"""Register and LDS layouts, proved on the CPU: every element is held once, and products are right.

The expected tables of the matrix instructions are repeated here, from AMD's published layouts. So a mistake
in the headers fails the tests.
"""

import json
import random
import struct
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests.tools.programs import CHECKOUT, TARGET, ZIG, compile_program
from wheel_builder.machine_code.emulator.params import known_layouts, layouts
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.calls import CALLS, parse_calls

UNITS = [
    *("mfma", "mfma_narrow", "wmma", "wmma_split", "dot2", "dot2_64", "dot2_narrow", "dot2_64_narrow"),
    *("dot2_64_lone", "mfma_fp8", "mfma_wide_fp8", "wmma_split_fp8"),
]


@pytest.fixture(scope="session")
def said(builder_image, tmp_path_factory):
    """The headers' values."""
    source = Path(__file__).with_name("layouts.cpp")
    program = compile_program(builder_image, tmp_path_factory.mktemp("layouts") / "layouts", source)
    return json.loads(subprocess.run([program], capture_output=True, text=True, check=True).stdout)


@pytest.fixture(params=UNITS)
def unit(said, request):
    return request.param, said["layouts"][request.param]


def matrix(rows, columns, seed):
    rng = random.Random(seed)
    return [[rng.randint(-8, 8) for _ in range(columns)] for _ in range(rows)]


def matmul(a, b):
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a
    ]


# The instructions, from the published tables: A[i][k] (and B[k][j], its mirror image) for a lane and element,
# D[i][j] for a lane and register.


def mfma_32x32(width):
    def a(lane, e):
        return lane % 32, width * (lane // 32) + e

    def d(lane, g):
        return 8 * (g // 4) + 4 * (lane // 32) + g % 4, lane % 32

    return {"lanes": 64, "m": 32, "n": 32, "k": 2 * width, "elements": width, "registers": 16, "a": a, "d": d}


def mfma_16x16(width):
    def a(lane, e):
        return lane % 16, width * (lane // 16) + e

    def d(lane, g):
        return 4 * (lane // 16) + g, lane % 16

    return {"lanes": 64, "m": 16, "n": 16, "k": 4 * width, "elements": width, "registers": 4, "a": a, "d": d}


def wmma_16x16x16():
    def a(lane, e):
        return lane % 16, e

    def d(lane, g):
        return 2 * g + (lane >> 4), lane % 16

    return {"lanes": 32, "m": 16, "n": 16, "k": 16, "elements": 16, "registers": 8, "a": a, "d": d}


def wmma_16x16x16_of_rdna4():
    def a(lane, e):
        return lane % 16, 8 * (e // 4) + 4 * (lane // 16) + e % 4

    def d(lane, g):
        return 8 * (lane // 16) + g, lane % 16

    return {"lanes": 32, "m": 16, "n": 16, "k": 16, "elements": 8, "registers": 8, "a": a, "d": d}


def wmma_16x16x16_of_bytes():
    def a(lane, e):
        return lane % 16, 8 * (lane // 16) + e

    return wmma_16x16x16_of_rdna4() | {"a": a}


INSTRUCTIONS = {
    "wmma": wmma_16x16x16, "wmma_split": wmma_16x16x16_of_rdna4, "wmma_split_fp8": wmma_16x16x16_of_bytes,
}  # fmt: skip


def run_instruction(instruction, a, b, c):
    """``a`` and ``b``: [lane][element]. ``c``: [lane][register]. Returns the new c."""
    left = [[None] * instruction["k"] for _ in range(instruction["m"])]
    right = [[None] * instruction["n"] for _ in range(instruction["k"])]
    for lane, e in product(range(instruction["lanes"]), range(instruction["elements"])):
        i, k = instruction["a"](lane, e)
        # Lanes that replicate an element must hold equal values: otherwise the hardware's result is
        # undefined.
        assert left[i][k] in (None, a[lane][e])
        assert right[k][i] in (None, b[lane][e])
        left[i][k], right[k][i] = a[lane][e], b[lane][e]
    result = matmul(left, right)
    return [
        [
            c[lane][g] + result[i][j]
            for g, (i, j) in enumerate(instruction["d"](lane, g) for g in range(instruction["registers"]))
        ]
        for lane in range(instruction["lanes"])
    ]


def multiply(name, unit, a, b, c, width):
    """One step like the headers' ``multiply``: a [lane][run], b [lane][column][run], c [lane][flat]."""
    if name.startswith("dot2"):
        columns = range(unit["columns"])
        return [
            [c[lane][j] + sum(x * y for x, y in zip(a[lane], b[lane][j], strict=True)) for j in columns]
            for lane in range(unit["wave"])
        ]
    mfma = mfma_16x16 if name == "mfma_narrow" else mfma_32x32
    instruction = INSTRUCTIONS[name]() if name in INSTRUCTIONS else mfma(width)
    for first in range(0, unit["run"], instruction["elements"]):
        part = slice(first, first + instruction["elements"])
        c = run_instruction(instruction, [x[part] for x in a], [x[0][part] for x in b], c)
    return c


def zeros(unit):
    return [[0] * (unit["rows"] * unit["columns"]) for _ in range(unit["wave"])]


def load_a(unit, rows):
    """Every lane's run of operand A from ``rows``[m][k]."""
    lanes = zip(unit["a_row"], unit["run_begin"], strict=True)
    return [rows[row][begin : begin + unit["run"]] for row, begin in lanes]


def load_b(unit, columns):
    """Every lane's runs of operand B from ``columns``[n][k]."""
    return [
        [columns[j][begin : begin + unit["run"]] for j in held]
        for held, begin in zip(unit["column"], unit["run_begin"], strict=True)
    ]


def widths(name):
    """Elements per lane in one MFMA: fp16 and 1k bf16, short bf16, fp16 of gfx950, fp8."""
    known = {"mfma": [4, 2], "mfma_narrow": [4, 8], "mfma_fp8": [8], "mfma_wide_fp8": [32]}
    return known.get(name, [0])


def test_every_result_element_is_held_exactly_once(unit):
    _, u = unit
    held = [
        (u["c_row"][lane][r], u["column"][lane][c])
        for lane, r, c in product(range(u["wave"]), range(u["rows"]), range(u["columns"]))
    ]
    assert sorted(held) == sorted(product(range(u["m"]), range(u["n"])))


def test_results_stored_register_by_register_have_their_rows_where_it_is_said(unit):
    _, u = unit
    if "c_place" not in u:  # several columns a lane
        assert u["columns"] > 1
        return
    for r, lane in product(range(u["rows"]), range(u["wave"])):
        stored = r * u["wave"] + lane
        assert stored == u["c_place"][u["c_row"][lane][r]] * u["n"] + u["column"][lane][0]


def test_every_operand_element_is_held_the_same_number_of_times(unit):
    _, u = unit
    held = [
        (u["a_row"][lane], u["run_begin"][lane] + e) for lane, e in product(range(u["wave"]), range(u["run"]))
    ]
    copies = u["wave"] * u["run"] // (u["m"] * u["k"])
    assert sorted(held) == sorted(list(product(range(u["m"]), range(u["k"]))) * copies)


def test_peers_hold_the_same_columns_and_no_other_lane_does(unit):
    _, u = unit
    for lane, other in product(range(u["wave"]), repeat=2):
        same = u["column"][lane] == u["column"][other]
        assert same == ((lane ^ other) & ~u["peers"] == 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_a_matrix_product(unit, seed):
    name, u = unit
    a, b = matrix(u["m"], u["k"], seed), matrix(u["n"], u["k"], seed + 100)
    expected = matmul(a, list(zip(*b, strict=True)))
    for width in widths(name):
        c = multiply(name, u, load_a(u, a), load_b(u, b), zeros(u), width)
        for lane, r, j in product(range(u["wave"]), range(u["rows"]), range(u["columns"])):
            assert c[lane][r * u["columns"] + j] == expected[u["c_row"][lane][r]][u["column"][lane][j]]


@pytest.mark.parametrize("rows", [32, 64, 96, 128, 192, 256])
def test_the_slots_of_a_tile_are_a_permutation_that_gives_lanes_consecutive_rows(unit, rows):
    _, u = unit
    if rows % u["m"] or (rows % u["k"] and u["k"] > u["m"]):
        return  # a step, or a lane's run, is of more rows than a tile of these has
    tile = u["tiles"][str(rows)]
    slots = tile["slot_of_row"]
    assert sorted(slots) == list(range(rows))
    row_of_slot = {slot: row for row, slot in enumerate(slots)}
    assert tile["row_of_slot"] == [row_of_slot[slot] for slot in range(rows)]
    for lane in range(u["wave"]):
        steps = product(range(rows // u["m"]), range(u["rows"]))
        assert tile["held"][lane] == [row_of_slot[s * u["m"] + u["c_row"][lane][r]] for s, r in steps]
        chunk = next(n for n in (8, 4, 2, 1) if len(tile["held"][lane]) % n == 0)
        for first in range(0, len(tile["held"][lane]), chunk):
            begin = tile["held"][lane][first]
            assert tile["held"][lane][first : first + chunk] == list(range(begin, begin + chunk))
            assert begin % chunk == 0


def in_slots(rows, tile):
    lds = [None] * len(rows)
    for row, values in enumerate(rows):
        lds[tile["slot_of_row"][row]] = values
    return lds


def tile_product(name, u, lds, columns, length):
    """``lds``[slot][k] times ``columns(first k)`` (all lanes' B): each lane's flat results."""
    steps = [zeros(u) for _ in range(len(lds) // u["m"])]
    for first, s in product(range(0, length, u["k"]), range(len(steps))):
        block = [row[first : first + u["k"]] for row in lds[s * u["m"] : (s + 1) * u["m"]]]
        steps[s] = multiply(name, u, load_a(u, block), columns(first), steps[s], widths(name)[0])
    return [[x for step in steps for x in step[lane]] for lane in range(u["wave"])]


def held_elements(u, tile):
    """(lane, flat index in its results, column, row) of every element of a tile's product."""
    for lane, c in product(range(u["wave"]), range(u["columns"])):
        for f, row in enumerate(tile["held"][lane]):
            yield lane, f * u["columns"] + c, u["column"][lane][c], row


def as_operand(u, tile, results, keys):
    """The results of the first product as operand B of the second, read as the kernel reads them."""
    if u["chains_in_registers"]:
        return lambda first: [[lane[first // u["k"] * u["run"] :][: u["run"]]] for lane in results]
    columns = [[None] * keys for _ in range(u["n"])]
    for lane, flat, column, key in held_elements(u, tile):
        columns[column][key] = results[lane][flat]
    return lambda first: load_b(u, [column[first : first + u["k"]] for column in columns])


@pytest.mark.parametrize(
    ("keys", "head_dim"), [(32, 64), (64, 64), (64, 32), (32, 96), (32, 128), (64, 128), (32, 192), (32, 256)]
)
def test_two_chained_products_are_attention_without_softmax(unit, keys, head_dim):
    """S^T = K Q^T and O^T = V^T S^T through LDS slots and lanes' registers, as in the kernel."""
    name, u = unit
    step = max(u["k"], u["m"])
    if step > 32 and (keys % step or head_dim % step):
        return
    k, v, q = matrix(keys, head_dim, 1), matrix(keys, head_dim, 2), matrix(u["n"], head_dim, 3)
    key_tile, d_tile = u["tiles"][str(keys)], u["tiles"][str(head_dim)]
    v_transposed = [list(column) for column in zip(*v, strict=True)]

    def queries(first):
        return load_b(u, [row[first : first + u["k"]] for row in q])

    scores = tile_product(name, u, in_slots(k, key_tile), queries, head_dim)
    operand = as_operand(u, key_tile, scores, keys)
    out = tile_product(name, u, in_slots(v_transposed, d_tile), operand, keys)
    expected = matmul(matmul(q, list(zip(*k, strict=True))), v)
    for lane, flat, row, d in held_elements(u, d_tile):
        assert out[lane][flat] == expected[row][d]


def test_a_result_of_another_unit_is_not_taken_for_an_operand(said):
    """Two units' results have an operand's register order.

    Claimed of other units, it fails the test above.
    """
    chaining = [name for name in UNITS if said["layouts"][name]["chains_in_registers"]]
    assert chaining == [
        *("mfma", "mfma_narrow", "wmma_split", "mfma_fp8", "mfma_wide_fp8", "wmma_split_fp8"),
    ]
    for name in ("wmma", "dot2", "dot2_64", "dot2_narrow", "dot2_64_narrow", "dot2_64_lone"):
        u = said["layouts"][name]
        held = u["tiles"]["64"]["held"]
        assert any(held[lane][0] != u["run_begin"][lane] for lane in range(u["wave"]))


def test_a_swizzled_tile_is_a_permutation_within_each_row(said):
    for tile in said["swizzles"]:
        shift = 16 if tile["block"] < tile["period"] else 0
        for row, offsets in enumerate(tile["offset"]):
            begin = row * tile["stride"] + row // tile["block"] * shift
            assert sorted(offsets) == list(range(begin, begin + tile["row_bytes"], 16))
        blocks = tile["rows"] // tile["block"]
        assert tile["bytes"] == tile["rows"] * tile["stride"] + (blocks - 1) * shift


def test_rows_a_block_apart_begin_at_different_banks(said):
    shifted = [tile for tile in said["swizzles"] if tile["block"] < tile["period"]]
    assert shifted
    for tile in shifted:
        below, above = tile["offset"][: tile["block"]], tile["offset"][tile["block"] :]
        for row, other in zip(below, above, strict=True):
            for one, two in zip(row, other, strict=True):
                assert one // 16 % 8 != two // 16 % 8, tile


def test_eight_lanes_on_consecutive_rows_touch_every_bank_once(said):
    for tile in said["swizzles"]:
        for first, unit in product(range(0, tile["rows"], 8), range(tile["row_bytes"] // 16)):
            groups = {tile["offset"][row][unit] // 16 % 8 for row in range(first, first + 8)}
            assert len(groups) == 8, (tile["row_bytes"], tile["period"], first, unit)


def test_a_swizzle_repeats_with_its_period(said):
    for tile in said["swizzles"]:
        period, stride = tile["period"], tile["stride"]
        for row in range(tile["rows"] - period):
            moved = [offset + period * stride for offset in tile["offset"][row]]
            assert tile["offset"][row + period] == moved


def test_a_row_next_to_a_multiple_of_two_or_four_is_found_from_that_one(said):
    for tile in said["swizzles"]:
        assert tile["offset_next"] == tile["offset_second"] == tile["offset"], tile


# The lanes served together by an LDS of 64 banks in a read of 16 bytes each, as measured on an MI350X.
TOGETHER = ((*range(4), *range(12, 16), *range(20, 28)), (*range(4, 12), *range(16, 20), *range(28, 32)))


def test_fanned_rows_have_a_place_for_each_unit(said):
    assert [tile["row_bytes"] for tile in said["fanned"]] == [64, 128, 192, 256]
    for tile in said["fanned"]:
        places = [at for row in tile["offset"] for at in row]
        assert len(set(places)) == len(places)
        assert max(places) + 16 <= tile["bytes"]
        assert all(at % 16 == 0 for at in places)


def test_reads_of_fanned_rows_touch_every_bank_once(said):
    """By rows, and transposed: 32 lanes read 8 bytes each."""
    for tile in said["fanned"]:
        for lanes, unit in product(TOGETHER, range(tile["row_bytes"] // 16)):
            found = {tile["offset"][lane][unit] // 16 % 16 for lane in lanes}
            assert found == set(range(16)), (tile["row_bytes"], unit)
        for half, first in product(range(2), (0, 32)):
            found = {at[half] // 8 % 32 for at in tile["asked"][first : first + 32]}
            assert found == set(range(32)), (tile["row_bytes"], half, first)


def test_a_turned_read_is_an_operand_of_the_second_product(said):
    """Lane l gets halfword l % 4 of the reads of lanes (l / 4) % 4 + 4 * n of its 16."""
    u = said["layouts"]["mfma"]
    for tile in said["fanned"]:
        slots = u["tiles"]["32"]["slot_of_row"]
        held = {at + 2 * e: (row, unit * 8 + e) for row, units in enumerate(tile["offset"])
                for unit, at in enumerate(units) for e in range(8)}  # fmt: skip
        for lane in range(64):
            own = lane // 16 * 16 + lane // 4 % 4
            got = [
                held[tile["asked"][own + 4 * n][half] + lane % 4 * 2] for half in range(2) for n in range(4)
            ]
            wanted = [slots[u["run_begin"][lane] + e] for e in range(8)]
            assert [row for row, _ in got] == wanted, lane
            assert {slots[element] for _, element in got} == {lane % 32}, lane


def test_sixteen_lanes_that_store_a_spread_tile_touch_every_bank_once(said):
    for tile in said["spreads"]:
        for store in tile["row_stores"] + tile["transposed_stores"]:
            assert {at // 8 % 16 for at in store} == set(range(16)), (tile["rows"], store)


def test_a_spread_tile_has_a_place_for_each_element(said):
    for tile in said["spreads"]:
        for form in ("row", "transposed"):
            places = [at for store in tile[f"{form}_stores"] for at in store]
            assert len(set(places)) == len(places)
            assert max(places) + 8 <= tile[f"{form}_bytes"]
            assert all(at % 8 == 0 for at in places)


def test_bf16_is_taken_for_fp16_only_where_that_is_exact(said):
    scale = 2.0 ** said["narrow_scale"]
    for bits, accepted in enumerate(said["narrows"]):
        (value,) = struct.unpack("<f", struct.pack("<HH", 0, bits))
        inside = value == 0 or 2.0**-25 <= abs(value) < 2.0**8
        assert bool(accepted) == inside, hex(bits)
        if accepted:
            assert struct.unpack("<e", struct.pack("<e", value * scale)) == (value * scale,)


def test_visible_keys_are_those_of_the_definition(said):
    for case in said["visibility"]:
        q, k, left, right = case["q"], case["k"], case["left"], case["right"]
        seen = [
            {
                j
                for j in range(k)  # bottom-right aligned
                if (left < 0 or j >= i + k - q - left) and (right < 0 or j <= i + k - q + right)
            }
            for i in range(q)
        ]
        assert [set(range(*bounds)) for bounds in zip(case["begin"], case["end"], strict=True)] == seen, case
        for first, rows in product(range(8), range(4)):
            ends = case["end"][first : first + rows + 1]
            assert case["end_of_rows"][first][rows] == (ends[-1] if ends else 0), case
        for bound in ("begin", "end"):
            assert case[bound] == sorted(case[bound]), "a bound never falls from one row to the next"


def judge_tiles(found, first, seen, visible):
    """``seen`` has the visible range for each row (or key) of a block, ``visible`` its size.

    Positions outside all tiles are skipped: the kernels look at tiles of 3 from ``begin`` to ``end`` only.
    """
    begin, end, wave_begin, wave_end, unmasked_begin, unmasked_end = found
    block, wave = seen[first // 4 * 4 :][:4], seen[first:][:2]
    assert begin % 3 == 0
    assert set().union(*block) <= set(range(begin, end))
    for tile in range(begin, end, 3):
        there = set(range(tile, min(tile + 3, visible)))
        looked_at = tile < wave_end and tile + 3 > wave_begin
        assert looked_at or not there & set().union(*wave)
        if looked_at and unmasked_begin <= tile and tile + 3 <= unmasked_end:
            assert all(there <= some for some in wave)


def test_tiles_have_all_that_is_visible_and_are_masked_where_something_is_hidden(said):
    """Both in two forms. CDNA's kernels use the shorter one."""
    for case in said["visibility"]:
        rows = [set(range(*bounds)) for bounds in zip(case["begin"], case["end"], strict=True)]
        keys = [{row for row in range(case["q"]) if key in rows[row]} for key in range(case["k"])]
        for name in ("tiles_of_rows", "tiles_of_rows_by_branches"):
            for number, found in enumerate(case[name]):
                judge_tiles(found, number * 2, rows, case["k"])
        for name in ("tiles_of_keys", "tiles_of_keys_by_bounds"):
            for number, found in enumerate(case[name]):
                judge_tiles(found, number * 2, keys, case["q"])


def test_philox_gives_the_published_answers(said):
    """Random123's known answers for philox4x32 with 10 rounds."""
    assert said["philox"][:3] == [
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ]


def test_sequences_of_a_ragged_batch_never_leave_the_tensors(said):
    found = {(case["mode"], case["batch"]): (case["q"], case["k"]) for case in said["sequences"]}
    assert found[0, 0] == ([0, 5], [0, 12])  # dense: the whole batch entry
    assert found[1, 0] == ([0, 3], [2, 3])
    assert found[1, 1] == ([3, 0], [5, 0])  # empty sequences
    assert found[3, 0] == ([0, 3], [2, 1])  # seqused_k
    assert found[6, 1] == ([0, 5], [1, 8])  # dense with seqused_k and leftpad_k
    assert found[9, 0] == ([0, 3], [0, 3])  # pages: cu_seqlens_k gives lengths only
    for (q_first, q_rows), (k_first, k_rows) in found.values():
        assert 0 <= q_first <= q_first + q_rows <= 10
        assert q_rows <= 5
        assert 0 <= k_first <= k_first + k_rows <= 12


def test_decode_blocks_are_one_step_of_columns(said):
    blocks = {tile["arch"]: tile["block_m"] for tile in said["tiles"] if tile["decode"]}
    columns = {"mfma": 32, "wmma": 16, "wmma_split": 16, "dot2": 16, "dot2_64": 8}  # narrow steps
    assert blocks == {arch.name: columns[arch.isa.unit] for arch in known_archs().values()}


def test_parts_are_in_order_without_gap_and_as_equal_as_they_can_be(said):
    for case in said["parts"]:
        parts, length = case["parts"], max(case["length"], 0)
        assert [tile for part in parts for tile in range(*part)] == list(range(3, 3 + length)), case
        sizes = [max(end - begin, 0) for begin, end in parts]
        # Without tiles there is nothing to cut. Otherwise even an empty part has its position.
        assert max(sizes) - min(sizes) <= 1 or case["count"] <= 1, case
    assert said["last_of_many"] == [2**26 - 2**17, 2**26]


def test_places_in_a_cache_never_leave_it(said):
    assert said["places"] == {"without": [0, 1], "by_index": [0, 2, 1, 2, 0, 2, 0]}


def test_only_whole_known_arch_names_are_accepted(said):
    assert dict(said["names"]) == {
        "gfx908": "gfx908",
        "gfx942:sramecc+:xnack-": "gfx942",
        "gfx1030": "gfx1030",
        "gfx1100:": "gfx1100",
        "gfx90": "",
        "gfx9080": "",
        "gfx900": "",
        "": "",
    }


def test_workgroups_are_whole_waves_of_at_most_1024_threads(said):
    forwards, head_dims = ("fwd", "decode"), (32, 64, 96, 128, 192, 256)
    with_80 = [arch for arch in known_archs().values() if "steps_of_16" in arch.features]
    small = [arch for arch in known_archs().values() if "large_head_dims" not in arch.features]
    each = len(head_dims) * len(known_archs()) + len(with_80) - 2 * len(small)
    assert len(said["tiles"]) == len(forwards) * each
    for tile in said["tiles"]:
        assert tile["threads"] % tile["wave"] == 0
        assert tile["threads"] <= 1024
        assert tile["block_m"] > 0


# The C++ type of each scalar, by its ``struct`` letter.
CPP_TYPES = {"Q": "const volatile void*", "q": "int64_t", "i": "int32_t", "I": "uint32_t", "f": "float"}


def asserted(layouts):
    """C++ that compiles only if sizes, offsets and types of structs and scalars match ``layouts``."""
    yield "#include <cstddef>\n#include <type_traits>"
    yield '#include "device/call/backward_params.hpp"\nusing namespace fa;'
    for each in layouts.values():
        yield f"static_assert(sizeof({each.name}) == {each.size});"
        for scalar in each.scalars:
            yield f"static_assert(offsetof({each.name}, {scalar.name}) == {scalar.offset});"
            declared = f"decltype((({each.name}*)nullptr)->{scalar.name})"
            same = "is_convertible_v" if scalar.kind == "Q" else "is_same_v"
            plain = f"std::remove_reference_t<{declared}>"
            yield f"static_assert(std::{same}<{plain}, {CPP_TYPES[scalar.kind]}>);"


def compiles(text, folder):
    source = folder / "params.cpp"
    source.write_text(text)
    command = [*ZIG, "c++", *TARGET, "-std=c++17"]
    include = f"-I{CHECKOUT}/kernels"
    flags = ["-Wno-invalid-offsetof", include, "-c", source, "-o", folder / "params.o"]
    return subprocess.run([*command, *flags], capture_output=True, text=True, check=False)


def test_the_argument_structs_that_python_packs_are_the_compilers(tmp_path):
    done = compiles("\n".join(asserted(known_layouts())), tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_field_that_has_moved_does_not_compile(tmp_path):
    """Tests the check itself: as if the structs were generated from a description with two fields swapped."""
    page, pages = 'page = "int32_t"\n', 'num_pages = "int32_t"\n'
    text = (CHECKOUT / CALLS).read_text()
    moved = layouts(parse_calls(text.replace(page + pages, pages + page)).structs)
    assert moved != known_layouts()
    done = compiles("\n".join(asserted(moved)), tmp_path)
    assert done.returncode != 0
    assert "offsetof(FwdParams, page)" in done.stderr

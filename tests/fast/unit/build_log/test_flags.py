"""Flags in words, on a real command of upstream's."""

from pathlib import Path

from wheel_builder.extras.build_log.flags import GROUPS, TABLE, UNKNOWN, explain, flags_of

LOG = (Path(__file__).parent / "logs/ck-interrupted.txt").read_text()
COMMAND = next(line for line in LOG.splitlines() if line.startswith("[1/2782]")).split()[1:]


def test_every_flag_of_upstreams_command_is_known():
    flags = flags_of(COMMAND)
    assert len(flags) > 40
    assert [flag.text for flag in flags if flag.group == UNKNOWN or "no table" in flag.words] == []


def test_every_group_is_in_words():
    assert {group for _, group, _ in TABLE} | {UNKNOWN} == GROUPS.keys()


def test_pairs_are_one_flag():
    texts = [
        flag.text for flag in flags_of(["-mllvm", "-enable-post-misched=0", "-I", "a", "-o", "b.o", "c.hip"])
    ]
    assert texts == ["-mllvm -enable-post-misched=0", "-Ia", "-o b.o"]


def test_each_is_told_once_and_quotes_are_taken_off():
    texts = [flag.text for flag in flags_of(["-O3", "'-DPYBIND11_STDLIB=x'", "-O3"])]
    assert texts == ["-O3", "-DPYBIND11_STDLIB=x"]


def test_what_no_table_has_is_said_to_be_unknown():
    assert explain("--frobnicate").group == UNKNOWN
    assert "unknown here" in explain("-mllvm -frobnicate").words


def test_archs():
    assert explain("--offload-arch=gfx1100").words == "device code for gfx1100"

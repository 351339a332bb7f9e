"""Messages about instructions missing in the emulator, from a fake core."""

from wheel_builder.machine_code.emulator.coverage import summary, unimplemented


class FakeCore:
    def missing(self, arch, disassembly):
        return tuple(disassembly.splitlines())


def test_all_archs_and_texts_are_told_at_once():
    texts = {
        "gfx908": ["v_one: k+0x4: v_one v1", "v_one: l+0x8: v_one v2\ns_two: l+0xc: s_two 3"],
        "gfx942": [""],
        "gfx1100": iter(["v_three: m+0x0: v_three v1, v2"]),
    }
    assert unimplemented(FakeCore(), texts) == [
        "gfx908: s_two at l+0xc, 's_two 3'",
        "gfx908: v_one at k+0x4, 'v_one v1', and 1 more",
        "gfx1100: v_three at m+0x0, 'v_three v1, v2'",
    ]


def test_nothing_missing_is_no_line():
    assert list(summary(())) == []

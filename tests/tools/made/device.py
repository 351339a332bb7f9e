"""The device code of a library, edited: unpacked, changed, and packed again in its place."""

from wheel_builder.files.binaries.elfimage import read_image
from wheel_builder.files.device.compressed import packed_bundles
from wheel_builder.files.device.fatbin import SECTION, read_fatbin
from wheel_builder.files.device.packing import packed


def with_code(library, edit):
    """``library`` with ``edit(code)`` in place of each ``CodeObject``: bytes, as many as before.

    A bundle keeps its place, because the library's machine code has its address.
    """
    image = read_image(library)
    [section] = image.named(SECTION)
    data = bytearray(image.content(section))
    bundles = packed_bundles(data)
    ends = [*(each.start for each in bundles[1:]), len(data)]
    for each, end in zip(bundles, ends, strict=True):
        codes = read_fatbin(each.content)
        edited = [edit(code) for code in codes]
        assert list(map(len, edited)) == [len(code.data) for code in codes]
        if edited == [code.data for code in codes]:
            continue
        again = packed(codes[0].gfx, {f"{n:06}": code for n, code in enumerate(edited)})
        assert len(again) <= end - each.start, "the bundle does not fit into its place"
        data[each.start : end] = again.ljust(end - each.start, b"\0")
    return library[: section.offset] + bytes(data) + library[section.offset + section.size :]

"""The device code of a library, edited: unpacked, changed, and packed again."""

import functools

from wheel_builder.files.binaries.elfimage import read_image
from wheel_builder.files.device.compressed import packed_bundles
from wheel_builder.files.device.fatbin import ALIGNMENT, SECTION, read_fatbin
from wheel_builder.files.device.hostpart import FUNCTIONS, functions_of
from wheel_builder.files.device.packing import packed


def with_code(library, edit):
    """``library`` with ``edit(code)`` in place of each ``CodeObject``: bytes, as many as before.

    Bundles of another size move those behind them, and the functions with their addresses follow.
    """
    image = read_image(library)
    [section], [functions] = image.named(SECTION), image.named(FUNCTIONS)
    data, found = image.content(section), b""
    for bundle in packed_bundles(data):
        codes = read_fatbin(bundle.content)
        edited = [edit(code) for code in codes]
        assert list(map(len, edited)) == [len(code.data) for code in codes]
        own = data[bundle.start : bundle.end]
        if edited != [code.data for code in codes]:
            own = _packed(codes[0].gfx, *edited)
        found += bytes(-len(found) % ALIGNMENT) + own
    assert len(found) <= len(data), "the bundles do not fit into their section"
    found = found.ljust(len(data), b"\0")
    pointing = functions_of(found, functions.address, section.address)
    assert len(pointing) == functions.size
    return _replaced(_replaced(library, section, found), functions, pointing)


@functools.cache  # an arch's code is left out of every other arch's twin
def _packed(arch, *codes):
    return packed(arch, {f"{n:06}": code for n, code in enumerate(codes)})


def _replaced(library, section, content):
    return library[: section.offset] + content + library[section.offset + section.size :]

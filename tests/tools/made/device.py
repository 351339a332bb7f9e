"""The device code of a library, edited: unpacked, changed, and packed again."""

import functools
from itertools import groupby

from wheel_builder.files.binaries.elfimage import read_image
from wheel_builder.files.device.compressed import packed_bundles, read_packed
from wheel_builder.files.device.fatbin import ALIGNMENT, SECTION
from wheel_builder.files.device.hostpart import FUNCTIONS, functions_of
from wheel_builder.files.device.packing import base_of, content_of, packed


def with_code(library, edit):
    """``library`` with ``edit(code)`` in place of each ``CodeObject``: bytes, as many as before.

    Bundles of another size move those behind them, and the functions with their addresses follow.
    """
    image = read_image(library)
    [section], [functions] = image.named(SECTION), image.named(FUNCTIONS)
    data, found = image.content(section), b""
    codes = read_packed(data)
    before, after = of_archs(codes), of_archs(codes, edit)
    assert all(len(edit(code)) == len(code.data) for code in codes)
    for bundle, changed in zip(packed_bundles(data), repacked(before, after), strict=True):
        found += bytes(-len(found) % ALIGNMENT) + (changed or data[bundle.start : bundle.end])
    assert len(found) <= len(data), "the bundles do not fit into their section"
    found = found.ljust(len(data), b"\0")
    pointing = functions_of(found, functions.address, section.address)
    assert len(pointing) == functions.size
    return _replaced(_replaced(library, section, found), functions, pointing)


def of_archs(codes, edit=lambda code: code.data):
    """The bytes of each arch's code objects, edited."""
    return {arch: tuple(map(edit, each)) for arch, each in groupby(codes, lambda code: code.gfx)}


def repacked(before, after):
    """For each arch its bundle of ``after``, or None if that is the one of ``before``."""
    for arch, codes in after.items():
        base = base_of(arch, {each: len(codes) for each, codes in after.items()})
        same = all(before[each] == after[each] for each in (arch, base or arch))
        yield None if same else repack(arch, codes, base, after.get(base, ()))


@functools.cache  # an arch's code is left out of every other arch's twin
def repack(arch, codes, base, before):
    """The bundle of an arch's code objects, with those of ``base`` unless that is None."""
    return packed(arch, _named(codes), content_of(base, _named(before)) if base else b"")


def _named(codes):
    return {f"{number:06}": code for number, code in enumerate(codes)}


def _replaced(library, section, content):
    return library[: section.offset] + content + library[section.offset + section.size :]

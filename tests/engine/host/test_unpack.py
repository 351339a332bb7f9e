"""The host library unpacks device code: what was packed comes back, and damage is an error in words."""

import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.host.interface import OK, Library
from tests.engine.host.test_interface import attention
from tests.tools.made.wheels import code_object, padded
from wheel_builder.files.device.compressed import packed_bundles, read_packed
from wheel_builder.files.device.packing import packed

KERNELS = ["fa_fwd_bf16_d64", "fa_fwd_fp16_d64"]
GOOD = packed("gfx942", {name: code_object("gfx942", [name]) for name in KERNELS})
[CONTENT] = (bundle.content for bundle in packed_bundles(GOOD))
# GOOD is the base of SMALL, and SMALL would be that of CHAIN.
SMALL = packed("gfx950", {KERNELS[0]: code_object("gfx942", KERNELS[:1])}, CONTENT)
[_, SECOND] = (bundle.content for bundle in packed_bundles(padded(GOOD) + SMALL))
CHAIN = packed("gfx950", {}, SECOND)
HEADER, HUGE = 32, 1 << 40
DAMAGED = "error: the device code in libflash_attn_rocm.so is damaged: "
NEXT = "\n  next: install the wheel again, with the command that you installed it with and --force-reinstall"


@pytest.fixture
def unpack(unpacker, tmp_path):
    """The content, or the words of the error."""

    def run(*bundles):
        files, out = [tmp_path / str(number) for number in range(len(bundles))], tmp_path / "content"
        for file, data in zip(files, bundles, strict=True):
            file.write_bytes(data)
        out.unlink(missing_ok=True)
        done = subprocess.run([unpacker, out, *files], capture_output=True, text=True, check=True)
        return out.read_bytes() if out.exists() else done.stdout.removesuffix("\n")

    return run


def test_what_was_packed_comes_back_in_the_order_of_names(unpack):
    [bundle] = packed_bundles(GOOD)
    assert unpack(GOOD) == bundle.content
    assert [code.data for code in read_packed(GOOD)] == [code_object("gfx942", [name]) for name in KERNELS]


def test_equal_code_objects_give_equal_bytes():
    assert packed("gfx942", {name: code_object("gfx942", [name]) for name in reversed(KERNELS)}) == GOOD


def changed(at, form, value, of=GOOD):
    data = bytearray(of)
    struct.pack_into(form, data, at, value)
    return bytes(data)


SIZE = len(packed_bundles(GOOD)[0].content)
WORDS = {
    "a compressed bundle ends in its header": GOOD[: HEADER - 1],
    "a compressed bundle does not start with clang's mark for version 3 and zstd": changed(4, "<H", 2),
    f"a compressed bundle of {len(GOOD) - 1} bytes says that it has {len(GOOD)}": GOOD[:-1],
    f"a compressed bundle says that it holds {HUGE} bytes, more than {64 << 20}": changed(16, "<Q", HUGE),
    "a compressed bundle cannot be unpacked (Destination buffer is too small)": changed(16, "<Q", 5),
    f"a compressed bundle holds {SIZE} bytes and says that it holds {SIZE + 1}": changed(16, "<Q", SIZE + 1),
    "a compressed bundle cannot be unpacked (Unknown frame descriptor)": changed(HEADER, "<I", 5),
    "a compressed bundle cannot be unpacked (Restored data doesn't match checksum)": changed(
        len(GOOD) - 4, "<I", 5
    ),
}


@pytest.mark.parametrize("words", WORDS)
def test_damage_is_an_error_in_words(unpack, words):
    assert unpack(WORDS[words]) == DAMAGED + words + NEXT


def test_a_bundle_is_unpacked_with_its_base(unpack):
    assert len(SMALL) < len(GOOD) / 4
    assert unpack(SMALL, CHAIN, GOOD) == SECOND


MISSING = "a compressed bundle needs another one, and none has its hash"
NOT_UNPACKED = "a compressed bundle cannot be unpacked "


def with_hash_of_good(codes):
    return changed(24, "<8s", GOOD[24:32], packed("gfx942", codes))


WITH_OTHERS = {
    "alone": (MISSING, [SMALL]),
    "with itself": (MISSING, [SMALL, SMALL]),
    "with one that needs another": (MISSING, [CHAIN, SMALL, GOOD]),
    "with another hash": (MISSING, [changed(HEADER, "<B", GOOD[24] ^ 1, SMALL), GOOD]),
    "with a shorter one": (
        f"{NOT_UNPACKED}(Data corruption detected)",
        [SMALL, with_hash_of_good({"a": b"b"})],
    ),
    "with another content": (
        f"{NOT_UNPACKED}(Restored data doesn't match checksum)",
        [SMALL, with_hash_of_good({name: code_object("gfx90a", [name]) for name in KERNELS})],
    ),
    "without the hash": (
        "a compressed bundle ends in its header",
        [changed(8, "<Q", HEADER + 7, SMALL)[: HEADER + 7]],
    ),
    "without a frame": (
        "a compressed bundle holds 0 bytes and says that it holds 8192",
        [changed(8, "<Q", HEADER + 8, SMALL)[: HEADER + 8], GOOD],
    ),
}


@pytest.mark.parametrize("case", WITH_OTHERS)
def test_a_bundle_without_its_base_is_refused(unpack, case):
    words, bundles = WITH_OTHERS[case]
    assert unpack(*bundles) == DAMAGED + words + NEXT


def test_a_changed_byte_is_found_or_changes_nothing_unpacked(unpack):
    [bundle] = packed_bundles(GOOD)
    for at in range(HEADER, len(GOOD), 13):
        found = unpack(changed(at, "<B", GOOD[at] ^ 32))
        assert found == bundle.content or found.startswith(DAMAGED)
    for at in range(HEADER, len(SMALL), 5):
        found = unpack(changed(at, "<B", SMALL[at] ^ 32, SMALL), GOOD)
        assert found == SECOND or found.startswith(DAMAGED)


def test_first_calls_of_many_threads_get_their_kernels(library_file, tmp_path):
    """An arch is unpacked once, by one of them. The fake runtime compares each kernel with its code."""
    own = shutil.copy(library_file, tmp_path / "libown.so")  # nothing is unpacked yet
    libraries = [Library(own) for _ in range(8)]
    calls = [attention(head_dim=head_dim) for head_dim in (32, 64, 96, 128)]
    with ThreadPoolExecutor(len(libraries)) as pool:
        found = pool.map(lambda library, call: library.call(call)[:2], libraries, 2 * calls)
    assert set(found) == {(OK, "")}

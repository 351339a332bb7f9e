"""Device code in a compressed bundle per arch, and zstd's source for the library that unpacks it."""

import hashlib
import io
import re
import tarfile

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.wheels import padded
from wheel_builder.base.errors import WheelError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Artifact, Store, sha256_file
from wheel_builder.build import zstd
from wheel_builder.build.device_code import pack_archs
from wheel_builder.files.device.compressed import ZSTD, ZSTD_WITH_BASE, packed_bundles, read_packed
from wheel_builder.files.device.packing import SETTINGS, base_of, packed

LOCK = "wheel_builder/requirements.txt"


def code(folder, arch, **objects):
    """The device code of an arch, as its stage stores it."""
    folder = folder / arch
    folder.mkdir(exist_ok=True)
    files = {f"{name}.hsaco": data for name, data in objects.items()}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    facts = {"arch": arch}
    return Artifact(
        folder, {"files": {n: sha256_file(folder / n) for n in files}, "facts": facts}, reused=True
    )


def test_a_bundle_has_the_code_objects_in_the_order_of_their_names(tmp_path):
    [made] = pack_archs([code(tmp_path, "gfx942", b=b"second", a=b"first")], Store(tmp_path / "build"))
    found = read_packed((made.path / "gfx942.hipfb").read_bytes())
    assert [(each.arch, each.data) for each in found] == [("gfx942", b"first"), ("gfx942", b"second")]


def test_a_changed_kernel_packs_its_own_arch_again(tmp_path):
    store = Store(tmp_path / "build")
    pack_archs([code(tmp_path, arch, a=b"code") for arch in ("gfx1030", "gfx942")], store)
    for arch, reused in (("gfx942", False), ("gfx1030", True)):
        [made] = pack_archs([code(tmp_path, arch, a=b"changed" if arch == "gfx942" else b"code")], store)
        assert made.reused == reused


def test_a_changed_base_packs_other_archs_again(tmp_path):
    store = Store(tmp_path / "build")
    first, second = (code(tmp_path, arch, a=b"code") for arch in ("gfx1100", "gfx1102"))
    pack_archs([first, second], store)
    assert [made.reused for made in pack_archs([first, second], store)] == [True, True]
    changed = code(tmp_path, "gfx1102", a=b"changed")
    assert [made.reused for made in pack_archs([first, changed], store)] == [True, False]
    changed = code(tmp_path, "gfx1100", a=b"changed")
    assert [made.reused for made in pack_archs([changed, second], store)] == [False, False]
    assert [made.reused for made in pack_archs([second], store)] == [False]


def test_archs_with_one_matrix_unit_have_one_base(tmp_path):
    noise = hashlib.sha512(b"noise").digest() * 4
    codes = [code(tmp_path, arch, a=noise) for arch in ("gfx1102", "gfx1030", "gfx1100", "gfx1151")]
    made = pack_archs(codes, Store(tmp_path / "build"))
    data = {each.facts["arch"]: (each.path / f"{each.facts['arch']}.hipfb").read_bytes() for each in made}
    assert [*data] == ["gfx1102", "gfx1030", "gfx1100", "gfx1151"]
    section = b"".join(padded(data[arch]) for arch in sorted(data))
    assert [(each.arch, each.data) for each in read_packed(section)] == [(a, noise) for a in sorted(data)]
    methods = [section[bundle.start + 6] for bundle in packed_bundles(section)]
    assert methods == [ZSTD, ZSTD, ZSTD_WITH_BASE, ZSTD_WITH_BASE]


@pytest.mark.parametrize(
    ("arch", "kernels", "base"),
    [
        ("gfx1102", {"gfx1100": 3, "gfx1102": 3, "gfx1151": 3}, "gfx1100"),
        ("gfx1102", {"gfx1100": 2, "gfx1102": 2, "gfx1151": 3}, "gfx1151"),
        ("gfx1151", {"gfx1100": 2, "gfx1102": 2, "gfx1151": 3}, None),
        ("gfx1151", {"gfx1151": 1}, None),
        ("gfx1010", {"gfx1010": 1, "gfx1012": 1, "gfx1030": 2}, "gfx1030"),
        ("gfx1201", {"gfx1100": 2, "gfx1201": 1}, None),
    ],
)
def test_the_base_has_the_same_matrix_unit_and_most_kernels(arch, kernels, base):
    assert base_of(arch, kernels) == base


@pytest.mark.parametrize("setting", SETTINGS)
def test_another_packer_packs_again(tmp_path, monkeypatch, setting):
    store, one = Store(tmp_path / "build"), code(tmp_path, "gfx942", a=b"code")
    pack_archs([one], store)
    monkeypatch.setitem(SETTINGS, setting, "another")
    assert not pack_archs([one], store)[0].reused


def test_padding_and_resemblance_cost_little():
    """Alone each of these would take its own bytes, and 4096 of padding."""
    noise = bytes(n * n * 7919 % 251 for n in range(3000))
    one, many = (packed("gfx942", {f"k{n}": noise + bytes([n]) for n in range(count)}) for count in (1, 50))
    assert len(many) < len(one) + 50 * 40
    [bundle] = packed_bundles(many)
    assert len(bundle.content) == 50 * 8192


def test_the_pinned_release_is_that_of_the_pipeline():
    """It compresses with the release that the library unpacks with."""
    pins = zstd.read_pins(CHECKOUT)
    rows = rf"^{pins.sdist.name}==(\S+)((?: \\\n    --hash=sha256:\S+)+)"
    [block] = re.findall(rows, (CHECKOUT / LOCK).read_text(encoding="utf-8"), re.MULTILINE)
    assert block[0] == pins.sdist.version
    assert pins.sdist.sha256 in block[1]


def archive(files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as out:
        for name, data in files.items():
            member = tarfile.TarInfo(f"zstandard-0.25.0/zstd/{name}")
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return made.getvalue()


def pip(data):
    def run(argv, **_):
        (argv[argv.index("--dest") + 1] / "zstandard-0.25.0.tar.gz").write_bytes(data)
        return Completed("", 0)

    return run


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "kernels/build").mkdir(parents=True)
    (tmp_path / "one").write_bytes(b"int x;")
    (tmp_path / zstd.PINS).write_text(f"""\
version = "1.5.7"
[sdist]
name = "zstandard"
version = "0.25.0"
sha256 = "{"0" * 64}"
[files]
"zstd.c" = "{sha256_file(tmp_path / "one")}"
""")
    return tmp_path


def test_the_source_is_what_the_pins_name(checkout):
    run = pip(archive({"zstd.c": b"int x;", "zdict.h": b"more"}))
    found = zstd.fetch_zstd(checkout, Store(checkout / "build"), log=checkout / "log", run=run)
    assert (found.path / "zstd.c").read_bytes() == b"int x;"
    assert not (found.path / "zdict.h").exists()
    assert found.facts == {"version": "1.5.7"}


@pytest.mark.parametrize("files", [{"zstd.c": b"int y;"}, {"zdict.h": b"int x;"}])
def test_another_source_is_refused(checkout, files):
    run = pip(archive(files))
    with pytest.raises(WheelError, match=r"zstd.c has sha256 \w+, expected \w+\n  next: compare the release"):
        zstd.fetch_zstd(checkout, Store(checkout / "build"), log=checkout / "log", run=run)

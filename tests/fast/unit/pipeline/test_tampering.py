"""A seeded attack on ``index verify``: each kind of tampering also makes hashes, records and pages fit.

The changed values contradict the wheel or the files with it.
"""

import json
import random
import shutil
from datetime import datetime

import pytest

from tests.tools.made.finished import finished_shim, finished_wheel
from tests.tools.made.wheels import project_wheel
from wheel_builder.base.store import sha256_file
from wheel_builder.build.shim import FLASH_ATTN
from wheel_builder.cli.commands.indexes.index import OURS
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.index.check import Found, check_index
from wheel_builder.index.folder import add_file, sha256, write_pages
from wheel_builder.index.incoming import described
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.pipeline.publication import publish_files
from wheel_builder.provenance.verification import read_verification

SEED = 20261128
NAME = "flash_attn_rocm-0.1.0-py3-none-manylinux_2_28_x86_64.whl"


@pytest.fixture(scope="module")
def catalogue(matrix):
    return catalogue_of(matrix)


@pytest.fixture(scope="module")
def sound(tmp_path_factory, matrix, checkout):
    """A public index with the public wheel and flash-attn."""
    folder = tmp_path_factory.mktemp("sound")
    files = [finished_wheel(folder, *checkout, "public"), finished_shim(folder, *checkout, FLASH_ATTN)]
    publish_files(files, matrix, folder / "index", checkout[0])
    return folder / "index"


class Attacker:
    """Changes the publication of one wheel and makes everything in the index consistent again."""

    def __init__(self, root, rng):
        self.root, self.rng = root, rng
        self.wheel = root / "public/simple/flash-attn-rocm" / NAME

    def beside(self, suffix):
        return self.wheel.with_name(f"{NAME}.{suffix}")

    def record(self, **changes):
        path = self.beside("record.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def said(self, name):
        return json.loads(self.beside("record.json").read_text())[name]

    def metadata(self, old, new):
        path = self.beside("metadata")
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        self.record(metadata_sha256=sha256_file(path))

    def paper(self, kind, change):
        """Change a file of the wheel, and its hash in the record."""
        path = self.beside(f"{kind}.json")
        path.write_text(change(path.read_text()))
        self.record(attachments=self.said("attachments") | {kind: sha256_file(path)})

    def verification(self, change):
        """Change the verification record, and the statement, which names it."""
        before = sha256_file(self.beside("verification.json"))
        self.paper("verification", lambda text: json.dumps(change(json.loads(text))))
        after = sha256_file(self.beside("verification.json"))
        self.paper("provenance", lambda text: text.replace(before, after))

    def words(self, gpu):
        """The verification record's text about a GPU."""
        return read_verification(self.beside("verification.json").read_bytes()).gpus[gpu]

    def without(self, kind):
        self.beside(f"{kind}.json").unlink()
        self.record(attachments={k: v for k, v in self.said("attachments").items() if k != kind})

    def digit(self, text):
        """``text``, a sha256, with another digit."""
        place = self.rng.randrange(len(text))
        return text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]

    def another_arch(self):
        return self.rng.choice(["gfx906", "gfx1250", "gfx803"])

    def moved(self, home):
        shutil.rmtree(self.root / home, ignore_errors=True)
        shutil.move(self.root / "public", self.root / home)

    def foreign(self, *, listed):
        """A wheel of torch. With ``listed`` it also has a record and links on all pages."""
        folder = self.root / "public/simple/torch"
        folder.mkdir()
        path = project_wheel(folder, "torch", "2.13.0")
        if listed:
            file, _ = described(read_wheel(path, max_mib=1))
            add_file(folder.parent, file, datetime.fromisoformat(self.said("upload_time")))


def everything_again(attacker):
    """Another wheel under the name, with a matching record."""
    data = bytearray(attacker.wheel.read_bytes())
    data[data.index(b"flash_attn_rocm/")] = ord("F")
    attacker.wheel.write_bytes(data)
    attacker.record(sha256=sha256(bytes(data)))


def dropped(record, number):
    archs = dict(record["archs"])
    del archs[list(archs)[number % len(archs)]]
    return record | {"archs": archs}


KINDS = {
    "another wheel": everything_again,
    "the wheel's sha256": lambda a: a.record(sha256=a.digit(a.said("sha256"))),
    "metadata requires more": lambda a: a.metadata("\nVersion:", "\nRequires-Dist: evil\nVersion:"),
    "metadata of a version": lambda a: a.metadata("\nVersion: 0.1.0", "\nVersion: 0.1.1"),
    "metadata of any Python": lambda a: a.metadata("\nRequires-Python: >=3.10", ""),
    "version": lambda a: a.record(version=a.rng.choice(["0.1.1", "9.0", "0.1.0+rocm7.2"])),
    "requires_python": lambda a: a.record(requires_python=a.rng.choice([">=3.8", "<3", ">=4"])),
    "no requires_python": lambda a: a.record(requires_python=""),
    "size": lambda a: a.record(size=a.said("size") + a.rng.choice([-1, 1, 4096])),
    "a time to come": lambda a: a.record(upload_time=f"{a.rng.randint(2200, 9000)}-01-01T00:00:00.000000Z"),
    "no time": lambda a: a.record(upload_time=a.rng.choice(["yesterday", "0", "2026-01-02", "2026-13-02"])),
    "another zone": lambda a: a.record(upload_time="2026-01-02T00:00:00.000000+05:00"),
    "verified on hardware": lambda a: a.record(
        verified=a.said("verified") | {"gfx942": "measured on an MI300X; certified"}
    ),
    "verified, one more": lambda a: a.record(verified=a.said("verified") | {a.another_arch(): "passed"}),
    "verified, one less": lambda a: a.record(verified=dict(list(a.said("verified").items())[1:])),
    "verified, none": lambda a: a.record(verified={}),
    "serves one more": lambda a: a.record(serves=[*a.said("serves"), "5.7"]),
    "serves one less": lambda a: a.record(serves=a.said("serves")[1:]),
    "attachments emptied": lambda a: [a.without(kind) for kind in ("verification", "provenance")],
    "attachments emptied and all that they said": lambda a: [
        *(a.without(kind) for kind in ("verification", "provenance")),
        a.record(verified={}, serves=[]),
    ],
    "no statement": lambda a: a.without("provenance"),
    "a record of another wheel": lambda a: a.verification(lambda r: r | {"sha256": a.digit(r["sha256"])}),
    "a record of more archs": lambda a: [
        a.verification(lambda r: r | {"archs": r["archs"] | {a.another_arch(): r["archs"]["gfx942"]}}),
        a.record(verified=described(read_wheel(a.wheel, max_mib=64))[0].verified),
    ],
    "a record that is dropped in part": lambda a: a.verification(lambda r: dropped(r, a.rng.randrange(9))),
    "a statement of another wheel": lambda a: a.paper(
        "provenance", lambda text: text.replace(a.said("sha256"), a.digit(a.said("sha256")))
    ),
    "a statement of another version": lambda a: a.paper(
        "provenance", lambda text: text.replace('"version": "0.1.0"', '"version": "0.1.1"')
    ),
    "a statement of fewer archs": lambda a: a.paper(
        "provenance", lambda text: text.replace('"gfx942",', "", 1)
    ),
    "a statement that is none": lambda a: a.paper("provenance", lambda _: "{}"),
    "a foreign wheel": lambda a: a.foreign(listed=False),
    "a foreign wheel on all pages": lambda a: a.foreign(listed=True),
    "in the folder of a ROCm version": lambda a: a.moved("rocm7.2"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_index_is_no_longer_sound(kind, sound, tmp_path, catalogue):
    """Before records were compared with their wheels, only another sha256 was found."""
    root = shutil.copytree(sound, tmp_path / "index")
    KINDS[kind](Attacker(root, random.Random(f"{SEED} {kind}")))
    for page in root.rglob("index.*"):
        page.unlink()
    write_pages(root, catalogue)
    faults = check_index(root, ours=OURS).faults
    assert faults
    assert all(fault.startswith(str(root)) and "; " in fault for fault in faults), faults


def test_a_fault_says_what_differs_and_nothing_else(sound, tmp_path, catalogue):
    root = shutil.copytree(sound, tmp_path / "index")
    attacker = Attacker(root, random.Random(SEED))
    attacker.record(verified=attacker.said("verified") | {"gfx942": "measured\u2026 by us"})
    write_pages(root, catalogue)
    [fault] = check_index(root, ours=OURS).faults
    words = attacker.words("gfx942")
    assert fault == (
        f"{attacker.beside('record.json')}: it says verified {{'gfx942': 'measured\u2026 by us'}}, but by "
        f"the wheel and the files beside it this is {{'gfx942': '{words}'}}; "
        "restore it from a copy of the index"
    )


def test_the_index_that_is_attacked_is_sound(sound):
    assert check_index(sound, ours=OURS) == Found(())

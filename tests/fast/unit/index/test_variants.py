"""Variants in an index: made of published wheels, and listed, checked, yanked and withdrawn with them."""

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import (
    BASE_VERSION,
    DIST_INFO,
    PLATFORM,
    VERSION,
    good_files,
    project_wheel,
    write_wheel,
)
from wheel_builder.base.errors import PublishError
from wheel_builder.base.store import sha256_file
from wheel_builder.files.wheels.variant import variant_name, variants_text
from wheel_builder.index.check import Found, check_index, verify_index
from wheel_builder.index.folder import beside, newest_wheels, read_contents, write_pages, yank
from wheel_builder.index.publish import publish
from wheel_builder.provenance.records import write_record

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SHOWN = {"numerics": "executed on an ISA emulator", "launches": {"a": 1}, "findings": [], "passed": True}
ARCHS = {"gfx908": SHOWN, "gfx1030": SHOWN | {"gpus": ["gfx1030", "gfx1031"]}}
NAME = f"flash_attn_rocm-{VERSION}-py3-none-{PLATFORM}.whl"
LABELS = ("amd_linux", "null")
VARIANTS = tuple(variant_name(NAME, label) for label in LABELS)
ABOUT = f"flash_attn_rocm-{VERSION}-variants.json"
PROJECT = "flash-attn-rocm"


def verified(wheel, archs=None, **changes):
    """``wheel`` with its verification record."""
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": archs or ARCHS} | changes)
    return wheel


def published(root, *wheels, rocm="7.2", later=0, **options):
    now = NOW + timedelta(days=later)
    return publish(wheels, root, rocm, catalogue=CATALOGUE, now=now, **{"variants": True} | options)


def public_wheel(folder, tag, archs=None, module=b"VALUE = 1\n"):
    """A wheel of one public version for the platform ``tag``."""
    inside = {
        name.replace(VERSION, BASE_VERSION): data.replace(VERSION.encode(), BASE_VERSION.encode())
        for name, data in good_files().items()
    }
    inside["flash_attn_rocm/__init__.py"] = module
    name = f"flash_attn_rocm-{BASE_VERSION}-py3-none-{tag}.whl"
    return verified(write_wheel(folder, inside, name=name), archs)


@pytest.fixture
def wheel(tmp_path):
    return verified(write_wheel(tmp_path))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "index"


@pytest.fixture
def folder(root):
    return root / "rocm7.2/simple" / PROJECT


@pytest.fixture
def pages(root):
    """The pages that list variants."""
    return root / "rocm7.2/variants" / PROJECT


def files_of(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def listed(folder):
    return {each["filename"]: each for each in json.loads((folder / "index.json").read_bytes())["files"]}


def gpus(folder):
    """GPUs of the hardware variant, from the file about variants."""
    return json.loads((folder / ABOUT).read_bytes())["variants"]["amd_linux"]["amd"]["gfx_arch"]


class Links(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.links = {}
        self.at = None
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        self.at = dict(attributes) if tag == "a" else self.at

    def handle_data(self, data):
        if data.strip() and self.at:
            self.links[data], self.at = self.at, None


def test_nothing_that_other_installers_read_is_different(tmp_path, wheel):
    shim = project_wheel(tmp_path, "flash-attn", "2.8.3")
    for name in ("plain", "with"):
        published(tmp_path / name, wheel, shim, variants=name == "with")
    plain, more = files_of(tmp_path / "plain"), files_of(tmp_path / "with")
    assert {name for name in plain if plain[name] != more.get(name)} == set()
    beside_it, pages = f"rocm7.2/simple/{PROJECT}/", ("index.html", "index.json")
    assert more.keys() - plain.keys() == {
        *(beside_it + name for name in (ABOUT, f"{NAME}.variants.json")),
        *(beside_it + name + suffix for name in VARIANTS for suffix in ("", ".metadata")),
        *(
            f"{home}variants/{project}{page}"
            for home in ("", "rocm7.2/")
            for project in ("", f"{PROJECT}/", "flash-attn/")
            for page in pages
        ),
    }


def test_every_page_that_lists_variants_links_them_and_the_file_about_them(wheel, root, folder):
    """Including the pages of another ROCm version served by the wheel, and the root's pages."""
    published(root, verified(wheel, serves=["7.1"]))
    assert check_index(root) == Found(())
    about = json.loads((folder / ABOUT).read_bytes())
    assert about["variants"] == {
        "amd_linux": {"amd": {"gfx_arch": ["gfx1030", "gfx1031", "gfx908"]}}, "null": {}
    }  # fmt: skip
    for home in ("", "rocm7.1", "rocm7.2"):
        assert list(listed(root / home / "simple" / PROJECT)) == [NAME]
        page = root / home / "variants" / PROJECT
        files, links = listed(page), Links(page / "index.html").links
        assert list(files) == list(links) == [NAME, *VARIANTS, ABOUT]
        for name in files:
            file = (page / unquote(files[name]["url"])).resolve()
            assert file == folder / name
            assert files[name]["size"] == file.stat().st_size
            assert links[name]["href"].partition("#")[0] == files[name]["url"]
        for name in (NAME, *VARIANTS):
            assert files[name]["hashes"] == {"sha256": sha256_file(folder / name)}
            assert links[name]["href"].endswith(f"#sha256={sha256_file(folder / name)}")
            metadata = {"sha256": sha256_file(folder / f"{name}.metadata")}
            assert files[name]["core-metadata"] == metadata == files[NAME]["core-metadata"]
            assert files[name]["requires-python"] == ">=3.10"
        assert files[ABOUT]["hashes"] == {}, "it grows with another platform's wheel"
        assert set(links[ABOUT]) == {"href"}


def test_a_rocm_version_without_variants_has_no_pages_for_them(tmp_path, wheel, root):
    other = project_wheel(tmp_path, "demo", "1.0+rocm6.4")
    published(root, other, rocm="6.4", variants=False)
    published(root, wheel)
    assert not (root / "rocm6.4/variants").exists()
    assert list(listed(root / "variants/demo")) == [other.name]
    assert check_index(root) == Found(())


def test_what_variants_are_made_of_is_the_published_wheel_and_its_record(wheel, root, folder, pages):
    published(root, wheel, variants=False)
    before = files_of(root)
    # A later verification leaves published wheels and their variants unchanged.
    done = published(root, verified(wheel, {"gfx942": SHOWN}), later=1)
    assert (done.added, done.unchanged) == ((), (NAME,))
    assert gpus(folder) == ["gfx1030", "gfx1031", "gfx908"]
    after = files_of(root)
    assert {name for name in before if after[name] != before[name]} == set()
    assert listed(pages)[VARIANTS[0]]["upload-time"].startswith("2026-01-03")
    assert listed(pages)[NAME]["upload-time"].startswith("2026-01-02")
    assert check_index(root) == Found(())


@pytest.mark.parametrize("variants", [True, False])
def test_publishing_again_changes_nothing(wheel, root, variants):
    published(root, wheel)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.name != ".lock"}
    assert published(root, wheel, later=1, variants=variants).unchanged == (NAME,)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.name != ".lock"} == before


def test_the_page_for_people_and_the_newest_wheel_know_no_variants(wheel, tmp_path, root):
    published(tmp_path / "plain", wheel, variants=False)
    published(root, wheel)
    for page in ("index.html", "wheels.json"):
        assert (root / page).read_bytes() == (tmp_path / "plain" / page).read_bytes()
    assert [path.name for path in newest_wheels(root, "7.2")] == [NAME]


def test_platforms_of_one_version_have_labels_of_their_own(tmp_path, root):
    """A label has one meaning in all wheels of a version, and the wheel for Windows serves fewer GPUs."""
    linux, windows = public_wheel(tmp_path, PLATFORM), public_wheel(tmp_path, "win_amd64", {"gfx1030": SHOWN})
    published(root, linux, rocm="public")
    home, name = root / "public/simple" / PROJECT, f"flash_attn_rocm-{BASE_VERSION}-variants.json"
    assert list(json.loads((home / name).read_bytes())["variants"]) == ["amd_linux", "null"]
    published(root, windows, rocm="public", later=1)
    assert json.loads((home / name).read_bytes())["variants"] == {
        "amd_linux": {"amd": {"gfx_arch": ["gfx1030", "gfx1031", "gfx908"]}},
        "amd_windows": {"amd": {"gfx_arch": ["gfx1030"]}},
        "null": {},
    }
    assert check_index(root) == Found(())
    found = listed(root / "public/variants" / PROJECT)
    assert len(found) == 7
    assert found[name]["upload-time"].startswith("2026-01-02")


@pytest.mark.parametrize("together", [True, False])
def test_one_label_for_different_gpus_is_refused(tmp_path, root, together):
    one = public_wheel(tmp_path, PLATFORM)
    other = public_wheel(tmp_path, "manylinux_2_28_aarch64", {"gfx908": SHOWN})
    if not together:
        published(root, one, rocm="public")
    before = files_of(root) if root.exists() else {}
    with pytest.raises(PublishError, match="would have the label amd_linux for different GPUs") as caught:
        published(root, *([one] if together else []), other, rocm="public")
    assert one.name in caught.value.message
    assert other.name in caught.value.message
    assert files_of(root) | {".lock": b""} == before | {".lock": b""}
    published(root, other, rocm="public", variants=False)  # without variants both can be published
    assert check_index(root) == Found(())


def test_a_wheel_without_variants_has_no_label(tmp_path, root):
    published(root, public_wheel(tmp_path, PLATFORM), rocm="public", variants=False)
    published(root, public_wheel(tmp_path, "manylinux_2_28_aarch64", {"gfx908": SHOWN}), rocm="public")
    assert check_index(root) == Found(())


@pytest.mark.parametrize(
    ("archs", "words"),
    [
        (None, f"{NAME}: no record says which GPUs it serves"),
        ({"gfx11-generic": SHOWN}, "'gfx11-generic' cannot be a value of amd :: gfx_arch: [a-z0-9_.]+"),
        ({"gfx908\u202e": SHOWN}, "has U+202E"),
    ],
)
def test_gpus_that_no_variant_can_name_are_refused(tmp_path, root, archs, words):
    wheel = write_wheel(tmp_path)
    if archs:
        verified(wheel, archs)
    with pytest.raises(PublishError, match=re.escape(words)) as caught:
        published(root, wheel)
    assert "nothing was published" in caught.value.message
    assert not (root / "rocm7.2").exists()


def test_the_refusal_says_what_to_do(tmp_path, root):
    with pytest.raises(PublishError) as caught:
        published(root, write_wheel(tmp_path))
    assert str(caught.value) == (
        "no variants can be made of these wheels; nothing was published\n"
        f"  - {NAME}: no record says which GPUs it serves\n"
        "  next: publish them without --variants, or follow each line and publish again"
    )


def test_a_wheel_that_says_itself_what_variant_it_is_gets_none(tmp_path, root):
    files = good_files() | {f"{DIST_INFO}/variant.json": b"{}"}
    with pytest.raises(PublishError, match=r"it has variant\.json already"):
        published(root, verified(write_wheel(tmp_path, files)))


def test_a_variant_is_not_published_as_a_wheel(wheel, root, folder, tmp_path):
    published(root, wheel)
    for name in VARIANTS:
        shutil.copy(folder / name, tmp_path / name)
        with pytest.raises(PublishError, match="not a wheel's file name"):
            published(root, tmp_path / name)


def test_a_variant_is_yanked_with_its_wheel_and_only_so(wheel, root, pages):
    published(root, wheel)
    with pytest.raises(PublishError, match="it is a variant, which is yanked with its wheel") as caught:
        yank(root, "7.2", VARIANTS[1], "wrong numbers", catalogue=CATALOGUE, now=NOW)
    assert caught.value.advice == f"yank {NAME}"
    yank(root, "7.2", NAME, "wrong numbers", catalogue=CATALOGUE, now=NOW)
    for page in (pages, root / "variants" / PROJECT):
        yanked = {name: each["yanked"] for name, each in listed(page).items()}
        assert yanked == dict.fromkeys((NAME, *VARIANTS), "wrong numbers") | {ABOUT: False}
        links = Links(page / "index.html").links
        assert {links[name].get("data-yanked") for name in (NAME, *VARIANTS)} == {"wrong numbers"}
    assert check_index(root) == Found(())
    with pytest.raises(PublishError, match="a yanked file is not published again"):
        published(root, wheel)


# Checking


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (VARIANTS[0], b"other", "its record says"),
        (VARIANTS[1], None, "missing, though its record is there"),
        (f"{VARIANTS[0]}.metadata", b"other", "its record says"),
        (f"{VARIANTS[1]}.metadata", None, "missing, though its record is there"),
        (ABOUT, b"{}", "the page differs from the records"),
        (ABOUT, None, "the page is missing"),
        (f"../../variants/{PROJECT}/index.html", b"", "the page differs from the records"),
        ("../../../variants/index.json", None, "the page is missing"),
    ],
)
def test_each_fault_is_told_and_publishing_again_heals(wheel, root, folder, name, data, words):
    published(root, wheel)
    whole = files_of(root)
    if data is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data)
    [fault] = verify_index(root)
    assert fault.startswith(f"{(folder / name).resolve()}: ")
    assert words in fault
    page = "page" in words
    again = "scripts/wheel-builder index pages" if page else "changes nothing else, with --variants"
    assert fault.endswith(again)
    published(root, wheel, later=1)
    assert files_of(root) == whole


def test_of_variants_of_a_damaged_wheel_nothing_is_told(wheel, root, folder, tmp_path):
    published(root, wheel)
    (tmp_path / "2").mkdir()
    other = write_wheel(tmp_path / "2", good_files() | {"flash_attn_rocm/__init__.py": b"VALUE = 2\n"})
    shutil.copy(other, folder / NAME)
    [fault] = verify_index(root)
    assert fault.startswith(f"{folder / NAME}: sha256 is ")


def forge(folder, label, data):
    """Another content for a variant, with the index's hashes changed to match."""
    (folder / variant_name(NAME, label)).write_bytes(data)
    mark = beside(folder / NAME, ".variants.json")
    facts = json.loads(mark.read_bytes())
    facts["wheels"][label] = {
        "sha256": sha256_file(folder / variant_name(NAME, label)), "size": len(data)
    }  # fmt: skip
    mark.write_text(json.dumps(facts))


def test_a_variant_that_is_not_made_of_its_wheel_is_a_fault(wheel, root, folder, tmp_path):
    """Its hash matches the index, so installers accept it."""
    published(root, wheel)
    evil = good_files() | {
        "flash_attn_rocm/__init__.py": b"VALUE = 666\n",
        f"{DIST_INFO}/variant.json": variants_text({"null": ()}),
    }
    (tmp_path / "evil").mkdir()
    forge(folder, "null", write_wheel(tmp_path / "evil", evil).read_bytes())
    write_pages(root, CATALOGUE)
    faults = verify_index(root)
    assert faults
    head = f"{folder / VARIANTS[1]}: it is not {NAME} with variant.json: "
    assert all(fault.startswith(head) for fault in faults)
    assert any("flash_attn_rocm/__init__.py differs from the wheel's" in fault for fault in faults)
    assert all(fault.endswith("restore it from a copy of the index") for fault in faults)
    with pytest.raises(PublishError, match=r"is published with sha256 .*, but would have"):
        published(root, wheel)


def test_a_variant_for_other_gpus_than_the_record_names_is_a_fault(wheel, root, folder, tmp_path):
    published(root, wheel)
    published(tmp_path / "other", verified(write_wheel(tmp_path), {"gfx942": SHOWN}))
    other = tmp_path / "other/rocm7.2/simple" / PROJECT / VARIANTS[0]
    forge(folder, "amd_linux", other.read_bytes())
    write_pages(root, CATALOGUE)
    assert any("variant.json says something else" in fault for fault in verify_index(root))


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"},
        {"upload_time": "\x1b[2J"},
        {"wheels": {}},
        {"wheels": {"amd_linux": {"sha256": "0" * 64, "size": 1}}},
        {"wheels": {label: {"sha256": "0" * 64, "size": 1} for label in (*LABELS, "../../evil")}},
        {"wheels": {label: {"sha256": "0" * 64, "size": 0} for label in LABELS}},
        {"wheels": {label: {"sha256": '"><script>', "size": 1} for label in LABELS}},
        {"wheels": {label: {"sha256": "0" * 64, "size": "1"} for label in LABELS}},
        {"wheels": {label: {"sha256": "0" * 64, "size": 1, "more": 1} for label in LABELS}},
        {"more": 1},
    ],
)
def test_a_damaged_mark_is_said_and_nothing_is_written(wheel, root, folder, change):
    published(root, wheel)
    mark = beside(folder / NAME, ".variants.json")
    mark.write_text(json.dumps(json.loads(mark.read_bytes()) | change))
    [fault] = verify_index(root)
    assert fault.startswith(f"{mark}: what the index says of a wheel's variants cannot be read (")
    assert fault.endswith("restore it from a copy of the index")
    before = files_of(root)
    with pytest.raises(PublishError, match="cannot be read; nothing was changed"):
        published(root, wheel)
    assert files_of(root) == before


@pytest.mark.parametrize("archs", [{}, {"gfx11-generic": "executed"}])
def test_a_record_that_names_no_gpus_for_its_variants_is_damage(wheel, root, folder, archs):
    published(root, wheel)
    record = beside(folder / NAME, ".record.json")
    record.write_text(json.dumps(json.loads(record.read_bytes()) | {"verified": archs}))
    [fault] = verify_index(root)
    assert fault.startswith(f"{folder / NAME}.variants.json: ")
    assert "no record says which GPUs" in fault or "cannot be a value" in fault


def test_labels_that_contradict_each_other_are_a_fault(tmp_path, root):
    wheels = [
        public_wheel(tmp_path, PLATFORM), public_wheel(tmp_path, "manylinux_2_28_aarch64", {"gfx908": SHOWN})
    ]  # fmt: skip
    for number, wheel in enumerate(wheels):
        published(tmp_path / str(number), wheel, rocm="public")
        shutil.copytree(tmp_path / str(number), root, dirs_exist_ok=True)
    write_pages(root, CATALOGUE)
    assert any("would have the label amd_linux for different GPUs" in fault for fault in verify_index(root))


@pytest.mark.parametrize("name", [VARIANTS[0], f"{VARIANTS[1]}.metadata", f".{VARIANTS[0]}.part"])
def test_what_a_killed_publisher_leaves_is_no_fault(wheel, root, folder, name):
    published(root, wheel, variants=False)
    (folder / name).write_bytes(b"half")
    found = check_index(root)
    assert found.faults == ()
    assert len(found.leftovers) == 1
    published(root, wheel)
    assert check_index(root) == Found(())


def test_a_variant_of_no_wheel_is_a_fault(wheel, root, folder):
    published(root, wheel, variants=False)
    for name in ("x-null.whl", ABOUT):
        (folder / name).write_bytes(b"")
    assert [fault.partition(": ")[2] for fault in verify_index(root)] == [
        "no record knows it, it is not published; remove it"
    ] * 2


# A local index


def test_in_a_local_index_variants_go_with_a_replaced_wheel(tmp_path, root, folder):
    first = verified(write_wheel(tmp_path))
    published(root, first, to_others=False)
    (tmp_path / "2").mkdir()
    changed = good_files() | {"flash_attn_rocm/__init__.py": b"VALUE = 2\n"}
    second = verified(write_wheel(tmp_path / "2", changed), {"gfx942": SHOWN})
    published(root, second, to_others=False, variants=False)
    assert check_index(root) == Found(())
    assert list(listed(folder)) == [NAME]
    assert not [path for path in root.rglob("*") if "amd_linux" in path.name or path.name == ABOUT]
    assert not list(root.glob("**/variants/**/index.*"))
    published(root, second, to_others=False)
    assert gpus(folder) == ["gfx942"]
    third = verified(write_wheel(tmp_path), {"gfx1030": SHOWN})
    published(root, third, to_others=False)
    assert gpus(folder) == ["gfx1030"]
    assert check_index(root) == Found(())


def test_a_wheel_with_variants_keeps_them_once_others_have_the_index(tmp_path, root):
    published(root, verified(write_wheel(tmp_path)))
    kept = read_contents(root)
    changed = good_files() | {"flash_attn_rocm/__init__.py": b"VALUE = 2\n"}
    again = verified(write_wheel(tmp_path, changed))
    for to_others, why in ((True, "a published file never changes"), (False, "is not a local index")):
        with pytest.raises(PublishError, match=why):
            published(root, again, to_others=to_others)
    assert read_contents(root) == kept

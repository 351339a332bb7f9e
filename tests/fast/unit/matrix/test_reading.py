"""matrix.yaml: valid content, and the messages for invalid content."""

import contextlib
import copy
import json
import re
from pathlib import Path

import pytest
import yaml

from wheel_builder.base.errors import MatrixError
from wheel_builder.cli.main import error_text
from wheel_builder.matrix.document import MAX_BYTES
from wheel_builder.matrix.model import PUBLIC, Matrix
from wheel_builder.matrix.reading import Gpus, load_matrix
from wheel_builder.tables.archs import GPUS
from wheel_builder.tables.products import Product

REPOSITORY = Path(__file__).resolve().parents[4]

GOOD = """\
default_rocm: "7.2"
package:
  torch_floor: "2.10"
  torch_headers: "2.13.0"
  torch_headers_sha256: "{sha}"
  platform_tag: manylinux_2_28_x86_64
  max_wheel_mib: 12
rocm:
  - version: "7.2"
    provider: debian
    base: debian:sid-slim
    suite: sid
    packages:
      sid: [clang-22, lld-22]
      experimental: [hipcc]
    llvm: /usr/lib/llvm-22/bin
    archs: [gfx908, gfx1100]
  - version: "7.0"
    provider: vendor
    base: rocm/dev-ubuntu-24.04:7.0.2-complete
    llvm: /opt/rocm/llvm/bin
    archs: [gfx908]
    built_in_ci: false
    note: not tried
exclude:
  - {{rocm: "7.2", arch: gfx1100, reason: too slow}}
not_built:
  - archs: [gfx906]
    reason: none
upstream:
  version: "2.8.3"
  sha256: "{other}"
  archs: [gfx90a, gfx942]
public:
  built_with: "7.2"
  runtimes: ["7.2"]
  like:
    "7.2": ["7.14"]
""".format(sha="0123456789abcdef" * 4, other="fedcba9876543210" * 4)


# Two GPUs with kernels, one that runs the code of another, and one without.
PRODUCTS = [
    Product("gfx908", "MI100"),
    Product("gfx906", "MI50"),
    Product("gfx1100", "RX 7900 XTX"),
    Product("gfx1031", "RX 6700"),
]
GPUS_OF_TESTS = Gpus(
    {product.name: product for product in PRODUCTS},
    {"gfx908": "gfx908", "gfx1100": "gfx1100", "gfx1031": "gfx1100"},
    cdna=("gfx908",),
)


def load(tmp_path, text):
    path = tmp_path / "matrix.yaml"
    path.write_text(text, encoding="utf-8")
    return load_matrix(path, GPUS_OF_TESTS)


def problems(tmp_path, monkeypatch, *changes, text=GOOD):
    """The problems after ``(old, new)`` changes of the good file, without the file's name."""
    monkeypatch.chdir(tmp_path)
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the good file"
        text = text.replace(old, new)
    with pytest.raises(MatrixError) as caught:
        load(tmp_path, text)
    return [problem.removeprefix("matrix.yaml:") for problem in caught.value.problems]


@pytest.fixture
def refused(tmp_path, monkeypatch):
    return lambda *changes, **more: problems(tmp_path, monkeypatch, *changes, **more)


def test_the_repositorys_own_matrix_is_good():
    matrix = load_matrix(REPOSITORY / "matrix.yaml")
    assert matrix.default_rocm == PUBLIC
    assert [rocm.version for rocm in matrix.rocm if rocm.built_in_ci] == ["7.2", "6.4"]
    assert [(exclude.rocm, exclude.arch) for exclude in matrix.exclude] == [
        ("6.4", "gfx950"),
        ("6.4", "gfx906"),
        ("6.4", "gfx1010"),
        ("6.4", "gfx1012"),
    ]


def test_a_good_file_becomes_values(tmp_path):
    matrix = load(tmp_path, GOOD)
    assert matrix.package.max_wheel_mib == 12
    assert matrix.rocm[0].packages == (("sid", ("clang-22", "lld-22")), ("experimental", ("hipcc",)))
    assert matrix.rocm[0].built_in_ci
    assert not matrix.rocm[1].built_in_ci
    assert matrix.rocm[1].packages == ()
    assert matrix.exclude[0].arch == "gfx1100"
    hash(matrix)


def test_the_public_wheel_can_be_the_default(tmp_path):
    assert load(tmp_path, GOOD.replace('default_rocm: "7.2"', "default_rocm: public")).default_rocm == PUBLIC


def test_all_problems_at_once_in_the_order_of_lines(refused):
    found = refused(
        ('default_rocm: "7.2"', 'default_rocm: "7.3"'),
        ("max_wheel_mib: 12", "max_wheel_mib: heavy"),
        ("[gfx906]\n    reason: none", "[gfx906]"),
        ("archs: [gfx908]", "archs: [gfx98]"),
        ("provider: vendor", "provider: amd"),
        (", reason: too slow", ""),
    )
    assert found == [
        "1: default_rocm: unknown ROCm version '7.3': did you mean 7.2? known: 7.2, 7.0, public",
        "7: package.max_wheel_mib: expected a number, found 'heavy'",
        "19: rocm[1].provider: expected debian or vendor, found 'amd'",
        "22: rocm[1].archs[0]: unknown arch 'gfx98': did you mean gfx908? known: gfx908, gfx1100",
        "26: exclude[0]: key 'reason' is missing",
        "28: not_built[0]: key 'reason' is missing",
    ]


def test_the_title_counts_and_the_advice_says_where_to_look(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MatrixError) as caught:
        load(tmp_path, GOOD.replace("max_wheel_mib: 12", "max_wheel_mib: -1"))
    assert str(caught.value) == (
        "matrix.yaml: 1 problem\n"
        "  - matrix.yaml:7: package.max_wheel_mib: expected more than 0 and at most 1024, found -1\n"
        "  next: correct these lines; the comments at the top of matrix.yaml explain each key"
    )


NO_PACKAGE = "expected a Debian package such as clang-22 or hipcc=7.0.2-1"
NO_TEXT = "without quotes is not text to YAML (7.10 would become 7.1)"
ROW_KEYS = "version, provider, base, llvm, archs, suite, packages, built_in_ci, note"
KNOWN = ", ".join(GPUS_OF_TESTS.products)
TOP_KEYS = "default_rocm, package, rocm, exclude, upstream, public, not_built, addresses, tuning"

ONE_CHANGE = {
    "an unknown key": (
        ("    suite: sid\n", "    suite: sid\n    packagez: 1\n"),
        f"13: rocm[0].packagez: unknown key 'packagez': did you mean packages? known: {ROW_KEYS}",
    ),
    "an unknown key at the top": (
        ("exclude:\n", "excludes: []\nexclude:\n"),
        f"25: excludes: unknown key 'excludes': did you mean exclude? known: {TOP_KEYS}",
    ),
    "a key twice": (
        ("    suite: sid\n", "    suite: sid\n    suite: trixie\n"),
        "9: rocm[0]: key 'suite' stands twice: lines 12 and 13",
    ),
    "a version without quotes": (
        ('version: "7.0"', "version: 7.10"),
        f'18: rocm[1].version: 7.10 {NO_TEXT}: write "7.10"',
    ),
    "a whole number as a version": (
        ('torch_floor: "2.10"', "torch_floor: 2"),
        f'3: package.torch_floor: 2 {NO_TEXT}: write "2"',
    ),
    "a version with three parts": (
        ('torch_floor: "2.10"', 'torch_floor: "2.10.1"'),
        "3: package.torch_floor: expected a version such as \"7.2\", found '2.10.1'",
    ),
    "a release with two parts": (
        ('"2.13.0"', '"2.13"'),
        "4: package.torch_headers: expected a release such as \"2.13.0\", found '2.13'",
    ),
    "a digest with capitals": (
        ('"0123456789abcdef', '"0123456789ABCDEF'),
        "5: package.torch_headers_sha256: expected 64 lowercase hexadecimal digits, found '0123456789ABCDEF"
        + "0123456789abcdef" * 3
        + "'",
    ),
    "upstream without an arch": (
        ("archs: [gfx90a, gfx942]", "archs: []"),
        "33: upstream.archs: is empty; it needs at least one entry",
    ),
    "an arch of upstream's twice": (
        ("[gfx90a, gfx942]", "[gfx90a, gfx90a]"),
        "33: upstream.archs[1]: 'gfx90a' stands twice; the first is on line 33",
    ),
    "a name that is no arch of upstream's": (
        ("[gfx90a, gfx942]", "[native, gfx942]"),
        "33: upstream.archs[0]: expected an arch such as gfx1100, found 'native'",
    ),
    "another platform": (
        ("manylinux_2_28_x86_64", "linux_x86_64"),
        "6: package.platform_tag: expected a tag such as manylinux_2_28_x86_64, found 'linux_x86_64'",
    ),
    "a number in quotes": (
        ("max_wheel_mib: 12", 'max_wheel_mib: "12"'),
        "7: package.max_wheel_mib: expected a number, found '12'",
    ),
    "infinitely large": (
        ("max_wheel_mib: 12", "max_wheel_mib: 9e999"),
        "7: package.max_wheel_mib: expected a number, found '9e999'",
    ),
    "overflowing": (
        ("max_wheel_mib: 12", "max_wheel_mib: 9.0e+999"),
        "7: package.max_wheel_mib: expected more than 0 and at most 1024, found 9.0e+999",
    ),
    "no number": (
        ("max_wheel_mib: 12", "max_wheel_mib: 0x0C"),
        "7: package.max_wheel_mib: expected a number, found '0x0C'",
    ),
    "no value": (
        ("base: debian:sid-slim", "base:"),
        "11: rocm[0].base: expected text, found nothing",
    ),
    "text for a list": (
        ("archs: [gfx908]", "archs: gfx908"),
        "22: rocm[1].archs: expected a list, found 'gfx908'",
    ),
    "a list for text": (
        ("base: debian:sid-slim", "base: [a]"),
        "11: rocm[0].base: expected text, found a list",
    ),
    "text for keys": (
        ("    reason: none\n", "    reason: none\n  - gfx942\n"),
        "30: not_built[1]: expected keys with values, found 'gfx942'",
    ),
    "text for true or false": (
        ("built_in_ci: false", "built_in_ci: 'false'"),
        "23: rocm[1].built_in_ci: expected true or false, found 'false'",
    ),
    "packages as a list": (
        ("      sid: [clang-22, lld-22]\n      experimental: [hipcc]\n", "      - hipcc\n"),
        "13: rocm[0].packages: expected Debian suites, each with a list of packages, found a list",
    ),
    "a package that is a number": (
        ("experimental: [hipcc]", "experimental: [hipcc, 22]"),
        f'15: rocm[0].packages.experimental[1]: 22 {NO_TEXT}: write "22"',
    ),
    "a suite's packages as text": (
        ("experimental: [hipcc]", "experimental: hipcc"),
        "15: rocm[0].packages.experimental: expected a list, found 'hipcc'",
    ),
    "a suite with a strange name": (
        ("experimental: [hipcc]", '"x; rm": [hipcc]'),
        "15: rocm[0].packages.x; rm: expected the name of a Debian suite such as sid, found 'x; rm'",
    ),
    "a package with shell characters": (
        ("experimental: [hipcc]", "experimental: ['hipcc; reboot']"),
        f"15: rocm[0].packages.experimental[0]: {NO_PACKAGE}, found 'hipcc; reboot'",
    ),
    "an option for a package": (
        ("experimental: [hipcc]", "experimental: [--force-yes]"),
        f"15: rocm[0].packages.experimental[0]: {NO_PACKAGE}, found '--force-yes'",
    ),
    "an image with shell characters": (
        ("base: debian:sid-slim", "base: debian:$(reboot)"),
        "11: rocm[0].base: expected an image such as debian:sid-slim, found 'debian:$(reboot)'",
    ),
    "an image that is an option": (
        ("base: debian:sid-slim", "base: --privileged"),
        "11: rocm[0].base: expected an image such as debian:sid-slim, found '--privileged'",
    ),
    "a folder with a way out": (
        ("llvm: /usr/lib/llvm-22/bin", "llvm: /usr/lib/../bin"),
        "16: rocm[0].llvm: expected an absolute folder such as /usr/lib/llvm-22/bin, found '/usr/lib/../bin'",
    ),
    "a relative folder": (
        ("llvm: /usr/lib/llvm-22/bin", "llvm: llvm/bin"),
        "16: rocm[0].llvm: expected an absolute folder such as /usr/lib/llvm-22/bin, found 'llvm/bin'",
    ),
    "a terminal escape in a reason": (
        ("reason: too slow", 'reason: "\\e[2J"'),
        "26: exclude[0].reason: expected one line of text, found '\\x1b[2J'",
    ),
    "a blank reason": (
        ("reason: too slow", 'reason: " "'),
        "26: exclude[0].reason: expected one line of text, found ' '",
    ),
    "an empty list of archs": (
        ("archs: [gfx908]", "archs: []"),
        "22: rocm[1].archs: is empty; it needs at least one entry",
    ),
    "an empty list of packages": (
        ("experimental: [hipcc]", "experimental: []"),
        "15: rocm[0].packages.experimental: is empty; it needs at least one entry",
    ),
    "an arch twice": (
        ("archs: [gfx908]", "archs: [gfx908, gfx908]"),
        "22: rocm[1].archs[1]: 'gfx908' stands twice; the first is on line 22",
    ),
    "a ROCm version with a leading zero": (
        ('version: "7.0"', 'version: "7.01"'),
        "18: rocm[1].version: expected a version such as \"7.2\", found '7.01'",
    ),
    "a version twice": (
        (
            "exclude:\n",
            '  - {version: "7.0", provider: vendor, base: a, llvm: /b, archs: [gfx908]}\nexclude:\n',
        ),
        "25: rocm[2].version: '7.0' stands twice; the first is on line 18",
    ),
    "a package twice": (
        ("experimental: [hipcc]", "experimental: [lld-22]"),
        "15: rocm[0].packages.experimental[0]: 'lld-22' stands twice; the first is on line 14",
    ),
    "a newline at a name's end": (
        ("[gfx906]", '["gfx906\\n"]'),
        f"28: not_built[0].archs[0]: unknown arch 'gfx906\\n': did you mean gfx906? known: {KNOWN}",
    ),
    "an arch that is built and not built": (
        ("[gfx906]", "[gfx906, gfx908]"),
        "28: not_built[0].archs[1]: 'gfx908' is built on line 17; remove one",
    ),
    "an arch that is not built, twice": (
        ("    reason: none\n", "    reason: none\n  - {archs: [gfx906], reason: b}\n"),
        "30: not_built[1].archs[0]: 'gfx906' stands twice; the first is on line 28",
    ),
    "an arch that is not built, without a reason": (
        ("reason: none", 'reason: " "'),
        "29: not_built[0].reason: expected one line of text, found ' '",
    ),
    "no arch that is not built": (
        ("    reason: none\n", "    reason: none\n  - {archs: [], reason: b}\n"),
        "30: not_built[1].archs: is empty; it needs at least one entry",
    ),
    # Users of such a GPU found nothing about it on the page.
    "an arch that is neither built nor not built": (
        ("not_built:\n  - archs: [gfx906]\n    reason: none\n", ""),
        f"1: not_built: gfx906 of {GPUS} is neither built nor under not_built; add it there with the reason",
    ),
    "an arch without kernels": (
        ('exclude:\n  - {rocm: "7.2", arch: gfx1100', 'exclude:\n  - {rocm: "7.2", arch: gfx906'),
        f"26: exclude[0].arch: there are no kernels for 'gfx906': {GPUS} has no more than its names",
    ),
    "an arch with another one's code": (
        ("archs: [gfx908]", "archs: [gfx908, gfx1031]"),
        "22: rocm[1].archs[1]: 'gfx1031' runs the code of gfx1100; name that",
    ),
    "an unknown arch": (
        ("archs: [gfx908]", "archs: [gfx110]"),
        "22: rocm[1].archs[0]: unknown arch 'gfx110': did you mean gfx1100? known: gfx908, gfx1100",
    ),
    "an exclude of an unknown version": (
        ('{rocm: "7.2", arch', '{rocm: "5.7", arch'),
        "26: exclude[0].rocm: unknown ROCm version '5.7': known: 7.2, 7.0",
    ),
    "an exclude of an unknown arch": (
        ("arch: gfx1100", "arch: gfx1101"),
        "26: exclude[0].arch: unknown arch 'gfx1101': did you mean gfx1100? known: gfx908, gfx1100",
    ),
    "an exclude that matches nothing": (
        ('{rocm: "7.2", arch', '{rocm: "7.0", arch'),
        "26: exclude[0]: matches nothing: ROCm 7.0 is not built for gfx1100; remove it",
    ),
    "a public wheel of an unknown version": (
        ('built_with: "7.2"', 'built_with: "7.1"'),
        "35: public.built_with: unknown ROCm version '7.1': did you mean 7.2? known: 7.2, 7.0",
    ),
    "a public wheel without a runtime": (
        ('runtimes: ["7.2"]\n  like:\n    "7.2": ["7.14"]\n', "runtimes: []\n"),
        "36: public.runtimes: is empty; it needs at least one entry",
    ),
    "a runtime twice": (
        ('runtimes: ["7.2"]', 'runtimes: ["7.2", "7.2"]'),
        "36: public.runtimes[1]: '7.2' stands twice; the first is on line 36",
    ),
    "a runtime that is not built in CI": (
        ('runtimes: ["7.2"]', 'runtimes: ["7.0", "7.2"]'),
        "36: public.runtimes[0]: ROCm 7.0 is not built in CI; name another",
    ),
    "versions like one that is not loaded": (
        ('    "7.2": ["7.14"]', '    "7.0": ["7.14"]'),
        "38: public.like.7.0: unknown ROCm version in runtimes '7.0': did you mean 7.2? known: 7.2",
    ),
    "versions like another in a list": (
        ('    "7.2": ["7.14"]', '    - "7.14"'),
        "37: public.like: expected ROCm versions, each with a list of others, found a list",
    ),
    "a like version that is a number": (
        ('    "7.2": ["7.14"]', '    "7.2": [7.14]'),
        (
            "38: public.like.7.2[0]: 7.14 without quotes is not text to YAML (7.10 would become 7.1): "
            'write "7.14"'
        ),
    ),
    "a like version that is loaded": (
        ('    "7.2": ["7.14"]', '    "7.2": ["7.14", "7.2"]'),
        "38: public.like.7.2[1]: ROCm 7.2 stands twice among what the public wheel is for; keep one",
    ),
    # The public wheel was offered for ROCm versions without ever being loaded under their runtimes.
    "a like version that is older than the oldest": (
        ('    "7.2": ["7.14"]', '    "7.2": ["7.14", "6.3"]'),
        "38: public.like.7.2[1]: ROCm 6.3 is older than 7.2, under which the wheel is loaded first",
    ),
    "a Windows wheel with a GPU for data centres": (
        ('  runtimes: ["7.2"]', '  windows: [gfx908, gfx1100]\n  runtimes: ["7.2"]'),
        "36: public.windows[0]: gfx908 is for data centres, and no driver for Windows has it; remove it",
    ),
    "a default that is not built in CI": (
        ('default_rocm: "7.2"', 'default_rocm: "7.0"'),
        "1: default_rocm: ROCm 7.0 is not built in CI; name another",
    ),
    "a Debian row without suite": (
        ("    suite: sid\n", ""),
        "9: rocm[0]: key 'suite' is missing; provider debian installs ROCm from it",
    ),
    "a vendor row with packages": (
        ("    note: not tried\n", "    note: not tried\n    packages: {sid: [hipcc]}\n"),
        "25: rocm[1].packages: provider vendor brings its own ROCm; remove this key",
    ),
    "not built in CI, and nobody knows why": (
        ("    note: not tried\n", ""),
        "18: rocm[1]: built_in_ci is false without a 'note' with the reason",
    ),
}


@pytest.mark.parametrize(("change", "expected"), ONE_CHANGE.values(), ids=ONE_CHANGE.keys())
def test_one_mistake_gives_one_problem(refused, change, expected):
    assert refused(change) == [expected]


def test_a_default_that_is_excluded_and_what_rests_on_it(refused):
    where = "is excluded on line 26; name another"
    assert refused(('{rocm: "7.2", arch: gfx1100', '{rocm: "7.2"')) == [
        f"1: default_rocm: ROCm 7.2 {where}",
        f"35: public.built_with: ROCm 7.2 {where}",
        f"36: public.runtimes[0]: ROCm 7.2 {where}",
    ]


def test_a_public_wheel_loads_where_it_was_built(refused):
    row = '  - version: "6.4"\n    provider: vendor\n    base: x:6\n    llvm: /x\n    archs: [gfx908]\n'
    assert refused(("exclude:\n", f"{row}exclude:\n"), ('built_with: "7.2"', 'built_with: "6.4"')) == [
        "40: public.built_with: ROCm 6.4 is not among runtimes; a wheel loads where it was built"
    ]


SIX = '  - {version: "6.4", provider: vendor, base: "x:6", llvm: /x, archs: [gfx908]}\n'


def test_the_oldest_runtime_stands_first(refused):
    """Texts say that the wheel is for every version from the first one on."""
    two = ('runtimes: ["7.2"]', 'runtimes: ["7.2", "6.4"]')
    assert refused(("exclude:\n", f"{SIX}exclude:\n"), two) == [
        "37: public.runtimes: expected the oldest first: 6.4, 7.2"
    ]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("6.9", "has not the ABI of 7.2; write it under 6.4"),
        ("5.7", "is older than 6.4, under which the wheel is loaded first"),
        ("7.0", ""),
        ("10.0", ""),
    ],
)
def test_a_version_stands_under_a_runtime_of_its_abi(version, words, refused, tmp_path):
    changes = [
        ("exclude:\n", f"{SIX}exclude:\n"), ('runtimes: ["7.2"]', 'runtimes: ["6.4", "7.2"]'),
        ('["7.14"]', f'["7.14", "{version}"]'),
    ]  # fmt: skip
    if words:
        assert refused(*changes) == [f"39: public.like.7.2[1]: ROCm {version} {words}"]
        return
    text = GOOD
    for change in changes:
        text = text.replace(*change)
    (tmp_path / "matrix.yaml").write_text(text)
    assert version in load_matrix(tmp_path / "matrix.yaml", GPUS_OF_TESTS).public.fits


def test_a_like_version_that_is_excluded_is_none_for_users(refused):
    excluded = ("reason: too slow}", "reason: too slow}\n  - {rocm: '7.0', reason: no torch}")
    six = ("exclude:\n", f"{SIX}exclude:\n"), ('runtimes: ["7.2"]', 'runtimes: ["6.4", "7.2"]')
    assert refused(excluded, *six, ('["7.14"]', '["7.14", "7.0"]')) == [
        "40: public.like.7.2[1]: ROCm 7.0 is excluded on line 28; remove it"
    ]


def test_an_exclude_twice_is_named_at_both_places(refused):
    more = '  - {rocm: "7.0", reason: a}\n  - {rocm: "7.0", arch: gfx908, reason: b}\n'
    text = GOOD.replace("not_built:\n", f"{more}not_built:\n")
    assert refused(
        ("reason: too slow}", "reason: too slow}\n  - {rocm: '7.2', arch: gfx1100, reason: c}"), text=text
    ) == [
        "26: exclude[0]: ROCm 7.2 gfx1100 is excluded twice; keep one",
        "27: exclude[1]: ROCm 7.2 gfx1100 is excluded twice; keep one",
        "29: exclude[3]: ROCm 7.0 gfx908 is excluded twice; keep one",
    ]


def test_an_unquoted_version_is_still_known_to_other_rows(refused):
    found = refused(('  - version: "7.2"', "  - version: 7.2"))
    assert len(found) == 1
    assert "without quotes" in found[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: expected keys with values, found nothing"),
        ("- 1\n", "1: expected keys with values, found a list"),
        ("7.2\n", "1: expected keys with values, found 7.2"),
        ("[a]: 1\n", "1: line 1: a key must be a plain word"),
    ],
)
def test_no_mapping_at_the_top(refused, text, expected):
    assert expected in refused(text=text)


@pytest.mark.parametrize(
    ("text", "title", "problem"),
    [
        ("a: [1\nb: 2\n", "not YAML", "2:2: did not find expected ',' or ']'"),
        ("a: 1\n---\nb: 1\n", "not YAML", "2:1: but found another document"),
        ("a: &x [1]\nb: *x\n", "not allowed", "1: anchors and aliases; repeat the value"),
        ("a: 1\nb: *x\n", "not allowed", "2: anchors and aliases; repeat the value"),
        (
            "a: !!python/name:os.system x\n",
            "not allowed",
            "1: the tag tag:yaml.org,2002:python/name:os.system; remove it",
        ),
        ("a: " + "[" * 5000 + "\n", "not allowed", "1: more than 8 levels"),
        ("#" * MAX_BYTES + "\n", "too large", "it may have 64 KiB"),
    ],
)
def test_yaml_that_is_not_read_at_all(tmp_path, monkeypatch, text, title, problem):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MatrixError) as caught:
        load(tmp_path, text)
    assert caught.value.message.startswith(f"matrix.yaml: {title}\n")
    assert [found.removeprefix("matrix.yaml:") for found in caught.value.problems] == [problem]


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "matrix.yaml"
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(MatrixError, match="not UTF-8\n  - byte 3 is no text"):
        load_matrix(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MatrixError, match=r"matrix\.yaml: cannot be read\n  - No such file or directory"):
        load_matrix(tmp_path / "matrix.yaml")


GOOD_DATA = yaml.safe_load(GOOD)
STRANGE = [None, 7.1, [], {}, [[None]], {"sid": [["a"]]}, "\ud800"]


def keys_below(value, key=()):
    yield key
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, child in items:
        yield from keys_below(child, (*key, part))


@pytest.mark.parametrize("key", list(keys_below(GOOD_DATA)), ids=repr)
def test_whatever_stands_anywhere_is_taken_or_refused_in_words(tmp_path, key):
    for strange in STRANGE:
        changed = {"": copy.deepcopy(GOOD_DATA)}
        inner = changed
        *path, last = ("", *key)
        for part in path:
            inner = inner[part]
        inner[last] = strange
        # JSON is YAML, and writes a lone surrogate as an escape.
        with contextlib.suppress(MatrixError):
            assert isinstance(load(tmp_path, json.dumps(changed[""])), Matrix)


@pytest.mark.parametrize(
    "text", ['a: "\\U00110000"\n', 'a: "\\uD800"\n', 'a: "\\UFFFFFFFF"\n', '"\\U00110000": 1\n']
)
def test_an_escape_beyond_unicode_is_told_in_words(tmp_path, text):
    """YAML's pure Python loader ends with a ValueError. We use libyaml, which explains the error."""
    with pytest.raises(MatrixError, match=r"matrix\.yaml: not YAML\n  - "):
        load(tmp_path, text)


@pytest.mark.parametrize("escape", ["\\e[2J", "\\u202e", "\\u2066", "\\x9b", "\\u200f", "\\L"])
@pytest.mark.parametrize("key", ["reason: none", "reason: too slow"])
def test_text_that_changes_a_terminal_is_refused(refused, key, escape):
    name, _, value = key.partition(": ")
    [problem] = refused((key, f'{name}: "{value}{escape}"'))
    assert "expected one line of text, found " in problem
    assert problem.isprintable()


def test_no_raw_escape_or_bidi_character_reaches_the_terminal(tmp_path):
    """Names in messages come from the file unchanged."""
    for text in ('"\\e[2Jkey": 1\n', '"\\u202ekey": 1\n', '? "\\e]0;title\\a"\n: 1\n', "a: !<\\e[2J> 1\n"):
        with pytest.raises(MatrixError) as caught:
            load(tmp_path, text)
        shown = error_text(caught.value)
        assert all(line.isprintable() for line in shown.split("\n")), shown


ADDRESSES = """addresses:
  repository: "https://github.com/owner/flash-attn-rocm"
  issues: "https://github.com/owner/flash-attn-rocm/issues"
  index: "https://owner.example/index"
  security: "mailto:security@owner.example"
"""


def test_addresses_stand_in_one_table(tmp_path):
    (tmp_path / "matrix.yaml").write_text(GOOD + ADDRESSES)
    found = load_matrix(tmp_path / "matrix.yaml", GPUS_OF_TESTS).addresses
    assert found.of_github == "owner/flash-attn-rocm"
    assert found.reports == ": https://github.com/owner/flash-attn-rocm/issues"
    (tmp_path / "matrix.yaml").write_text(GOOD)
    none = load_matrix(tmp_path / "matrix.yaml", GPUS_OF_TESTS).addresses
    assert (none.of_github, none.reports) == ("OWNER/REPOSITORY", " (no address for reports is public yet)")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repository", "javascript:alert(1)"), ("index", "https://user@host/x"), ("issues", "http://host/x"),
        ("security", "mailto:a b"), ("index", "https://host/\\u202e"),
    ],
)  # fmt: skip
def test_an_address_is_plain(name, value, refused):
    text = GOOD + re.sub(rf'{name}: ".*"', lambda _: f'{name}: "{value}"', ADDRESSES)
    [problem] = refused(text=text)
    assert f": addresses.{name}: " in problem


def test_the_archs_whose_candidates_a_release_makes_are_those_of_code(tmp_path):
    assert load(tmp_path, GOOD).tuning == ()
    assert load(tmp_path, f"{GOOD}tuning: [gfx908]\n").tuning == ("gfx908",)
    with pytest.raises(MatrixError, match="'gfx1031' runs the code of gfx1100; name that"):
        load(tmp_path, f"{GOOD}tuning: [gfx1031]\n")
    with pytest.raises(MatrixError, match="gfx908"):
        load(tmp_path, f"{GOOD}tuning: [gfx908, gfx908]\n")

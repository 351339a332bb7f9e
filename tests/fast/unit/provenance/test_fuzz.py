"""Any statement, SBOM or record gets an answer in words, never a traceback."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fast.unit.provenance.test_provenance import TREE, made, wheel  # noqa: F401  fixtures
from tests.tools.made.documents import changed, places
from tests.tools.made.wheels import MATERIALS, VERSION
from wheel_builder.audit import sbom as sbom_check
from wheel_builder.base.errors import ProvenanceError
from wheel_builder.build.sbom import FILE, sbom
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.provenance.attest import Facts
from wheel_builder.provenance.check import provenance_problems
from wheel_builder.provenance.provenance import parse_provenance
from wheel_builder.provenance.rebuild import image_words, obstacles, pin_packages
from wheel_builder.provenance.records import (
    Demand,
    arch_problems,
    record_path,
    record_problems,
    statement_problems,
)
from wheel_builder.provenance.verification import read_verification

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
DEEP = b"[" * 100_000
BYTES = st.binary(max_size=40) | st.just(DEEP) | st.just(b'{"a":' * 100_000)
SOUND_SBOM = sbom(MATERIALS)


def variant(draw, document):
    """A sound document with one to three faults."""
    for _ in range(draw(st.integers(1, 3))):
        document = changed(document, draw(st.sampled_from(list(places(document)))), draw(VALUES))
    return json.dumps(document).encode()


def facts(wheel_file, document):
    return Facts(
        wheel=wheel_file, archs=frozenset(),
        sbom=document, record_name="r", record_sha256="1", record="2", tree=TREE,
        code={}, remotes=("https://forge.invalid/o/r",), now=datetime.now(UTC),
    )  # fmt: skip


@FUZZ
@given(data=st.data())
def test_any_statement_is_read_or_refused_in_words(wheel, made, data):  # noqa: F811
    text = variant(data.draw, json.loads(made.to_json()))
    file = read_wheel(wheel, max_mib=64)
    said = list(statement_problems(text, wheel, file.sha256, ""))
    assert all(each.startswith(f"{wheel.name}.provenance.json: ") for each in said)
    try:
        found = parse_provenance(text, "a")
    except ProvenanceError:
        return
    assert all(
        isinstance(each, str)
        for each in provenance_problems(found, facts(file, json.dumps(SOUND_SBOM).encode()))
    )
    assert all(isinstance(each, str) for each in obstacles(found, file, ""))
    assert image_words(found, {"image_id": "sha256:0", "packages": {}})
    assert pin_packages("rocm: []\n", found.rocm, found.packages) == "rocm: []\n"


@FUZZ
@given(data=BYTES)
def test_any_bytes_are_no_statement(data):
    with pytest.raises(ProvenanceError):
        parse_provenance(data, "a")


def sbom_words(data):
    return list(
        sbom_check.sbom_problems({FILE: data}, version=VERSION, torch=MATERIALS.torch, compilers={"22.1.8"})
    )


def test_the_sound_sbom_has_no_problem():
    assert sbom_words(json.dumps(SOUND_SBOM).encode()) == []


@FUZZ
@given(data=st.data())
def test_any_sbom_is_read_or_refused_in_words(wheel, made, data):  # noqa: F811
    text = variant(data.draw, SOUND_SBOM)
    assert all(isinstance(each, str) for each in sbom_words(text))
    file = read_wheel(wheel, max_mib=64)
    assert all(isinstance(each, str) for each in provenance_problems(made, facts(file, text)))


@FUZZ
@given(data=BYTES)
@example(DEEP)
def test_any_bytes_are_no_sbom(data):
    """A deeply nested one ended with a RecursionError."""
    [problem] = sbom_words(data)
    assert problem.startswith(f"{FILE} cannot be read: ")


@FUZZ
@given(data=VALUES.map(lambda value: json.dumps(value).encode()) | BYTES)
def test_any_record_is_refused_in_words(wheel, data):  # noqa: F811
    record_path(wheel).write_bytes(data)
    [problem] = record_problems(wheel, Demand(["gfx908"], ["7.1"]))
    assert problem.startswith(f"{wheel.name}.verification.json: ")


@FUZZ
@given(
    shown=VALUES
    | st.fixed_dictionaries({"numerics": st.text(), "findings": VALUES, "passed": VALUES, "launches": VALUES})
)
def test_whatever_a_record_shows_of_an_arch_is_answered_in_words(shown):
    data = json.dumps({"sha256": "a", "archs": {"gfx908": shown}}).encode()
    try:
        found = read_verification(data)
    except ValueError:
        return
    assert all(isinstance(each, str) for each in arch_problems("gfx908", found))

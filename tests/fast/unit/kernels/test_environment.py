"""The package's environment variables: their accepted values, as listed in docs/."""

import re

import pytest

from tests.conftest import CHECKOUT
from tests.fast.unit.kernels.test_screens import package  # noqa: F401 - a fixture

PAGE = CHECKOUT / "docs/on-your-gpu.md"
SOURCES = sorted((CHECKOUT / "kernels/python/flash_attn_rocm").rglob("*.py"))


@pytest.fixture
def environment(package):  # noqa: F811
    return package("machine.environment")


def test_the_page_lists_each_with_its_values(environment):
    rows = re.findall(r"^\| `(FLASH_ATTN_ROCM_\w+)` \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == list(environment.ACCEPTED)
    for name, values in rows:
        without_notes = re.sub(r" \(.*?\)", "", values)
        assert tuple(without_notes.split(", ")) == environment.ACCEPTED[name]


def test_every_variable_that_the_package_names_is_known(environment):
    named = {name for file in SOURCES for name in re.findall(r"FLASH_ATTN_ROCM_[A-Z]+", file.read_text())}
    assert named <= set(environment.ACCEPTED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STRICT", "1"), ("STRICT", ""), ("STRICT", "TRUE"), ("CANARY", "off"), ("BACKWARD", "fused"),
        ("BACKWARD", "split"), ("BACKWARD", ""),
    ],
)  # fmt: skip
def test_what_is_accepted(environment, name, value):
    assert environment.problem(f"FLASH_ATTN_ROCM_{name}", value) == ""


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("STRICT", "2", "expected 0, 1 or nothing, got '2'\n  next: unset it, or set it to 0 or 1"),
        ("CANARY", "never", "expected 0, 1 or nothing, got 'never'\n  next: unset it, or set it to 0 or 1"),
        (
            "BACKWARD", "Split",
            (
                "expected separate, fused or nothing, got 'Split'\n"
                "  next: unset it, or set it to separate or fused"
            ),
        ),
        (
            "STRIKT", "1",
            (
                "expected one of FLASH_ATTN_ROCM_STRICT, FLASH_ATTN_ROCM_CANARY, FLASH_ATTN_ROCM_BACKWARD; "
                "FLASH_ATTN_ROCM_STRICT may be meant\n  next: unset it"
            ),
        ),
    ],
)  # fmt: skip
def test_what_is_not(environment, name, value, words):
    name = f"FLASH_ATTN_ROCM_{name}"
    assert environment.problem(name, value) == f"{name}: {words}"
    with pytest.raises(ValueError, match="expected"):
        environment.refuse(name, value)


@pytest.mark.parametrize(
    ("value", "default", "found"),
    [("", True, True), ("", False, False), ("Off", True, False), ("1", False, True)],
)
def test_a_switch(environment, monkeypatch, value, default, found):
    monkeypatch.setenv(environment.CANARY, value)
    assert environment.switch(environment.CANARY, default=default) is found


def test_an_unknown_value_is_no_switch(environment, monkeypatch):
    """FLASH_ATTN_ROCM_CANARY=never left the check on, without a message."""
    monkeypatch.setenv(environment.CANARY, "never")
    with pytest.raises(ValueError, match="FLASH_ATTN_ROCM_CANARY: expected 0, 1 or nothing, got 'never'"):
        environment.switch(environment.CANARY, default=True)

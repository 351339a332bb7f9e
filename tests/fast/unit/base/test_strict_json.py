"""JSON has one value for all readers, or is refused with a message."""

import pytest

from wheel_builder.base.strict_json import read_json


def test_what_is_sound_is_read():
    assert read_json(b'{"a": [1, 2.5, "caf\xc3\xa9", null, true]}') == {"a": [1, 2.5, "café", None, True]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": 1, "a": 2}', "the key 'a' is in it twice"),
        (b'[{"b": {"a": 1, "a": 1}}]', "the key 'a' is in it twice"),
        (b"[NaN]", "NaN is not a number that JSON has"),
        (b"[-Infinity]", "-Infinity is not a number that JSON has"),
        (b"[1e999]", "1e999 is not a number that JSON has"),
        (b'"caf\xe9"', "not UTF-8: byte 4 is no text"),
        (b'"caf\\udce9"', "it has U\\+DCE9, half of a character"),
        (b'{"\\ud800": 1}', "it has U\\+D800, half of a character"),
        (b"[" * 100_000, "its values are nested too deeply"),
        (b"[1" + b"0" * 5000 + b"]", "Exceeds the limit"),
        (b"{", "not JSON: "),
        (b"", "not JSON: "),
    ],
)
def test_what_readers_could_read_differently_is_refused(data, words):
    with pytest.raises(ValueError, match=words):
        read_json(data)

"""Strict JSON for untrusted input: texts with more than one possible reading are refused."""

import json
from typing import Any, NoReturn


def read_json(data: bytes) -> Any:  # noqa: ANN401 - whatever the text holds
    """The value of a UTF-8 text. Raises ``ValueError`` with a readable message.

    Refused: repeated keys in one object, NaN and infinities, surrogates, nesting beyond the stack.
    """
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte {error.start} is no text"
        raise ValueError(message) from error
    except UnicodeEncodeError as error:
        message = f"it has U+{ord(error.object[error.start]):04X}, half of a character"
        raise ValueError(message) from error
    except json.JSONDecodeError as error:
        message = f"not JSON: {error}"
        raise ValueError(message) from error
    except RecursionError as error:
        message = "its values are nested too deeply"
        raise ValueError(message) from error
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        message = f"the key {next(key for key in keys if keys.count(key) > 1)!r} is in it twice"
        raise ValueError(message)
    return found


def _no_number(text: str) -> NoReturn:
    message = f"{text} is not a number that JSON has"
    raise ValueError(message)


def _finite(text: str) -> float:
    if (value := float(text)) in (float("inf"), float("-inf")):
        _no_number(text)
    return value

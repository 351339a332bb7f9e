"""HTML that escapes by construction: text and attribute values are always escaped, elements never twice."""

import html


class Html(str):
    """Text that is HTML already; only ``element`` and ``joined`` make it from checked parts."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | bool) -> Html:
    """``<name attributes>children</name>``.

    A child that is not ``Html`` is escaped.  ``for_`` stands for the attribute ``for``, ``data_x`` for
    ``data-x``; True gives the bare attribute, False none.
    """
    start = name + "".join(_attribute(key, value) for key, value in attributes.items() if value is not False)
    return Html(f"<{start}>{joined(*children)}</{name}>")


def void(name: str, /, **attributes: str) -> Html:
    """A void element, such as ``<meta>``."""
    return Html(f"<{name}" + "".join(_attribute(key, value) for key, value in attributes.items()) + ">")


def joined(*parts: str) -> Html:
    """The parts concatenated, each escaped unless it is ``Html``."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))


def _attribute(key: str, value: str | bool) -> str:  # noqa: FBT001
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'

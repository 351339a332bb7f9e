"""HTML that escapes by construction: text and attribute values always once, elements never."""

import html


class Html(str):
    """Finished HTML. Only ``element`` and ``joined`` make it from checked parts."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | bool) -> Html:
    """``<name attributes>children</name>``.

    All children except ``Html`` are escaped. ``for_`` means the attribute ``for``, ``data_x`` means
    ``data-x``.
    True gives the bare attribute, False omits it.
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

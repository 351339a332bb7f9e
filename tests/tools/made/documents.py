"""JSON documents with one value changed."""

import copy


def places(value, so_far=()):
    """The path of everything in a document, itself included."""
    yield so_far
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from places(inner, (*so_far, key))


def changed(document, place, value):
    """The document with ``value`` in one place."""
    if not place:
        return value
    document = copy.deepcopy(document)
    inside = document
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    return document

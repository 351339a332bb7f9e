"""Stand-ins of other packages' ``flash_attn_func``, with the signatures that these published.

``peers.json`` was read from flash-attn's source distribution, whose Triton kernels have the same function,
from the wheel of amd-aiter, and from aiter's repository.
"""

import ast
import inspect
import json
from pathlib import Path

SIGNATURES = json.loads(Path(__file__).with_name("peers.json").read_text())
FLASH_ATTN, AITER, OLDER_AITER = SIGNATURES


def signature_of(peer):
    def parameter(words):
        name, given, default = words.partition("=")
        value = ast.literal_eval(default) if given else inspect.Parameter.empty
        return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=value)

    return inspect.Signature([*map(parameter, SIGNATURES[peer])])


def stand_in(peer, answer):
    """A function that takes what the peer's does, and returns ``answer`` of its arguments by name."""
    signature = signature_of(peer)

    def flash_attn_func(*positional, **named):
        bound = signature.bind(*positional, **named)
        bound.apply_defaults()
        return answer(**bound.arguments)

    flash_attn_func.__signature__ = signature
    return flash_attn_func

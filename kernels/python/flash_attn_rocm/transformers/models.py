"""transformers' checks of models before they use an attention implementation.

transformers decides by "flash" in the implementation's name. It reserves such names for kernels of its hub.
So ``install`` extends two functions of transformers to our names:

* ``PreTrainedModel.get_correct_attn_implementation``, called for every new model: it raises an error for
  unsupported models, and for models bypassing these kernels.
* ``is_flash_attention_requested(config)``: models with flash attention support then make the same calls as
  for flash_attention_2, such as one call of variable length for all images.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Hashable, Iterator
from types import ModuleType

from torch import nn

from flash_attn_rocm.values.given import Given
from flash_attn_rocm.values.tracing import constant_when_traced

# Modules asking about masks (ours), or about paged caches (unsupported).
LEFT_ALONE = ("transformers.masking_utils", "transformers.generation.continuous_batching")
REQUESTED = "is_flash_attention_requested"


class _State:
    names: set[str] = set()  # noqa: RUF012 - the one instance is the class
    installed = False


def install(name: str) -> None:
    """Extend transformers' checks of models to this name."""
    _State.names.add(name)
    if _State.installed:
        return
    models, generic = _transformers("modeling_utils"), _transformers("utils.generic")
    _ask_when_made(models.PreTrainedModel)
    if hasattr(generic, REQUESTED):
        _ask_for_our_names(getattr(generic, REQUESTED))
    _State.installed = True


def supports_flash(config: Given) -> bool | None:
    """Whether the models of a config's class claim flash attention support.

    None for a config class without models, or the config None.
    """
    return None if config is None else _of_kind(type(config))


def reads_patterns(config: Given) -> bool | None:
    """``supports_flash``, but True for chunked layers: Llama 4 claims no support because of them."""
    return True if "chunked_attention" in layer_types(config) else supports_flash(config)


def layer_types(config: Given) -> list[str]:
    """The kind of attention of each layer, or an empty list if the config lacks it."""
    return list(getattr(config, "layer_types", None) or [])


@constant_when_traced
def _of_kind(kind: Given) -> bool | None:
    # torch.compile takes a class for a constant, and a config only since 2.12.
    return _supports_flash(kind)


@functools.cache
def _supports_flash(kind: Hashable) -> bool | None:
    base = _transformers("modeling_utils").PreTrainedModel
    found = [
        _says(each, "flash_attn") for each in _heirs(base) if getattr(each, "config_class", None) is kind
    ]
    return all(found) if found else None


def _says(model: type, what: str) -> bool:
    return bool(getattr(model, f"_supports_{what}", False) or getattr(model, f"_supports_{what}_2", False))


def _heirs(kind: type) -> Iterator[type]:
    heirs: list[type] = kind.__subclasses__()
    for each in heirs:
        yield each
        yield from _heirs(each)


def _transformers(name: str) -> ModuleType:
    return importlib.import_module(f"transformers.{name}")


def _ask_when_made(base: Given) -> None:
    original = base.get_correct_attn_implementation

    @functools.wraps(original)
    def corrected(model: Given, requested: str | None, *arguments: Given, **named: Given) -> str:
        if requested in _State.names and (reason := unserved(type(model), requested)):
            message = (
                f"{type(model).__name__} does not run with attn_implementation={requested!r}: {reason}\n"
                f"  next: {_instead(type(model))}"
            )
            raise ValueError(message)
        found: str = original(model, requested, *arguments, **named)
        return found

    base.get_correct_attn_implementation = corrected


def unserved(model: type, name: str) -> str:
    """The reason against the attention implementation ``name`` in models of this class, or ""."""
    if table := _own_table(model, name):
        return f"its own table of attention classes, {table}, lacks {name!r}"
    if not _says(model, "flash_attn") and not _says(model, "sdpa"):
        return "it supports neither flash attention nor sdpa (_supports_flash_attn, _supports_sdpa)"
    return ""


def _own_table(model: type, name: str) -> str:
    """The dict of attention classes in the model's module without ``name``, or ""."""
    for table, found in vars(sys.modules.get(model.__module__, object)).items():
        if isinstance(found, dict) and "eager" in found and name not in found:
            kinds = [isinstance(each, type) and issubclass(each, nn.Module) for each in found.values()]
            if all(kinds):
                return table
    return ""


def _instead(model: type) -> str:
    others = ["'eager'", *(["'sdpa'"] if _says(model, "sdpa") else [])]
    found = f"load it with attn_implementation={' or '.join(others)}"
    if _says(model, "flash_attn"):
        found += ", or install the distribution flash-attn and use 'flash_attention_2'"
    return found


def _ask_for_our_names(original: Callable[..., bool]) -> None:
    @functools.wraps(original)
    def requested(config: Given = None, *arguments: Given, **named: Given) -> bool:
        if config is not None and not arguments and not any(named.values()):
            name = getattr(config, "_attn_implementation", None)
            if isinstance(name, str) and name in _State.names:
                return bool(supports_flash(config))
        return original(config, *arguments, **named)

    for name, module in list(sys.modules.items()):
        ours = name.startswith("transformers.") and not name.startswith(LEFT_ALONE)
        if ours and vars(module).get(REQUESTED) is original:
            setattr(module, REQUESTED, requested)

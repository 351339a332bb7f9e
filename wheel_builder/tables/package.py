"""Modules of the Python package independent of PyTorch, loaded from the checkout.

Importing ``flash_attn_rocm`` itself needs PyTorch, and the pipeline's tools do not include it.
"""

import importlib.util
from types import ModuleType

from wheel_builder.tables.archs import CHECKOUT

PACKAGE = CHECKOUT / "kernels/python/flash_attn_rocm"


def package_module(name: str) -> ModuleType:
    """A module without imports from the package, by its dotted name in it, such as ``values.tolerances``."""
    spec = importlib.util.spec_from_file_location(name, PACKAGE / f"{name.replace('.', '/')}.py")
    assert spec is not None
    assert spec.loader is not None, "it is a file of Python"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

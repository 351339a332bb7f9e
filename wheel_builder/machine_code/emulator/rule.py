"""The package's numerics rule, also used by its check at first use."""

from typing import TYPE_CHECKING

from wheel_builder.tables.package import package_module

if TYPE_CHECKING:
    from flash_attn_rocm.values import tolerances
else:
    tolerances = package_module("values.tolerances")

__all__ = ["tolerances"]

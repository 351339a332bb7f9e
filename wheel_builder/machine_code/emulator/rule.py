"""The numerics rule, which the package has: the check at first use holds kernels to it as well."""

from typing import TYPE_CHECKING

from wheel_builder.tables.package import package_module

if TYPE_CHECKING:
    from flash_attn_rocm.values import tolerances
else:
    tolerances = package_module("values.tolerances")

__all__ = ["tolerances"]

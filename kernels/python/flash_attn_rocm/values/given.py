"""The type of values that others give: arguments before they are checked, and objects of other libraries."""

from typing import Any, TypeAlias

Given: TypeAlias = Any

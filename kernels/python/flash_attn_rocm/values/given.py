"""The type of values from outside: unchecked arguments, and objects of other libraries."""

from typing import Any, TypeAlias

Given: TypeAlias = Any

"""Checks of arguments before the extension converts them."""

import operator
from typing import Any


def read_integer(name: str, value: Any, least: int = 0, end: int = 1 << 63) -> int:
    """Returns an integer. Raises TypeError if it is none, and ValueError unless it is from `least` to `end` - 1."""
    if not isinstance(value, int):  # torch.compile treats operator.index() as a constant
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if value >= end:
        raise ValueError(f"{name} must be less than {end}, not {value}")
    return value

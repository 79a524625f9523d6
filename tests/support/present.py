"""What has to be there, for types that say that it may be missing."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def there(value: Value | None) -> Value:
    assert value is not None
    return value

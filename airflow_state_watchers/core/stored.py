"""Reading single stored values. What cannot be read is said, with its place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

T = TypeVar("T")


class Unreadable(ValueError):
    """A stored value cannot be read. The text says which part and why."""


def load_time(text: str, where: str) -> datetime:
    try:
        value = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
        if value.tzinfo is not None:
            return value.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise Unreadable(f'{where} is {text!r}; write a time such as "2026-01-31T12:00:00+00:00"') from None
    raise Unreadable(f'{where} is {text!r} and has no time zone; add "+00:00" for UTC')


def field_of(stored: Any, key: str, kind: type[T] | tuple[type[T], ...]) -> T:
    """Return a field of the kind that it must have."""
    value = stored.get(key) if isinstance(stored, Mapping) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Unreadable(f"the root is not complete ({key} is {value!r}); delete the key to reset")
    return value


def names_of(stored: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return those of a field's elements that are names."""
    names = stored.get(key, [])
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()

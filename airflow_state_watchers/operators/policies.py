"""What an operator's class says about its job, checked and in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from airflow_state_watchers.core.resume import OnClear
from airflow_state_watchers.exceptions import JobError

Seconds: TypeAlias = float | timedelta


@dataclass(frozen=True, slots=True)
class Policies:
    on_clear: OnClear
    cancel_on_kill: bool
    max_resubmits: int
    status_interval: float
    status_timeout: float | None
    adopt_wait: float
    wait: Literal["poll", "reschedule"]


def policies_of(operator: Any) -> Policies:
    """Read an operator's policies. Raises :class:`JobError` that names the one that is wrong."""
    return Policies(**{name: _read(operator, name) for name in _POLICIES})


def check_policies(cls: type) -> None:
    """Check what a class says, as far as that is known yet: a property is asked only of an instance."""
    for name in _POLICIES:
        if not hasattr(getattr(cls, name), "__get__"):
            _read(cls, name)


def _read(owner: Any, name: str) -> Any:
    value = getattr(owner, name)
    read, wanted = _POLICIES[name]
    try:
        return read(value)
    except (TypeError, ValueError):
        cls = owner if isinstance(owner, type) else type(owner)
        raise JobError(f"{cls.__name__}.{name} = {value!r}: give {wanted}") from None


def _one_of(*choices: str) -> tuple[Callable[[Any], Any], str]:
    def read(value: Any) -> Any:
        if value not in choices:
            raise ValueError
        return value

    return read, " or ".join(map(repr, choices))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _seconds(value: Any) -> float:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number) or number < 0:
        raise ValueError
    return float(number)


_DURATION = "seconds or a timedelta of at least zero"
_POLICIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "on_clear": _one_of("rerun", "reuse"),
    "cancel_on_kill": (_flag, "True or False"),
    "max_resubmits": (_count, "a whole number of at least 0"),
    "status_interval": (_seconds, _DURATION),
    "status_timeout": (lambda value: None if value is None else _seconds(value), f"{_DURATION}, or None"),
    "adopt_wait": (_seconds, _DURATION),
    "wait": _one_of("poll", "reschedule"),
}

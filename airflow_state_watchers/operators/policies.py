"""What an operator's class says about its job, checked and in seconds."""

from __future__ import annotations

import math
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
    """Read the policies of an operator or of its class. Raises :class:`JobError` that names the one that is wrong."""
    return Policies(
        on_clear=_choice(operator, "on_clear", ("rerun", "reuse")),
        cancel_on_kill=_checked(operator, "cancel_on_kill", isinstance(operator.cancel_on_kill, bool), "True or False"),
        max_resubmits=_checked(
            operator,
            "max_resubmits",
            type(operator.max_resubmits) is int and operator.max_resubmits >= 0,
            "a whole number of at least 0",
        ),
        status_interval=_seconds(operator, "status_interval"),
        status_timeout=None if operator.status_timeout is None else _seconds(operator, "status_timeout"),
        adopt_wait=_seconds(operator, "adopt_wait"),
        wait=_choice(operator, "wait", ("poll", "reschedule")),
    )


def _checked(operator: Any, name: str, right: bool, wanted: str) -> Any:
    value = getattr(operator, name)
    if not right:
        owner = operator if isinstance(operator, type) else type(operator)
        raise JobError(f"{owner.__name__}.{name} = {value!r}: give {wanted}")
    return value


def _choice(operator: Any, name: str, choices: tuple[str, ...]) -> Any:
    return _checked(operator, name, getattr(operator, name) in choices, " or ".join(map(repr, choices)))


def _seconds(operator: Any, name: str) -> float:
    value = getattr(operator, name)
    number = value.total_seconds() if isinstance(value, timedelta) else value
    right = isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number) and number >= 0
    _checked(operator, name, right, "seconds or a timedelta of at least zero")
    return float(number)

"""A watcher's arguments: checked at DAG parse, declared once, serialized from the signature.

Every error is a :class:`~airflow_state_watchers.exceptions.WatcherArgumentError` that names the argument.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from airflow.triggers.base import BaseEventTrigger, BaseTrigger

from airflow_state_watchers.core.stored import Unreadable, load_time
from airflow_state_watchers.exceptions import WatcherArgumentError

T = TypeVar("T")

LONGEST = 100 * 366 * 86400
"""Seconds."""


def text(argument: str, value: Any, *, empty: bool = False) -> str:
    """Return non-empty text without a template: a watcher belongs to no DAG run, so nothing would render it."""
    if not isinstance(value, str) or not (value or empty):
        raise WatcherArgumentError(f"{argument}={value!r}: give text{'' if empty else ' that is not empty'}")
    plain_text: str = str.__str__(value)  # of an Enum that is text, too: what Airflow stores of it
    if any("\ud800" <= character <= "\udfff" for character in plain_text):
        raise WatcherArgumentError(f"{argument}={value!r} has a lone surrogate, which no text that is sent can have")
    if "{{" in value or "{%" in value:
        raise WatcherArgumentError(
            f"{argument}={value!r} has a template, but a watcher belongs to no DAG run. Give the text itself"
        )
    return plain_text


def choice(argument: str, value: T, choices: Sequence[T]) -> T:
    if value not in choices:
        raise WatcherArgumentError(f"{argument}={value!r}: choose one of {', '.join(map(repr, choices))}")
    return value


def seconds(argument: str, value: Any, *, positive: bool = False) -> float:
    """Return a duration (a ``timedelta`` or a number of seconds) as seconds; whole ones as ``int``."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, int) and not isinstance(number, bool):
        number = max(-LONGEST, min(number, LONGEST + 1))  # an integer may be longer than any float
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        raise WatcherArgumentError(f"{argument}={value!r}: give seconds or a timedelta")
    if number < 0 or (positive and number == 0):
        raise WatcherArgumentError(
            f"{argument}={value!r}: give a duration {'above' if positive else 'of at least'} zero"
        )
    if number > LONGEST:
        raise WatcherArgumentError(
            f"{argument}={value!r}: that is longer than a hundred years; give seconds or a timedelta"
        )
    return int(number) if number == int(number) else float(number)


def count(argument: str, value: Any, *, least: int = 1, most: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        limits = f"at least {least}" if most == 2**63 - 1 else f"{least} to {most}"
        raise WatcherArgumentError(f"{argument}={value!r}: give a whole number of {limits}")
    return value


def flag(argument: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise WatcherArgumentError(f"{argument}={value!r}: give True or False")
    return value


def moment(argument: str, value: Any) -> str | None:
    """Return an aware ``datetime``, or text of one, as ISO 8601 text in UTC."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise WatcherArgumentError(f"{argument}={value!r} has no time zone; give an aware datetime")
        try:
            return value.astimezone(timezone.utc).isoformat()
        except OverflowError:
            raise WatcherArgumentError(f"{argument}={value!r} is no time in UTC; give one from the year 2 on") from None
    if not isinstance(value, str):
        raise WatcherArgumentError(f"{argument}={value!r}: give an aware datetime")
    try:
        return load_time(value, argument).isoformat()
    except Unreadable as error:
        raise WatcherArgumentError(str(error)) from None


def plain(argument: str, value: Any, *, depth: int = 20) -> Any:
    """Check that a free-form argument is plain JSON, which is what Airflow stores of it.

    What it holds is not shown: it may be a secret.
    """
    if depth == 0:
        raise WatcherArgumentError(f"{argument} is nested too deeply, or holds itself")
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(argument, inner, depth=depth - 1) for inner in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(f"{argument}[{key!r}]", inner, depth=depth - 1) for key, inner in value.items()}
    raise WatcherArgumentError(
        f"{argument} is a {type(value).__name__}: give plain values only (text, numbers, lists, dicts with text keys)"
    )


def passed_on(cls: type[BaseEventTrigger], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check leftover keyword arguments: only what Airflow's own base classes name may pass."""
    allowed = {
        name
        for base in (BaseEventTrigger, BaseTrigger)
        for name, parameter in inspect.signature(base.__init__).parameters.items()
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    known = [name for name in inspect.signature(cls.__init__).parameters if name not in ("self", "kwargs")]
    for name in kwargs:
        if name not in allowed:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}"
            raise WatcherArgumentError(f"{cls.__name__} has no argument {name!r}; {hint}")
    return kwargs


def serialized(trigger: BaseEventTrigger) -> tuple[str, dict[str, Any]]:
    """Return class path and arguments: what its ``__init__`` names, read from its attributes, where not the default.

    Two parses of one DAG file give equal results, so the trigger's row, and with it the running watcher, stays.
    """
    cls = type(trigger)
    arguments = {}
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name == "self" or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        value = getattr(trigger, name)
        if parameter.default is inspect.Parameter.empty or value != parameter.default:
            arguments[name] = value
    return f"{cls.__module__}.{cls.__qualname__}", {**arguments, **getattr(trigger, "_passed_on", {})}

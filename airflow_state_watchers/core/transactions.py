"""Which transactions may still commit rows with old values, as one look at the database showed them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open or prepared transaction.

    ``key`` tells it from every other one and stays the same for as long as it is open. ``since``: it began at this time of the
    source's clock or later; ``None`` if that is not known, so that it may be as old as can be. ``text`` is for people: what it is
    (pid, user, application, age), never its query.
    """

    key: str
    since: datetime | None
    text: str


@dataclass(frozen=True, slots=True)
class Openness:
    """``now``: the source's time at the beginning of the look. ``exact``: whether ``transactions`` are all that may still commit;
    if not, there are none in it, and only ``settle`` helps."""

    now: datetime
    exact: bool
    transactions: tuple[Transaction, ...] = ()

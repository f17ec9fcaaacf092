"""How far a table can be read now: no row with an older value may still be committed.

For a column of times that is a moment of the source's clock. For one without a clock it is a value that a look has shown, once
every transaction that was open at that look has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_state_watchers.core.cut import Cut
from airflow_state_watchers.core.transactions import Openness, Transaction

MAX_LOOKS = 24


@dataclass(frozen=True, slots=True)
class Reach:
    """``moment``: what was stamped before it by the source's clock is committed or never will be; ``None``: not known, stay.

    ``holding`` is the oldest transaction that keeps it from being the source's now less ``settle``; ``passing`` are those that
    have been open for longer than ``max_hold`` and are waited for no more.
    """

    moment: datetime | None
    holding: Transaction | None = None
    passing: tuple[Transaction, ...] = ()


def reach(
    opened: Openness,
    *,
    settle: timedelta,
    max_hold: timedelta | None = None,
    met: Mapping[str, datetime] | None = None,
    passed: Collection[str] = (),
) -> Reach:
    """Decide from the transactions that a look showed open.

    ``met`` says when each was first seen, by the source's clock, and counts as its age where its beginning is not known.
    Those in ``passed`` were let go before: what they write is read again when they end.
    """
    unknown: list[Transaction] = []
    known: list[Transaction] = []
    passing: list[Transaction] = []
    for transaction in opened.transactions:
        began = transaction.since or (met or {}).get(transaction.key, opened.now)
        if transaction.key in passed:
            continue
        if max_hold is not None and opened.now - began > max_hold:
            passing.append(transaction)
        else:
            (known if transaction.since else unknown).append(transaction)
    if unknown:
        return Reach(None, unknown[0], tuple(passing))
    oldest = min(known, key=lambda transaction: transaction.since or opened.now, default=None)
    if oldest is None or oldest.since is None or oldest.since >= opened.now:
        return Reach(opened.now - settle, None, tuple(passing))
    return Reach(oldest.since - settle, oldest, tuple(passing))


@dataclass(frozen=True, slots=True)
class Seen:
    """The greatest value that a look showed, and a time of the source's clock not before that look."""

    cut: Cut
    at: datetime


def readable(looks: Sequence[Seen], moment: datetime | None) -> Seen | None:
    """Return the newest look such that whatever was open then has ended, if everything from before ``moment`` has.

    What began at the very time of a look may have been open then.
    """
    if moment is None:
        return None
    return next((seen for seen in reversed(looks) if seen.at < moment), None)


def with_look(looks: Sequence[Seen], new: Seen, *, keep: datetime | None) -> tuple[Seen, ...]:
    """Add a look. Of those from before ``keep`` only the newest is still of use; of many the one least missed is given up.

    An older look at the same value says more than a newer one.
    """
    if looks and looks[-1].cut == new.cut:
        return tuple(looks)
    rest = [*looks, new]
    while keep is not None and len(rest) > 1 and rest[1].at <= keep:
        del rest[0]
    if len(rest) > MAX_LOOKS:
        del rest[_least_missed(rest)]
    return tuple(rest)


def _least_missed(looks: Sequence[Seen]) -> int:
    """Return which look leaves the smallest gap, as against its age: so there is one of about any age, up to the oldest."""
    newest = looks[-1].at

    def gap(number: int) -> float:
        before, after = looks[number - 1].at, looks[number + 1].at
        return (after - before) / max(newest - before, timedelta.resolution)

    return min(range(1, len(looks) - 1), key=gap)

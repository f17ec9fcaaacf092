"""Places between the values of a watermark column.

A column's values stay in the database's own text and are compared there: this package never orders them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in a column's order: right before all rows with ``value``, or right after them. Never inside a tie.

    ``value`` is the database's exact text of it; which type it has the column says.
    """

    value: str
    after: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """What lies between two cuts; ``None``: from the beginning, or without an end. ``Span(Cut(a), Cut(b))`` is ``[a, b)``."""

    low: Cut | None
    high: Cut | None

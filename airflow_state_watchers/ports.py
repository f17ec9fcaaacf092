"""What the shells need from the outside, each as narrow as it can be.

Every port has an in-memory double in :mod:`airflow_state_watchers.testing`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from airflow_state_watchers.core.cut import Cut, Span
from airflow_state_watchers.core.position import Item
from airflow_state_watchers.core.transactions import Openness
from airflow_state_watchers.core.uploads import Upload

Skip = Callable[[str, bytes], bool]
"""Says by key and identity that a version is known already."""


class Scan(Protocol):
    """One poll's look at a source."""

    now: datetime
    """The source's own clock, read once at the beginning of the look; it does not move during the poll."""

    uploads: Sequence[Upload] | None
    """The multipart uploads that were in progress at ``now``; ``None`` where the source did not say."""

    note: str | None
    """What this look cannot see, and what to do about it, for people; ``None`` if there is nothing to say."""

    listed: int
    """How many items the listing has shown so far, within the asked span or not."""

    advice: str | None
    """After a complete :meth:`pages`: how polls could cost less, for people."""

    cursor: str | None
    """After a complete :meth:`pages`, for a source in the order of keys: all keys up to this one are older than ``low``."""

    def pages(
        self,
        low: datetime | None,
        high: datetime,
        *,
        also: Collection[str] = (),
        after: str | None = None,
        skip: Skip | None = None,
        whole: bool = False,
    ) -> AsyncGenerator[Sequence[Item], None]:
        """Yield all items with ``low <= value < high`` (``None``: from the beginning), in any order; of the keys ``also``
        whatever has ``value < high``. A source in the order of keys leaves out the others up to ``after``. What ``skip`` says
        yes to need not be yielded. With ``whole`` no place is left out for what its name tells of the age of what lies there.

        Ends only when the listing is complete; an incomplete listing raises a
        :class:`~airflow_state_watchers.exceptions.SourceError` and so advances nothing.
        """


class Source(Protocol):
    """Where items come from."""

    def fields(self) -> dict[str, Any]:
        """Return the readable fields that make this source this source; never a secret."""

    async def open(self) -> Scan:
        """Begin one poll. Raises :class:`~airflow_state_watchers.exceptions.SourceError`."""

    async def aclose(self) -> None:
        """Release connections. Called once, when the watcher stops."""


class Part(Protocol):
    """What the beginning of a span holds: ``count`` rows before ``high``."""

    high: Cut
    count: int
    is_ahead: bool
    """Whether the span's end stands after its beginning; if not, ``count`` is 0."""


class Beyond(Protocol):
    """What stands after a cut: whether there are ``recent`` rows up to the source's now, and how many ``future`` ones."""

    recent: bool
    future: int


class RowScan(Protocol):
    """One poll's look at a table. Each method reads in a transaction of its own, later than the one that gave ``opened``."""

    opened: Openness
    """The source's clock, and what was open at that time."""

    note: str | None
    """What this look cannot see, and what to do about it, for people; ``None`` if there is nothing to say."""

    column: str
    """The watermark column's type, in the database's words."""

    has_clock: bool
    """Whether the column's values are times, so that an old value is known by itself."""

    def at(self, moment: datetime) -> Cut:
        """Return a cut before which no row is committed any more once all transactions of up to ``moment`` have ended."""

    async def placed(self, cut: Cut) -> Cut:
        """Return what a person wrote in the database's own text: a word such as "now" as the time it means.

        A time with an offset stands, in a column without a zone, at the local time that column holds then. Raises
        :class:`~airflow_state_watchers.exceptions.CheckpointError` if it is no value of the column.
        """

    async def greatest(self) -> tuple[Cut | None, datetime]:
        """Return the cut after the greatest value (``None``: there are no rows), and a time not before it was read."""

    async def begin(self, span: Span, *, most: int | None) -> Part:
        """Count the rows of a span, ended earlier if they are more than ``most``, though never within a tie."""

    async def beyond(self, cut: Cut) -> Beyond: ...

    async def sums(self, cuts: Sequence[Cut | None]) -> Sequence[tuple[int, int]]:
        """Return row count and checksum between each two of these cuts that follow each other, in one read.

        The checksum is over watermark column and keys; that of two spans beside each other is the sum of theirs, modulo 2**64.
        """

    async def rows(self, span: Span) -> Sequence[dict[str, Any]]:
        """Return a span's rows in order, JSON-plain, with the columns that the watcher was asked for."""


class RowSource(Protocol):
    """A table that is watched by one of its columns."""

    def fields(self) -> dict[str, Any]:
        """Return the readable fields that make this source this source; never a secret."""

    async def open(self) -> RowScan:
        """Begin one poll. Raises :class:`~airflow_state_watchers.exceptions.SourceError`."""

    async def aclose(self) -> None:
        """Release connections. Called once, when the watcher stops."""


class ManifestStore(Protocol):
    """Where the items of batches are kept that are too large for an event. It belongs to one watcher."""

    async def write(self, batch_id: str, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Store the items under the batch's id; return their address, JSON-plain and without secrets, for the event.

        What is stored already is not written again, unless it is so old that it may be removed soon. Raises
        :class:`~airflow_state_watchers.exceptions.SourceError`.
        """

    async def clean(self) -> None:
        """Remove what is too old, by the store's own clock. Raises :class:`~airflow_state_watchers.exceptions.SourceError`."""

    async def aclose(self) -> None:
        """Release connections. Called once, when the watcher stops."""


class StateStore(Protocol):
    """String keys to JSON values, for one asset. The shape of Airflow's own accessor."""

    async def aget(self, key: str, default: Any = None) -> Any: ...

    async def aset(self, key: str, value: Any) -> None: ...

    async def adelete(self, key: str) -> None: ...


class Clock(Protocol):
    """This process's time. The source's time is :attr:`Scan.now`."""

    def now(self) -> datetime: ...

    async def sleep(self, seconds: float) -> None:
        """Wait for a short, fixed time inside one step of work."""

    async def pause(self, seconds: float) -> None:
        """Wait between two polls. The loop's only long wait."""

"""What of a look at the source is new."""

from __future__ import annotations

from contextlib import aclosing

from airflow_state_watchers.core.checkpoint import Checkpoint, Cursor, cursor_of
from airflow_state_watchers.core.uploads import Remembered
from airflow_state_watchers.core.window import Selected, Selection, plan
from airflow_state_watchers.ports import Scan
from airflow_state_watchers.triggers.settings import SELECTION_LIMIT, Settings


async def select(
    scan: Scan, checkpoint: Checkpoint, settings: Settings, *, most: int | None = None
) -> tuple[Selected, Cursor | None]:
    """Read the window that ``checkpoint`` asks for; return what is new in it, and where the next listing may begin.

    About ``most`` new items are taken, the smallest; the next poll finds the others.
    """
    window = plan(checkpoint, scan.now, settle=settings.settle, lookback=settings.lookback)
    limit = max(SELECTION_LIMIT if most is None else most, settings.max_in_flight * settings.max_items)
    uploads = Remembered.of(checkpoint.uploads)
    selection = Selection(window, checkpoint.ledger, limit=limit, uploads=uploads)
    after = checkpoint.after(settings.lookback)
    pages = scan.pages(
        window.low,
        window.high,
        also=uploads.gone().by_key,
        after=after,
        skip=selection.skip,
        whole=checkpoint.is_fresh,
    )
    async with aclosing(pages):
        async for page in pages:
            selection.add(page)
    return selection.result(), cursor_of(scan.cursor, window.low)

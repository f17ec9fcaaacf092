"""One look at a bucket, as a watcher takes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timezone

from airflow_state_watchers.core.position import Item
from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.s3 import S3Source

FAR = datetime(2100, 1, 1, tzinfo=timezone.utc)

MakeSource = Callable[..., S3Source]


async def look(source: S3Source) -> list[Item]:
    scan = await source.open()
    return [item async for items in scan.pages(None, FAR) for item in items]


async def keys_of(source: S3Source) -> list[str]:
    return [item.position.tiebreak for item in await look(source)]


async def keys_or_error(source: S3Source) -> list[str] | str:
    """Return the name of the error's class if there is one."""
    try:
        return await keys_of(source)
    except SourceError as error:
        return type(error).__name__


async def only(source: S3Source) -> Item:
    (item,) = await look(source)
    return item


async def next_second() -> None:
    """Wait until a new second has just begun, so that what follows falls into one, and into another than before."""
    await asyncio.sleep(1.02 - time.time() % 1)

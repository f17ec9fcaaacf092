"""One client for all watchers of an event loop that use the same connection in the same way.

A client costs 70 ms and more to make, some memory, and connections to S3; hundreds of watchers on one triggerer need few.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from airflow_state_watchers.exceptions import SourceError
from airflow_state_watchers.sources.s3_place import S3Place

BuildClient = Callable[[S3Place], Any]


@dataclass(eq=False)
class Shared:
    """A client and how many use it. ``stale``: nobody else shall begin to; it is closed when the last one has gone."""

    key: Hashable
    place: S3Place
    making: asyncio.Task[Any]
    users: int = 0
    stale: bool = False

    @property
    def client(self) -> Any:
        return self.making.result()


class ClientPool:
    """The clients of one event loop."""

    _of_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, ClientPool]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._current: dict[Hashable, Shared] = {}

    @classmethod
    def here(cls) -> ClientPool:
        """Return the pool of the running loop: a client's connections belong to the loop that opened them."""
        return cls._of_loop.setdefault(asyncio.get_running_loop(), cls())

    async def lease(self, place: S3Place, build_client: BuildClient) -> Shared:
        """Return the client for a place's connection, made in a thread if there is none. Raises :class:`SourceError`.

        Whoever leases it gives it back by :meth:`release`.
        """
        key = _key(place)
        shared = self._current.get(key)
        if shared is None:
            making = asyncio.ensure_future(_make(place, build_client))
            shared = self._current[key] = Shared(key, place, making)
        shared.users += 1
        try:
            await asyncio.shield(shared.making)
        except BaseException as error:
            if isinstance(error, Exception) or shared.making.done():
                self.retire(shared)
            await self.release(shared)
            if isinstance(error, SourceError) and shared.place != place:
                # The message begins with the place of whoever asked first.
                raise type(error)(str(error).replace(shared.place.uri, place.uri, 1)) from None
            raise
        return shared

    def retire(self, shared: Shared) -> None:
        """Let the next one who asks get a new client, of the connection as it then is."""
        shared.stale = True
        if self._current.get(shared.key) is shared:
            del self._current[shared.key]

    async def release(self, shared: Shared) -> None:
        """Give a client back; the last one closes it."""
        shared.users -= 1
        if shared.users:
            return
        self.retire(shared)
        if not shared.making.done():
            shared.making.cancel()
        await asyncio.wait([shared.making])
        if not shared.making.cancelled() and shared.making.exception() is None:
            await shared.client.__aexit__(None, None, None)


async def _make(place: S3Place, build_client: BuildClient) -> Any:
    return await (await asyncio.to_thread(build_client, place)).__aenter__()


def _key(place: S3Place) -> Hashable:
    config = json.dumps(place.botocore_config, sort_keys=True, default=repr)
    return (place.aws_conn_id, place.region_name, place.verify, config, place.timeout)

"""Where a consumer's bookmark is kept: in the asset's state, and a second copy outside it.

Airflow deletes the state of an asset that no DAG names for about a minute, as when its file is broken. The second copy
lies in the XComs of one of the task's own runs, the *keeper*: the oldest remembered one. Any later run of the task finds it
there without knowing which run that is. It is written first, so it is never older than the state.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import replace
from typing import Any

from airflow_state_watchers.core.bookmark import Bookmark
from airflow_state_watchers.core.bookmark_codec import Unreadable, dump, fitted, load
from airflow_state_watchers.core.takes import Holder
from airflow_state_watchers.exceptions import StateWatcherError
from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.surroundings import Surroundings

log = logging.getLogger(__name__)

_PREFIX = "state_watchers.inbox:"
_KEY_LENGTH = 512
_DIGEST = 16
_PLAIN = re.compile(r"[A-Za-z0-9_./-]*")


def state_key(consumer: str) -> str:
    """Return the key in the asset's state: readable, and within Airflow's 512 characters."""
    return _short(_PREFIX + consumer, consumer)


def copy_key(consumer: str) -> str:
    """Return the key of the second copy. It becomes part of a URL, so a name with other characters is digested."""
    name = consumer if _PLAIN.fullmatch(consumer) else f"digest-{_digest(consumer)}"
    return _short(_PREFIX + name, consumer)


def _short(key: str, consumer: str) -> str:
    if len(key) <= _KEY_LENGTH:
        return key
    return f"{key[: _KEY_LENGTH - 2 * _DIGEST - 1]}-{_digest(consumer)}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).hexdigest()


class Shelf:
    """Loads and saves one consumer's bookmark."""

    def __init__(self, place: Surroundings, consumer: str) -> None:
        self._place = place
        self._key = state_key(consumer)
        self._copy_key = copy_key(consumer)
        self._consumer = consumer

    def load(self) -> Bookmark | None:
        """Return the bookmark; the newest second copy if the asset's state was lost; ``None`` for a new consumer."""
        stored = self._place.state.load(self._key)
        if stored is not None:
            return self._read(stored, f"the state of asset {self._place.asset!r}, key {self._key!r}")
        copies = [self._read(copy, f"XCom {self._copy_key!r}") for copy in self._place.copies.find(self._copy_key)]
        if not copies:
            return None
        log.warning(
            "the state of asset %r has lost the bookmark of consumer %r; going on from its second copy",
            self._place.asset,
            self._consumer,
        )
        return max(copies, key=lambda bookmark: bookmark.written)

    def save(self, bookmark: Bookmark) -> Bookmark:
        """Store the bookmark and return it as stored. Raises if it could be stored nowhere."""
        me = self._place.opener.holder
        bookmark = fitted(bookmark, me)
        bookmark, value, kept = self._keep(replace(bookmark, written=bookmark.written + 1), me)
        if not self._place.state.save(self._key, value):
            if not kept:
                raise StateWatcherError(
                    f"the bookmark of consumer {self._consumer!r} could be stored nowhere: asset {self._place.asset!r} is not "
                    "active (no DAG that Airflow can parse names it), and Airflow refused its second copy."
                )
            log.warning("asset %r is not active; its bookmark is in the second copy only", self._place.asset)
        return bookmark

    def _keep(self, bookmark: Bookmark, me: Holder) -> tuple[Bookmark, dict[str, Any], bool]:
        """Write the second copy beside the keeper, or beside this task instance if the keeper's run is gone."""
        before = bookmark.keeper
        keepers = dict.fromkeys((_keeper(bookmark, me), me))
        value: dict[str, Any] = {}
        for keeper in keepers:
            bookmark = replace(bookmark, keeper=keeper)
            value = dump(bookmark)
            if self._place.copies.keep(self._copy_key, keeper, value):
                if before is not None and before != keeper:
                    self._place.copies.drop(self._copy_key, before)
                return bookmark, value, True
        return bookmark, value, False

    def _read(self, stored: Any, where: str) -> Bookmark:
        try:
            return load(stored)
        except Unreadable as error:
            raise InboxRefusal(
                f"the bookmark of consumer {self._consumer!r} in {where} cannot be read: {error}. It is not meant to be "
                "edited. Put back what it was, or give the inbox another consumer= to begin anew."
            ) from error


def _keeper(bookmark: Bookmark, me: Holder) -> Holder:
    """Choose whose XComs hold the second copy: a remembered task instance of this task, as long as possible the same."""
    own = [
        take.holder for take in bookmark.takes if (take.holder.dag_id, take.holder.task_id) == (me.dag_id, me.task_id)
    ]
    if bookmark.keeper in own:
        return bookmark.keeper
    return own[0] if own else me

"""Between job records and the JSON that is stored. A record has digests of the request and no values: it may hold secrets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from airflow_state_watchers.core.resume import JobRecord
from airflow_state_watchers.core.stored import Unreadable

VERSION = 1


def dump_record(record: JobRecord) -> dict[str, Any]:
    return {
        "v": VERSION,
        "token": record.token,
        "attempt": record.attempt,
        "max_tries": record.max_tries,
        "identity": None if record.identity is None else dict(record.identity),
        "previous": record.previous,
        "external_id": record.external_id,
        "resubmits": record.resubmits,
    }


def load_record(stored: Any) -> JobRecord:
    """Read :func:`dump_record`'s value. Raises :class:`Unreadable`."""
    if not isinstance(stored, Mapping):
        raise Unreadable(f"it is a {type(stored).__name__}, not an object")
    version = stored.get("v")
    if type(version) is not int or version != VERSION:
        raise Unreadable(f"its version is {version!r}; this release reads version {VERSION}")
    if absent := {"identity", "previous", "external_id"} - stored.keys():
        raise Unreadable(f"it has no {', '.join(sorted(absent))}")
    return JobRecord(
        token=_text(stored, "token"),
        attempt=_count(stored, "attempt", least=1),
        max_tries=_count(stored, "max_tries", least=0),
        identity=_digests(stored["identity"]),
        previous=stored["previous"],
        external_id=stored["external_id"],
        resubmits=_count(stored, "resubmits", least=0),
    )


def _text(stored: Mapping[str, Any], key: str) -> str:
    value = stored.get(key)
    if not isinstance(value, str) or not value:
        raise Unreadable(f"its {key} is {value!r}, not text")
    return value


def _count(stored: Mapping[str, Any], key: str, *, least: int) -> int:
    value = stored.get(key)
    if type(value) is not int or value < least:
        raise Unreadable(f"its {key} is {value!r}, not a number from {least}")
    return value


def _digests(stored: Any) -> dict[str, str] | None:
    if stored is None:
        return None
    if not isinstance(stored, Mapping) or not all(isinstance(value, str) for value in stored.values()):
        raise Unreadable("its identity does not hold digests")
    return dict(stored)


def digests_of(identity: Any) -> dict[str, str]:
    """Return a digest per field of what makes a request this request; what is no mapping is one field."""
    fields = identity if isinstance(identity, Mapping) else {"identity": identity}
    return {str(name): _digest(value) for name, value in fields.items()}


def _digest(value: Any) -> str:
    text = json.dumps(_plain(value), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _plain(value: Any) -> Any:
    """What is no JSON is told by its text, a set in one order, and a function by its name, not by where it lies in memory."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    return getattr(value, "__qualname__", None) or str(value)


def drifted(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> list[str]:
    """Return the fields that differ. A record without an identity counts as a match."""
    if old is None or new is None:
        return []
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))

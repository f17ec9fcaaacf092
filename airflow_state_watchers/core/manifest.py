"""The items of a batch that is too large for an event, as one object: gzip, each line an item's JSON.

Equal items make equal bytes (of one release of Python and zlib).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_state_watchers.core.envelope import check_json

SUFFIX = ".jsonl.gz"
_NAME = re.compile(r"[0-9a-f]{24}\.jsonl\.gz", re.ASCII)
_LONGEST = 64


class Unreadable(ValueError):
    """What is stored as a manifest is none."""


def dump(items: Sequence[Mapping[str, Any]]) -> bytes:
    """Raises :class:`~airflow_state_watchers.core.envelope.NotJson` for what an event would not take either."""
    return gzip.compress("".join(map(_line, items)).encode("ascii"), mtime=0)


def _line(item: Mapping[str, Any]) -> str:
    # One by one: a thread that writes all of them at once would hold the interpreter for long.
    plain = dict(item)
    check_json(plain)
    return f"{json.dumps(plain)}\n"


def load(data: bytes) -> list[dict[str, Any]]:
    """Read :func:`dump`'s form. Raises :class:`Unreadable`."""
    try:
        items = [json.loads(line) for line in gzip.decompress(data).split(b"\n") if line]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise Unreadable(f"is no gzip of JSON lines ({type(error).__name__})") from None
    if not all(isinstance(item, dict) for item in items):
        raise Unreadable("has lines that are no JSON objects")
    return items


def folder_of(watcher: str) -> str:
    """Return a folder of this watcher's own: readable, and with a digest because what is readable is not unique."""
    digest = hashlib.blake2b(watcher.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", watcher).strip("-.")[:_LONGEST]
    return f"{readable}-{digest}" if readable else digest


def name_of(batch_id: str) -> str:
    return batch_id + SUFFIX


def is_name(name: str) -> bool:
    """Whether a file's name is that of a manifest."""
    return _NAME.fullmatch(name) is not None

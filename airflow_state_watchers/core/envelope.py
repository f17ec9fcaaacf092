"""The event that a batch becomes: flat, strict JSON, documented and stable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_state_watchers.core.batch import Batch
from airflow_state_watchers.core.checkpoint import Checkpoint

VERSION = 1
_MAX_INTEGER = 2**64


class NotJson(ValueError):
    """A payload holds something that does not survive Airflow's way to its database."""


def event_of(
    batch: Batch,
    checkpoint: Checkpoint,
    *,
    kind: str,
    trigger_run_id: str,
    sequence_index: int,
    source: Mapping[str, Any],
    manifest: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the payload of one event.

    ``trigger_run_id`` names one life of the watcher, ``sequence_index`` counts its events from 0; ``source`` are the
    source's own flat fields (for objects: ``bucket``). ``manifest`` is the address at which the items were written, if they
    are too many for an event.
    """
    items = [item.data for item in batch.items]
    payload: dict[str, Any] = {
        "v": VERSION,
        "kind": kind,
        "watcher": checkpoint.name,
        "generation": checkpoint.generation,
        "trigger_run_id": trigger_run_id,
        "sequence_index": sequence_index,
        "batch_id": batch.batch_id,
        "previous": batch.previous,
        "low": batch.items[0].position.value.isoformat(),
        "high": batch.items[-1].position.value.isoformat(),
        "count": len(items),
        "bytes": sum(int(item.get("size", 0)) for item in items),
        **source,
        "items": [dict(item) for item in items] if manifest is None else [],
    }
    if manifest is not None:
        payload["manifest"] = dict(manifest)
    if batch.intent.replaces:
        payload["replaces"] = list(batch.intent.replaces)
    check_json(payload)
    return payload


def check_json(payload: Any) -> None:
    """Raise :class:`NotJson` for what Airflow's triggerer would crash on or change silently."""
    _check(payload, "payload")
    json.dumps(payload, allow_nan=False, ensure_ascii=False).encode("utf-8")


def _check(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if type(key) is not str:
                raise NotJson(f"{where} has a key of type {type(key).__name__}: {key!r}")
            _check(key, f"{where} (key)")
            _check(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _check(inner, f"{where}[{number}]")
    elif type(value) is int:
        if not -_MAX_INTEGER // 2 <= value < _MAX_INTEGER:
            raise NotJson(f"{where} is an integer beyond 64 bits")
    elif type(value) is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJson(f"{where} is {value}, which JSON does not have")
    elif type(value) is str:
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise NotJson(f"{where} has a lone surrogate, which UTF-8 does not have")
    elif value is not None and type(value) is not bool:
        raise NotJson(
            f"{where} is a {type(value).__name__}; only text, numbers, true, false, null, lists and objects pass"
        )


def summary_of(payload: Mapping[str, Any]) -> str:
    """One short line for the log: never an item, never a secret."""
    return (
        f"{payload['kind']} {payload['watcher']} generation={payload['generation']} batch={payload['batch_id']} "
        f"count={payload['count']} bytes={payload['bytes']} low={payload['low']} high={payload['high']}"
    )

"""What a running watcher needs to know, resolved from its arguments and the deployment's configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from airflow_state_watchers.ports import ManifestStore

log = logging.getLogger(__name__)

SECTION = "state_watchers"
MAX_EVENT_BYTES = 512 * 1024
"""The most that the items of one event may take in Airflow's database, as JSON."""
SELECTION_LIMIT = 50_000
"""The most new items that one poll holds, and that a batch may have which is written as a manifest."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One watcher's settings. ``poll_interval`` and ``state_refresh`` are seconds.

    ``source`` is what its kind of :class:`~airflow_state_watchers.triggers.reading.Reading` reads. ``max_items`` and
    ``max_bytes`` are the limits of what an event holds; with ``manifests`` a batch may be larger.
    """

    name: str
    kind: str
    source: Any
    settle: timedelta
    lookback: timedelta
    poll_interval: float
    max_items: int
    start: str = "latest"
    initial_value: Any = None
    on_source_change: Literal["stop", "keep", "start"] = "stop"
    event_fields: Mapping[str, Any] = field(default_factory=dict)
    upload_ttl: timedelta | None = None
    max_bytes: int = MAX_EVENT_BYTES
    manifests: ManifestStore | None = None
    max_in_flight: int = 8
    state_refresh: float = 300.0


def configured(option: str, default: float) -> float:
    """Read one number of the ``[state_watchers]`` section; one that cannot be read is said, and the default used."""
    from airflow.sdk.configuration import conf

    try:
        value = float(conf.getfloat(SECTION, option, fallback=default))
    except Exception as error:
        log.error("[%s] %s is no number (%s); using %s", SECTION, option, type(error).__name__, default)
        return default
    return value if value > 0 else default

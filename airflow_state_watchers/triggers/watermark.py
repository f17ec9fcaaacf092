"""The base of all watchers: an event trigger whose progress is a watermark in the asset's state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Literal
from uuid import uuid4

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import SharedStreamProducer

from airflow_state_watchers.core.stored import load_time
from airflow_state_watchers.exceptions import StateWatcherError, WatcherArgumentError
from airflow_state_watchers.ports import Clock, ManifestStore
from airflow_state_watchers.state.accessors import watched_assets
from airflow_state_watchers.state.checkpoint_store import CheckpointStore
from airflow_state_watchers.triggers.arguments import choice, moment, passed_on, seconds, serialized
from airflow_state_watchers.triggers.clock import SystemClock
from airflow_state_watchers.triggers.health import Health
from airflow_state_watchers.triggers.idle import IdleProducer
from airflow_state_watchers.triggers.objects import ObjectReading
from airflow_state_watchers.triggers.producer import WatermarkProducer
from airflow_state_watchers.triggers.progress import Progress
from airflow_state_watchers.triggers.reading import Reading
from airflow_state_watchers.triggers.settings import Settings, configured

_current: ContextVar[WatermarkTrigger | None] = ContextVar("state_watchers_trigger", default=None)
"""The trigger whose stream is being opened.

Airflow builds a stream's producer from the class and the arguments alone, without the asset's state store. But it does so
in a task that it creates right after asking this trigger for its stream key, so what is set there can be read here. A first
event that the filter answers with its store would work too; it would need a second protocol inside the stream.
"""


class WatermarkTrigger(BaseEventTrigger):
    """Delivers what is new in a source as asset events, each item at least once, in order, whatever dies.

    Subclasses declare their arguments in ``__init__``, keep each in an attribute of its name, and give a source. Progress
    is never an argument: it stands in the state of the one asset that is watched.
    """

    kind: str
    """The ``kind`` of this watcher's events."""

    clock: Clock = SystemClock()
    upload_ttl: float | None = None
    """Seconds for which a source's multipart uploads are remembered."""
    source: Any = None
    """Set in tests to a double; otherwise :meth:`build_source` makes one."""
    manifests: ManifestStore | None = None
    """Set in tests to a double; otherwise :meth:`build_manifests` makes one."""
    owners: dict[tuple[str, str], object] = {}  # noqa: RUF012 - one for all watchers of a process, on purpose

    def __init__(
        self,
        *,
        watcher_name: str,
        start: Literal["latest", "earliest"],
        initial_value: Any,
        poll_interval: float | timedelta,
        on_source_change: Literal["stop", "keep", "start"],
        settle: float | timedelta | None,
        lookback: float | timedelta | None,
        max_items: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed_on(type(self), kwargs))  # type: ignore[no-untyped-call]
        self._passed_on = dict(kwargs)
        self.watcher_name = watcher_name
        self.start = choice("start", start, ("latest", "earliest"))
        self.initial_value = self.check_initial_value(initial_value)
        self.poll_interval = seconds("poll_interval", poll_interval, positive=True)
        self.on_source_change = choice("on_source_change", on_source_change, ("stop", "keep", "start"))
        self.settle = None if settle is None else seconds("settle", settle)
        self.lookback = None if lookback is None else seconds("lookback", lookback)
        self._max_items = max_items
        self.producer: SharedStreamProducer | None = None
        if self.initial_value is not None and start == "earliest":
            raise WatcherArgumentError(
                'initial_value says where to begin, and so does start="earliest"; leave one of them out'
            )

    @abstractmethod
    def build_source(self, timeout: float) -> Any:
        """Return the source that the arguments name. ``timeout`` bounds each of its calls, in seconds."""

    def build_reading(self, settings: Settings) -> Reading:
        """Return how the delivery path reads the source. ``settings.source`` is it."""
        return ObjectReading(settings)

    def check_initial_value(self, value: Any) -> Any:
        """Return ``initial_value`` as it is stored of this trigger. Raises :class:`WatcherArgumentError`."""
        return moment("initial_value", value)

    def load_initial_value(self, value: Any) -> Any:
        """Return where a stored ``initial_value`` begins."""
        return load_time(value, "initial_value")

    def build_manifests(self, timeout: float, keep: timedelta) -> ManifestStore | None:
        """Return where batches are written that are too large for an event, for as long as ``keep``; ``None``: nowhere."""
        return None

    def event_fields(self) -> Mapping[str, Any]:
        """Return the source's own flat fields of an event."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return serialized(self)

    def shared_stream_key(self) -> Hashable:
        """Return this trigger's own stream: one group, and so one producer, for each watcher.

        The greater part of Airflow's ack mode is bookkeeping for streams that several triggers share; this package uses
        it because it is the one way in which Airflow tells that an event is in its database.
        """
        _current.set(self)
        own = self.trigger_id if self.trigger_id is not None else f"instance-{id(self)}"
        return (f"{type(self).__module__}.{type(self).__qualname__}", own)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        trigger = _current.get()
        if trigger is None or type(trigger) is not cls:
            raise StateWatcherError(f"{cls.__name__}: Airflow opened a stream without asking for its key first")
        trigger.producer = trigger._make_producer()
        return trigger.producer

    def _make_producer(self) -> SharedStreamProducer:
        max_backoff = configured("max_backoff", 300)
        assets = watched_assets(self.asset_state_store)
        if len(assets) != 1:
            return IdleProducer(self.watcher_name, assets, self.clock, max_backoff=max_backoff)
        ((asset, state),) = assets.items()
        settings = self._settings()
        store = CheckpointStore(state, self.watcher_name, by=uuid4().hex[:8])
        reading = self.build_reading(settings)
        progress = Progress(settings, store, reading, asset=asset, owners=self.owners)
        health = Health(self.watcher_name, asset, max_backoff)
        return WatermarkProducer(settings, reading, progress, health, self.clock)

    def _settings(self) -> Settings:
        timeout = configured("source_timeout", 30)
        keep = timedelta(seconds=configured("manifest_retention", 30 * 86400))
        return Settings(
            name=self.watcher_name,
            kind=self.kind,
            source=self.source or self.build_source(timeout),
            manifests=self.manifests or self.build_manifests(timeout, keep),
            settle=timedelta(seconds=self.settle or 0),
            lookback=timedelta(seconds=self.lookback or 0),
            poll_interval=max(self.poll_interval, configured("min_poll_interval", 5)),
            max_items=self._max_items,
            start=self.start,
            initial_value=None if self.initial_value is None else self.load_initial_value(self.initial_value),
            on_source_change=self.on_source_change,
            event_fields=self.event_fields(),
            upload_ttl=None if self.upload_ttl is None else timedelta(seconds=self.upload_ttl),
            max_in_flight=max(1, int(configured("max_in_flight", 8))),
            state_refresh=configured("state_refresh", 300),
        )

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Turn each delivery into one event.

        Airflow awaits a log call between this ``yield`` and the moment the event is queued; a cancellation there counts as
        accepted though nothing was queued. Whoever asks for the next delivery has queued this one, so the mark comes after.
        """
        async for delivery in shared_stream:
            yield delivery.event
            delivery.accepted = True

    async def on_kill(self) -> None:
        """Commit nothing more: an edit or a pause is removing this trigger's row."""
        if isinstance(self.producer, WatermarkProducer):
            self.producer.close()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Not called: the base class demands it, and the triggerer uses the shared stream of :meth:`shared_stream_key`."""
        raise StateWatcherError(f"{type(self).__name__} runs in the triggerer's shared stream only")
        yield

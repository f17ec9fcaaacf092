"""Watchers for Apache Airflow that turn what is new at a source into asset events, an inbox that reads them, and operators
whose job outlives their worker.

The names below are the public surface, together with :mod:`airflow_state_watchers.testing`; everything else is private.

Airflow imports this package in every process that looks for providers. So nothing here imports Airflow: apart from the
exceptions, a name is loaded from its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from airflow_state_watchers.exceptions import (
    CheckpointError,
    InboxError,
    JobError,
    JobFailed,
    JobGone,
    JobStatusTimeout,
    PodFailed,
    PodLost,
    SourceDenied,
    SourceError,
    SourceMissing,
    SourceUnavailable,
    StateWatcherError,
    WatcherArgumentError,
)

if TYPE_CHECKING:
    from airflow_state_watchers.operators.athena import ResumableAthenaOperator
    from airflow_state_watchers.operators.batch import ResumableBatchOperator
    from airflow_state_watchers.operators.pod import PodResumeMixin, ResumablePodOperator
    from airflow_state_watchers.operators.resumable import ResumableJobMixin
    from airflow_state_watchers.tasks.events import WatcherEvent
    from airflow_state_watchers.tasks.inbox import Inbox
    from airflow_state_watchers.tasks.objects import S3Object
    from airflow_state_watchers.tasks.windows import SqlWindow
    from airflow_state_watchers.triggers.s3 import S3PrefixWatermarkTrigger
    from airflow_state_watchers.triggers.sql import SqlUpdatedAtTrigger
    from airflow_state_watchers.triggers.watermark import WatermarkTrigger

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "Inbox",
    "InboxError",
    "JobError",
    "JobFailed",
    "JobGone",
    "JobStatusTimeout",
    "PodFailed",
    "PodLost",
    "PodResumeMixin",
    "ResumableAthenaOperator",
    "ResumableBatchOperator",
    "ResumableJobMixin",
    "ResumablePodOperator",
    "S3Object",
    "S3PrefixWatermarkTrigger",
    "SourceDenied",
    "SourceError",
    "SourceMissing",
    "SourceUnavailable",
    "SqlUpdatedAtTrigger",
    "SqlWindow",
    "StateWatcherError",
    "WatcherArgumentError",
    "WatcherEvent",
    "WatermarkTrigger",
]

_MODULES = {
    "ResumableAthenaOperator": "airflow_state_watchers.operators.athena",
    "ResumableBatchOperator": "airflow_state_watchers.operators.batch",
    "PodResumeMixin": "airflow_state_watchers.operators.pod",
    "ResumableJobMixin": "airflow_state_watchers.operators.resumable",
    "ResumablePodOperator": "airflow_state_watchers.operators.pod",
    "Inbox": "airflow_state_watchers.tasks.inbox",
    "S3Object": "airflow_state_watchers.tasks.objects",
    "SqlUpdatedAtTrigger": "airflow_state_watchers.triggers.sql",
    "S3PrefixWatermarkTrigger": "airflow_state_watchers.triggers.s3",
    "SqlWindow": "airflow_state_watchers.tasks.windows",
    "WatcherEvent": "airflow_state_watchers.tasks.events",
    "WatermarkTrigger": "airflow_state_watchers.triggers.watermark",
}


# Hidden from type checkers: to them a module with a __getattr__ has every attribute, so a misspelt name would pass.
if not TYPE_CHECKING:

    def __getattr__(name):
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(module), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})

"""Everything this package raises.

::

    StateWatcherError
    ├── WatcherArgumentError (ValueError, TypeError)   a watcher's argument is wrong
    ├── SourceError                                    a look at the source failed
    │   ├── SourceDenied                               ... for lack of permission
    │   ├── SourceMissing                              ... it does not exist
    │   └── SourceUnavailable                          ... for now
    ├── CheckpointError                                stored state cannot be read or belongs to another source
    ├── InboxError                                     an inbox cannot be opened as asked
    └── JobError                                       a resumable job cannot be gone on with
        ├── JobGone                                    ... the service knows it no more
        ├── JobFailed                                  ... it has failed
        ├── JobStatusTimeout                           ... it was waited for long enough, and still runs
        ├── PodFailed                                  ... its pod has failed
        └── PodLost                                    ... its pod was taken away once too often
"""

from __future__ import annotations


class StateWatcherError(Exception):
    """Base of all errors of this package. The message says what is wrong, where, and what to do."""


class WatcherArgumentError(StateWatcherError, ValueError, TypeError):
    """A watcher's argument is wrong; raised while the DAG file is parsed.

    Both a ``ValueError`` and a ``TypeError``: the triggerer of Airflow 3.3 survives only a ``TypeError`` from a trigger's
    constructor, any other error ends the whole process.
    """


class SourceError(StateWatcherError):
    """A look at the source failed. The watermark has not moved; the watcher tries again."""


class SourceDenied(SourceError):
    """The source refused: credentials or permissions."""


class SourceMissing(SourceError):
    """The source is not there: no such bucket or table."""


class SourceUnavailable(SourceError):
    """The source did not answer properly this time."""


class CheckpointError(StateWatcherError):
    """Stored state cannot be used: unreadable, of a newer version, or made for another source."""


class InboxError(StateWatcherError):
    """An inbox cannot be opened or read as asked. Raised so that it burns no retries, unless another try may help."""


class JobError(StateWatcherError):
    """A resumable job cannot be gone on with. The message names the job."""


class JobGone(JobError):
    """The service knows the job no more. An operator's ``get_job_status`` raises it to say so.

    No other error of a status look-up means that a job is gone: a job that cannot be looked at may be running.
    """


class JobFailed(JobError):
    """The job has ended without success. The next try starts another one."""


class JobStatusTimeout(JobError):
    """``status_timeout`` has passed. The job still runs and is remembered; the next try waits for it again."""


class PodFailed(JobError):
    """The pod has failed by itself. The next try starts another one."""


class PodLost(JobError):
    """Pods were evicted, preempted, drained or deleted, or their node is gone, more often than ``max_pod_losses`` allows."""

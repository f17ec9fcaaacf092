"""The form in which an inbox's errors are raised."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowFailException

from airflow_state_watchers.exceptions import InboxError


class InboxRefusal(InboxError, AirflowFailException):
    """An :class:`InboxError` that Airflow does not retry: another try would only find the same."""

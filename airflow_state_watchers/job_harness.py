"""Drives a resumable operator through deaths, retries and clears in plain pytest, without Airflow running.

Public through :mod:`airflow_state_watchers.testing`.
"""

from __future__ import annotations

import contextvars
import copy
import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowRescheduleException, TaskDeferred

from airflow_state_watchers.exceptions import StateWatcherError

HOOKS = (
    "submit_job",
    "get_job_status",
    "poll_until_complete",
    "get_job_result",
    "find_job",
    "cancel_job",
    "on_job_attached",
    "job_trigger",
    "job_identity",
)
LONGEST = 366 * 86400.0
"""Seconds of waiting, in the harness's own time, after which a try is taken to wait for ever."""


class WorkerDied(BaseException):
    """The process has died here, as by ``SIGKILL``. No ``Exception``: nothing in an operator survives it."""


class TaskState:
    """A task's state store in memory; it outlives tries and clears."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.retentions: dict[str, timedelta | None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        if value is None:
            raise ValueError("Cannot set value as None")
        self.values[key] = json.dumps(value, allow_nan=False)
        self.retentions[key] = retention

    def delete(self, key: str) -> None:
        self.values.pop(key, None)
        self.retentions.pop(key, None)


class SkippingClock:
    """A clock for waiting that takes no time."""

    def __init__(self) -> None:
        self._now = 0.0
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self.sleeps.append(seconds)
        if self._now > LONGEST:
            raise StateWatcherError(f"the operator has waited for {timedelta(seconds=self._now)}, and would for ever")


class _TaskInstance:
    """What an operator reads of ``context["ti"]``."""

    dag_id, run_id, map_index = "dag", "run", -1
    stats_tags: dict[str, str] = {}  # noqa: RUF012  read only

    def __init__(self, task: Any, try_number: int, max_tries: int, xcoms: dict[str, Any], state: str) -> None:
        self.task, self.task_id = task, task.task_id
        self.try_number, self.max_tries = try_number, max_tries
        self._xcoms, self._state = xcoms, state
        self.rescheduled_at: datetime | None = None

    def xcom_push(self, key: str, value: Any) -> None:
        self._xcoms[key] = json.loads(json.dumps(value))

    def get_first_reschedule_date(self, context: Context) -> datetime | None:
        return self.rescheduled_at

    def get_task_states(self, **which: Any) -> dict[str, dict[str, str]]:
        return {self.run_id: {self.task_id: self._state}}


class _Life:
    """One process: every call it makes has a point before and a point after it, at each of which it can die."""

    def __init__(self, crash_at: str | None) -> None:
        self.points: list[str] = []
        self._crash_at = crash_at
        self._calls: Counter[str] = Counter()
        self._dead = False

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*args: Any, **kwargs: Any) -> Any:
            label = f"{name}({args[0]})" if name.startswith("store") else name
            self._calls[label] += 1
            number = self._calls[label]
            told = label if number == 1 else f"{label} #{number}"
            self._pass(f"before {told}")
            result = call(*args, **kwargs)
            self._pass(f"after {told}")
            return result

        return calling

    def _pass(self, point: str) -> None:
        self.points.append(point)
        if self._dead or point == self._crash_at:
            self._dead = True
            raise WorkerDied(point)


class _Line:
    """A process's connection to the store; a dead process writes nothing."""

    def __init__(self, store: TaskState, life: _Life) -> None:
        self.get = life.wrapped("store.get", store.get)
        self.set = life.wrapped("store.set", store.set)
        self.delete = life.wrapped("store.delete", store.delete)


class JobHarness:
    """Runs one task of a resumable operator try by try, on a state that outlives it; time that it waits takes none.

    ::

        harness = JobHarness(RunReport(task_id="report", retries=2))
        harness.run(crash_at="after submit_job")
        assert harness.retry() == "s3://reports/42"
        assert len(service.jobs) == 1

    ``store`` is the task's state, ``xcoms`` what the last try has pushed, ``context`` what is added to the operator's
    context, and ``server_state`` what Airflow says of the task when it is asked. The operator's own class decides how it
    resumes: it works for Airflow's ``ResumableJobMixin`` too.
    """

    def __init__(self, operator: BaseOperator) -> None:
        self.store = TaskState()
        self.clock = SkippingClock()
        self.context: dict[str, Any] = {}
        self.xcoms: dict[str, Any] = {}
        self.server_state = "running"
        self.try_number = 0
        self.max_tries = operator.retries or 0
        self._operator = operator
        self._points: list[str] = []

    def run(self, *, crash_at: str | None = None) -> Any:
        """Run the task's next try; return its result, or ``None`` if it has died.

        :param crash_at: one of :meth:`crash_points`, where the process dies. A try that does not get there raises.
        """
        self.try_number += 1
        self.xcoms.clear()
        life = _Life(crash_at)
        ti = _TaskInstance(self._operator, self.try_number, self.max_tries, self.xcoms, self.server_state)
        try:
            result = self._to_the_end(life, ti)
        except WorkerDied:
            return None
        finally:
            self._points = life.points
        if crash_at is not None:
            raise StateWatcherError(f"this try has not come to {crash_at!r}; it passed {', '.join(life.points)}")
        return result

    def retry(self, *, crash_at: str | None = None) -> Any:
        """Run the next try of a task that was run before: what Airflow does when a try has failed or its worker is gone."""
        if not self.try_number:
            raise StateWatcherError("there is nothing to retry; call run() first")
        return self.run(crash_at=crash_at)

    def clear(self) -> None:
        """Clear the task, as a person does in Airflow. Then call :meth:`run`."""
        self.max_tries = self.try_number + (self._operator.retries or 0)

    def crash_points(self) -> list[str]:
        """Return the points that the last try has passed, in order: before and after each call of a hook and of the store."""
        return list(self._points)

    def _to_the_end(self, life: _Life, ti: _TaskInstance) -> Any:
        """Run a try in as many processes as it takes: one more after each reschedule and each deferral."""
        method, arguments = "execute", dict[str, Any]()
        while True:
            operator = self._process(life)
            try:
                return contextvars.copy_context().run(self._in_task, operator, ti, method, arguments, life)
            except TaskDeferred as deferred:
                method, arguments = deferred.method_name, {**(deferred.kwargs or {}), "event": None}
                self.clock.sleep(60)
            except AirflowRescheduleException as reschedule:
                wait = (reschedule.reschedule_date - datetime.now(timezone.utc)).total_seconds()
                self.clock.sleep(max(wait, 0))
                ti.rescheduled_at = datetime.now(timezone.utc) - timedelta(seconds=sum(self.clock.sleeps))

    def _process(self, life: _Life) -> Any:
        """A new process has the operator as its DAG file makes it."""
        operator: Any = copy.copy(self._operator)
        operator._job_clock = self.clock
        for hook in HOOKS:
            if hasattr(operator, hook):
                setattr(operator, hook, life.wrapped(hook, getattr(operator, hook)))
        return operator

    def _in_task(self, operator: Any, ti: _TaskInstance, method: str, arguments: dict[str, Any], life: _Life) -> Any:
        ExecutorSafeguard.tracker.set(operator)
        ti.task = operator
        context = {"ti": ti, "task_instance": ti, "task": operator, "run_id": ti.run_id}
        context |= {"task_state_store": _Line(self.store, life), **self.context}
        return getattr(operator, method)(context, **arguments)

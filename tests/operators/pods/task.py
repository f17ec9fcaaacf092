"""A task of which each try is run in this process: the state store, the context and the server's word, without an Airflow."""

from __future__ import annotations

import contextvars
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.operator import ExecutorSafeguard
from kubernetes.client.rest import RESTClientObject
from kubernetes.stream import ws_client


class Killed(BaseException):
    """SIGKILL: nothing that the task's process would do after this happens."""


@dataclass
class Death:
    """When the process dies: at its n-th call to the cluster or the store, or at one that matches; before or after it.

    A call is ``GET http://...`` or ``set KEY``. Once dead, every further call is the end again, so that no clean-up of a
    living process changes anything.
    """

    at: int | None = None
    match: str | None = None
    after: bool = False
    instead: Callable[[], None] | None = None
    """Called first, as the handler of a SIGTERM is; if it returns, the process has until it follows a log."""
    calls: list[str] = field(default_factory=list)
    dead: bool = False

    @contextmanager
    def call(self, what: str) -> Iterator[None]:
        if self.dead:
            raise Killed
        self.calls.append(what)
        due = len(self.calls) == self.at or (self.match is not None and bool(re.search(self.match, what)))
        if due and not self.after and not self.instead:
            self.die()
        yield
        if due and self.instead:
            handler, self.instead = self.instead, None
            self.match, self.after = "GET .*/log", False
            handler()
        elif due:
            self.die()

    def die(self) -> None:
        self.dead = True
        raise Killed

    @contextmanager
    def over_client(self) -> Iterator[None]:
        """Let the official client's requests pass here."""
        request, connect = RESTClientObject.request, ws_client.create_websocket

        def counted(client: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
            with self.call(f"{method} {url}"):
                answers.append(request(client, method, url, *args, **kwargs))
                return answers[-1]

        def connected(configuration: Any, url: str, headers: Any = None) -> Any:
            with self.call(f"EXEC {url}"):
                streams.append(connect(configuration, url, headers))
                return streams[-1]

        answers: list[Any] = []
        streams: list[Any] = []
        RESTClientObject.request = counted
        ws_client.create_websocket = connected
        try:
            yield
        finally:
            RESTClientObject.request = request
            ws_client.create_websocket = connect
            for answer in answers:
                answer.close()
            for stream in streams:
                stream.shutdown()


@dataclass
class Store:
    """Task state, as the accessor in a task's context gives it."""

    values: dict[str, Any] = field(default_factory=dict)
    retentions: set[Any] = field(default_factory=set)
    death: Death = field(default_factory=Death)

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        assert value is not None
        with self.death.call(f"set {key}"):
            # As it is after a journey through JSON.
            self.values[key] = json.loads(json.dumps(value))
            self.retentions.add(retention)


@dataclass
class Task:
    """Tries of one task. ``state`` is what the server says of it when it is asked."""

    operator: type
    arguments: dict[str, Any] = field(default_factory=dict)
    store: Store = field(default_factory=Store)
    try_number: int = 0
    max_tries: int = 2
    state: Any = "running"
    xcoms: dict[str, Any] = field(default_factory=dict)

    def build(self, **more: Any) -> Any:
        with DAG("pods", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
            return self.operator(task_id="work", **{**self.arguments, **more})

    def context(self, operator: Any) -> Any:
        def get_task_states(**_: Any) -> Any:
            if isinstance(self.state, Exception):
                raise self.state
            return {"r1": {"work": self.state}}

        ti = SimpleNamespace(
            dag_id="pods",
            task_id="work",
            run_id="r1",
            map_index=-1,
            try_number=self.try_number,
            max_tries=self.max_tries,
            start_date=datetime.now(timezone.utc),
            xcom_push=lambda key, value: self.xcoms.__setitem__(key, value),
            get_task_states=get_task_states,
        )
        return {"ti": ti, "run_id": "r1", "dag": operator.dag, "task_state_store": self.store, "task": operator}

    def run(self, death: Death | None = None, *, operator: Any = None) -> Any:
        """One more try, by a process of its own as far as memory goes; returns what it returns."""
        self.try_number += 1
        self.store.death = death = death or Death()
        with death.over_client():
            return self.call(operator or self.build())

    def killed(self, death: Death) -> None:
        """One more try, which dies."""
        with pytest.raises(Killed):
            self.run(death)

    def call(self, operator: Any, method: str = "execute", **arguments: Any) -> Any:
        called = contextvars.copy_context()
        called.run(ExecutorSafeguard.tracker.set, operator)
        return called.run(getattr(operator, method), self.context(operator), **arguments)

    def clear(self) -> None:
        """As the API server does: the tries so far no longer count."""
        self.max_tries += self.try_number

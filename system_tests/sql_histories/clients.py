"""What writers of every database have in common: clients that run transactions of drawn kinds until they are stopped."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta, timezone
from random import Random
from threading import Event, Thread
from typing import Any, TypeAlias

KEYS = 400
HOT = 100_000
"""The key of the row that is updated all the time."""

Kind: TypeAlias = Callable[[Any], None]


class Client(Thread):
    """One client. Each has keys of its own, so that none waits for the locks of one that is idle in its transaction."""

    def __init__(self, number: int, stop: Event, *, client_lag: float = 0.4) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.number, self.stop = number, stop
        self.random = Random(number)  # noqa: S311
        self.client_lag = client_lag
        self.error: BaseException | None = None
        self.transactions = 0

    @abstractmethod
    def connect(self) -> AbstractContextManager[Any]:
        """Return a connection to be closed at the end; what the kinds of transactions are given."""

    @abstractmethod
    def kinds(self) -> list[Kind]:
        """Return the kinds of transactions to draw from."""

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                with self.connect() as connection:
                    for _ in range(20):
                        if not self.stop.is_set():
                            self.transactions += 1
                            self.random.choice(self.kinds())(connection)
        except BaseException as error:
            self.error = error

    def key(self) -> int:
        return self.number * KEYS + self.random.randrange(KEYS)

    def client_time(self) -> datetime:
        """Return the time by a client whose clock is slow."""
        return datetime.now(timezone.utc) - timedelta(seconds=self.random.uniform(0, self.client_lag))

    def wait(self, least: float, most: float) -> None:
        self.stop.wait(self.random.uniform(least, most))

"""What an operator has logged, as text."""

from __future__ import annotations

from typing import Any


class Lines:
    """Stands in for an operator's ``log``."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _log(self, text: str, *args: Any, **kwargs: Any) -> None:
        self.lines.append(text % args if args else text)

    debug = info = warning = error = _log

    def __contains__(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def having(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]


def listen(operator: Any) -> Lines:
    """Have an operator, and the copies that a harness makes of it, log into what is returned."""
    lines = Lines()
    operator.__dict__["_cached_logger"] = lines
    log: object = operator.log
    assert log is lines
    return lines

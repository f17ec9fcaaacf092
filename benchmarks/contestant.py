"""Run one contestant of a benchmark in a fresh process, whose memory and processor time are then its own."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
Figures = dict[str, dict[str, float]]


class Absent(Exception):
    """A contestant has no figures."""


@dataclass(frozen=True)
class Contestant:
    """A coroutine function, by module and name, that is called with its target (where the server is), its label and options."""

    label: str
    module: str
    function: str
    options: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable

    def run(self, target: Any) -> Figures:
        """Return the figures of each of its runs. Raises :class:`Absent`."""
        with tempfile.TemporaryDirectory() as place:
            answer = Path(place) / "figures.json"
            order = {"target": target, "label": self.label, "options": dict(self.options), "answer": str(answer)}
            command = [self.python, "-m", __name__, self.module, self.function, json.dumps(order)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise Absent(f"failed: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
            figures: Figures | None = json.loads(answer.read_text())
            if figures is None:
                raise Absent("not in this release")
            return figures


def main(module: str, function: str, text: str) -> None:
    order = json.loads(text)
    contestant = getattr(import_module(module), function)
    assert inspect.iscoroutinefunction(contestant)
    try:
        runs = asyncio.run(contestant(order["target"], order["label"], **order["options"]))
    except Exception as error:
        if type(error).__name__ != "NotYet":
            raise
        runs = None
    figures = runs if runs is None else {label: run.figures() for label, run in runs.items()}
    Path(order["answer"]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])

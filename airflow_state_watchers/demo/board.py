"""How the demo shows what happens: a table that changes on a terminal, lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from airflow_state_watchers.demo.story import Facts, Stage

if TYPE_CHECKING:
    from typing_extensions import Self


class Board:
    """A context manager around the waves; each wave is a row."""

    def __init__(self) -> None:
        self.console = Console(soft_wrap=True)
        self._rows: list[tuple[str, Facts, Facts]] = []
        self._live = Live(console=self.console, refresh_per_second=4) if self.console.is_terminal else None
        self.last = Facts()
        self._line = ""

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *reason: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)

    def wave(self, name: str) -> None:
        """A wave begins; what changes from now on is its doing."""
        self._rows.append((name, self.last, self.last))
        if not self._live:
            self.say(f"== {name}")

    def show(self, facts: Facts) -> None:
        name, before, _ = self._rows[-1]
        self._rows[-1] = (name, before, facts)
        self.last = facts
        if self._live:
            self._live.update(self._table())
            return
        line = (
            f"   uploaded {facts.uploaded}, events {facts.events}, DAG runs {_runs(facts)}, "
            f"processed {len(facts.processed)}, watermark {facts.watermark}"
        )
        if line != self._line:
            self._line = line
            self.say(line)

    def _table(self) -> Table:
        table = Table(title="Objects become DAG runs")
        for column in ("wave", "uploaded", "events", "DAG runs", "processed", "watermark"):
            table.add_column(column, justify="left" if column in ("wave", "watermark") else "right")
        for name, before, facts in self._rows:
            uploaded, seen = facts.uploaded - before.uploaded, len(facts.processed) - len(before.processed)
            table.add_row(
                name,
                f"{uploaded:,}",
                str(facts.events - before.events),
                str(sum(facts.runs.values()) - sum(before.runs.values())),
                f"[{'green' if seen >= uploaded else 'yellow'}]{seen:,}[/]",
                facts.watermark,
            )
        return table

    def summary(self, stage: Stage, seconds: float) -> bool:
        """Print how it ended; return whether every object version was processed."""
        facts = stage.look()
        lost = stage.uploaded - set(facts.processed)
        once = sum(1 for version in stage.uploaded if facts.processed[version] == 1)
        self.say("")
        self.say(f"object versions uploaded      {len(stage.uploaded):>6,}")
        self.say(f"processed exactly once        {once:>6,}")
        self.say(f"processed more than once      {len(stage.uploaded) - once - len(lost):>6,}")
        self.say(f"lost                          {len(lost):>6,}")
        self.say(f"delivered twice, dropped by the inbox {facts.delivered - sum(facts.processed.values()):>,}")
        self.say(f"asset events {facts.events}, DAG runs {_runs(facts)}, kills of the triggerer {stage.kills}")
        self.say(f"took {seconds:.0f} s")
        if lost:
            self.say("LOST: " + ", ".join(key for key, _ in sorted(lost)[:10]))
        return not lost


def _runs(facts: Facts) -> str:
    total = sum(facts.runs.values())
    open_ = facts.runs["running"] + facts.runs["queued"]
    return f"{total} ({open_} open)" if open_ else str(total)

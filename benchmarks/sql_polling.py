"""What does it cost to poll a table of five million rows for new ones, in our watcher and in other ways?

Each contestant has a fresh process, and polls a table of 10 thousand, one million and five million rows in a PostgreSQL of its
own: with nothing new, and with 1,000 new rows before each poll. Told of each poll: its time, the database's (plans and
executions of all its statements, by pg_stat_statements; *active* also counts parsing and the protocol), the processor time of
the client, and how long the event loop was held, where there is one, with and without waiting for a core. Then the plans of
our statements as the server ran them, the row-value form of "after this row" against the one with OR, and, from the largest
table, reading many rows at once.

    make bench-sql_polling ARGS="--sizes 10000 --new-polls 5 --backlog 5000"
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from benchmarks.contestant import Absent, Contestant, Figures
from benchmarks.result import RESULTS, Result
from benchmarks.sql_backlog import WAYS
from benchmarks.sql_plans import keyset
from benchmarks.sql_table import NEW, Table, filled, server

OURS, PEERS, BACKLOG, PLANS = (f"benchmarks.sql_{name}" for name in ("ours", "peers", "backlog", "plans"))
WATCHER, READER = "ours", "ours, rows"
STORED = "SELECT ... > stored value"
SENSOR = "SqlSensor's poke"
DLT, DLT_EXTRACT = "dlt's incremental resource", "dlt's pipeline.extract"
OFFSET = "OFFSET paging"
COLUMNS = {
    "wall, ms": "wall ms",
    "p99 wall, ms": "p99",
    "database, ms": "db ms",
    "p99 database, ms": "p99",
    "active, ms": "active ms",
    "statements": "stmts",
    "CPU, ms": "CPU ms",
    "longest stall, ms": "longest",
    "longest wait-free stall, ms": "no wait",
    "most CPU between beats, ms": "CPU/beat",
    "rows/s": "rows/s",
}
READING = {"seconds": "seconds", "rows/s": "rows/s", "CPU seconds": "CPU s", "peak, MB": "peak MB"}
PLANNED = {
    "statements": "stmts",
    "index scans": "index",
    "sequential scans": "seq",
    "bitmap scans": "bitmap",
    "sorts": "sorts",
    "most buffers": "buffers",
    "slowest, ms": "slowest",
}
COMPARED = ("wall, ms", "database, ms", "active, ms", "CPU, ms")
WIDTH = 42
MOST_DATABASE, MOST_STALL = 2.0, 10.0
"""Milliseconds that a poll without news may take of the database, and hold the loop (issue 4)."""


def pollers(limits: dict[str, int]) -> list[Contestant]:
    return [
        Contestant(WATCHER, OURS, "watcher", limits),
        Contestant(STORED, PEERS, "stored_value", limits),
        Contestant(SENSOR, PEERS, "sensor", limits),
        Contestant(DLT, PEERS, "dlt_iterated", limits),
        Contestant(DLT_EXTRACT, PEERS, "dlt_extracted", limits),
        Contestant(OFFSET, PEERS, "offset", limits),
    ]


def readers(rows: int) -> list[Contestant]:
    return [Contestant(way, BACKLOG, "backlog", {"rows": rows, "way": way}) for way in WAYS]


def compete(table: Table, contestants: Iterable[Contestant], columns: dict[str, str]) -> Figures:
    """Run one after the other on the same rows, and print what each did."""
    figures: Figures = {}
    for contestant in contestants:
        try:
            runs = contestant.run(asdict(table.target))
        except Absent as reason:
            print(f"{contestant.label:<{WIDTH}}  {reason}", flush=True)
            continue
        finally:
            table.restore()
        for label, run in runs.items():
            row(label, run, columns)
        figures |= runs
    return figures


def row(label: str, values: dict[str, float], columns: Iterable[str], sign: str = "") -> None:
    cells = [f"{values[column]:,.4g}{sign}" if column in values else "-" for column in columns]
    print(f"{label:<{WIDTH}}" + "".join(f"{cell:>10}" for cell in cells), flush=True)


def heading(text: str, columns: Iterable[str]) -> None:
    print(f"\n{text:<{WIDTH}}" + "".join(f"{column:>10}" for column in columns), flush=True)


def compare(figures: Figures) -> Figures:
    """Return how many times more than ours each of the others takes; with news, ours polls *and* reads, but for the sensor."""
    found: Figures = {}
    news = f": {NEW:,} new"
    for label in (STORED, SENSOR, DLT, DLT_EXTRACT, OFFSET):
        with_news = WATCHER + news + ("" if label == SENSOR else ", polled and read")
        for theirs, ours in ((label, WATCHER), (label + news, with_news)):
            if theirs in figures and ours in figures:
                one, other = figures[theirs], figures[ours]
                found[theirs] = {what: one[what] / other[what] for what in COMPARED if what in one and what in other}
    return found


def measure(table: Table, limits: dict[str, int], result: Result) -> list[str]:
    """Poll one table in all ways; return the texts of the plans."""
    size = f"{table.target.rows:,} rows"
    heading(size, COLUMNS.values())
    figures = compete(table, pollers(limits), COLUMNS)
    heading("times what ours takes", [COLUMNS[what] for what in COMPARED])
    for label, values in compare(figures).items():
        row(label, values, COMPARED, "x")
        result.ratios |= {f"{size}: {label} over ours: {what}": value for what, value in values.items()}
    heading("plans", PLANNED.values())
    plans = compete(table, [Contestant("ours", PLANS, "ours")], PLANNED)
    texts = [str(run.pop("text")) for run in plans.values()]
    forms, their_plans = keyset(table)
    for label, milliseconds in forms.items():
        print(f"{f'a page from the middle, by {label}':<{WIDTH}}{milliseconds:>10.4g} ms", flush=True)
        result.figures[f"{size}: a page from the middle, by {label}: ms"] = milliseconds
        result.ratios[f"{size}: a page by {label} over by row values"] = milliseconds / forms["row values"]
    keep(result, size, figures)
    keep(result, f"{size}: plans", plans)
    return [f"# {size}", *texts, *(plan.text for plan in their_plans)]


def read(table: Table, rows: int, result: Result) -> None:
    """Read many rows of one table in all ways."""
    heading(f"{rows:,} rows at once", READING.values())
    figures = compete(table, readers(rows), READING)
    keep(result, f"{table.target.rows:,} rows: {rows:,} at once", figures)
    result.ratios |= {
        f"{rows:,} rows at once: {label} over {READER}: seconds": run["seconds"] / figures[READER]["seconds"]
        for label, run in figures.items()
        if READER in figures and label != READER
    }


def keep(result: Result, prefix: str, figures: Figures) -> None:
    result.figures |= {f"{prefix}: {label}: {what}": v for label, run in figures.items() for what, v in run.items()}


def judge(result: Result, sizes: Sequence[int]) -> None:
    """Print how our polls without news stand to what the issue allows."""
    least, most = (f"{size:,} rows: {WATCHER}: " for size in (min(sizes), max(sizes)))
    figures = result.figures
    if most + "database, ms" not in figures or least + "database, ms" not in figures:
        return
    print(f"\nOurs, nothing new, {max(sizes):,} rows:")
    for what, allowed in (
        ("database, ms", MOST_DATABASE),
        ("active, ms", MOST_DATABASE),
        ("longest stall, ms", MOST_STALL),
        ("longest wait-free stall, ms", MOST_STALL),
    ):
        if most + what in figures:
            print(f"  {what:<28}{figures[most + what]:>8.3g}, at most {allowed:g}")
    for what in ("database, ms", "wall, ms"):
        flat = figures[most + what] / figures[least + what]
        result.ratios[f"ours, nothing new, {max(sizes):,} rows over {min(sizes):,}: {what}"] = flat
        print(f"  {what:<28}{flat:>8.3g}x that of {min(sizes):,} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000, 5_000_000])
    parser.add_argument("--quiet-polls", type=int, default=200, help="polls without news, at most")
    parser.add_argument("--new-polls", type=int, default=10, help="polls with new rows, at most")
    parser.add_argument("--backlog", type=int, default=200_000, help="rows to read at once")
    asked = parser.parse_args()
    result = Result("sql_polling", {"load of the machine": round(os.getloadavg()[0], 1)})
    limits = {"quiet": asked.quiet_polls, "new": asked.new_polls}
    texts = []
    with server() as running:
        for size in asked.sizes:
            table = filled(running, size)
            texts += measure(table, limits, result)
            if size == max(asked.sizes):
                read(table, min(asked.backlog, size // 2), result)
            table.close()
    judge(result, asked.sizes)
    result.write()
    path = RESULTS / "sql_polling_plans.txt"
    path.write_text("\n\n".join(texts) + "\n")
    print(f"plans: {path.name}")


if __name__ == "__main__":
    main()

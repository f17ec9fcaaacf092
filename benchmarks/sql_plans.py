"""How PostgreSQL runs the statements: plans of our own as they were run, and two ways to say "after this row" side by side."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sql_ours import SETTLED, Watcher, load_airflow
from benchmarks.sql_table import Table, Target

TABLE = "orders"
OPTIONS = (
    "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 -c auto_explain.log_analyze=on "
    "-c auto_explain.log_buffers=on -c auto_explain.log_format=json"
)
PLAN = re.compile(r"duration: ([\d.]+) ms  plan:\n((?:\t.*\n)+)")
CONDITIONS = ("Index Cond", "Filter", "Sort Key")
REPEATS = 5

AFTER = "SELECT * FROM orders WHERE {} ORDER BY updated_at, id LIMIT 1000"
ROW_VALUES = "(updated_at, id) > (%s, %s)"
OR_FORM = "updated_at > %s OR (updated_at = %s AND id > %s)"
BOUNDED_OR = "updated_at >= %s AND (updated_at > %s OR (updated_at = %s AND id > %s))"


@dataclass(frozen=True)
class Plan:
    """A statement that reads the table, as it was planned and run."""

    what: str
    query: str
    milliseconds: float
    nodes: tuple[tuple[int, dict[str, Any]], ...]

    def count(self, *kinds: str) -> int:
        """Count the nodes that were run, but for those of the catalogue; what stands under ``LIMIT 0`` is planned and never run."""
        return sum(
            node["Node Type"] in kinds and node["Actual Loops"] > 0 and node.get("Relation Name", TABLE) == TABLE
            for _, node in self.nodes
        )

    @property
    def text(self) -> str:
        lines = [f"{self.what}: {self.milliseconds:g} ms, {self.buffers} buffers", f"  {' '.join(self.query.split())}"]
        for depth, node in self.nodes:
            index = f" using {node['Index Name']}" if "Index Name" in node else ""
            relation = f" on {node['Relation Name']}" if "Relation Name" in node else ""
            ran = f"rows={node['Actual Rows']:g}" if node["Actual Loops"] else "never run"
            lines.append(f"    {'  ' * depth}{node['Node Type']}{index}{relation} ({ran})")
            lines += [f"    {'  ' * depth}    {name}: {node[name]}" for name in CONDITIONS if name in node]
        return "\n".join(lines)

    @property
    def buffers(self) -> int:
        _, root = self.nodes[0]
        return int(root.get("Shared Hit Blocks", 0) + root.get("Shared Read Blocks", 0))


def plan_of(what: str, query: str, milliseconds: float, root: dict[str, Any]) -> Plan:
    return Plan(what, query, milliseconds, tuple(_walk(root, 0)))


def _walk(node: dict[str, Any], depth: int) -> Iterator[tuple[int, dict[str, Any]]]:
    yield depth, {name: value for name, value in node.items() if name != "Plans"}
    for inner in node.get("Plans", ()):
        yield from _walk(inner, depth + 1)


class Log:
    """The server's log, in which auto_explain notes each statement of the sessions that ask for it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._offset = 0
        self.plans("")

    def plans(self, what: str) -> list[Plan]:
        """Return what was run on the table since the last call."""
        with self._path.open() as file:
            file.seek(self._offset)
            text = file.read()
            self._offset = file.tell()
        plans = []
        for milliseconds, body in PLAN.findall(text):
            found = json.loads(body)
            plan = plan_of(what, found["Query Text"], float(milliseconds), found["Plan"])
            if any(node.get("Relation Name") == TABLE for _, node in plan.nodes):
                plans.append(plan)
        return plans


@dataclass
class Plans:
    plans: list[Plan]

    def figures(self) -> dict[str, Any]:
        return {
            "statements": len(self.plans),
            "index scans": sum(plan.count("Index Scan", "Index Only Scan") for plan in self.plans),
            "sequential scans": sum(plan.count("Seq Scan", "Parallel Seq Scan") for plan in self.plans),
            "bitmap scans": sum(plan.count("Bitmap Heap Scan") for plan in self.plans),
            "sorts": sum(plan.count("Sort", "Incremental Sort") for plan in self.plans),
            "most buffers": max(plan.buffers for plan in self.plans),
            "slowest, ms": max(plan.milliseconds for plan in self.plans),
            "text": "\n\n".join(plan.text for plan in self.plans),
        }


async def ours(where: dict[str, Any], name: str) -> dict[str, Plans]:
    """Poll with and without news, and read, in sessions whose statements the server notes. Counts and a text of each."""
    target = Target(**where)
    load_airflow(target, user="postgres", options=OPTIONS)  # only a superuser's session may load auto_explain
    table, subject = Table(target), Watcher()
    log = Log(target.log)
    runs = {}

    def note(what: str) -> None:
        runs[f"{name}: {what}"] = Plans(log.plans(what))

    await subject.poll()
    log.plans("")
    await subject.poll()
    note("poll, nothing new")
    table.add()
    await asyncio.sleep(SETTLED)
    await subject.poll()
    note("poll, 1,000 new")
    subject.read()
    note("window.rows, 1,000")
    return runs


def keyset(table: Table) -> tuple[dict[str, float], list[Plan]]:
    """Read a page of 1,000 rows from the table's middle on, "after this row" being said in three ways; execution in ms."""
    middle = table.target.rows // 2
    value = table.value_at(middle)
    forms = {
        "row values": (ROW_VALUES, (value, middle)),
        "OR": (OR_FORM, (value, value, middle)),
        "OR with a lower bound": (BOUNDED_OR, (value, value, value, middle)),
    }
    figures, plans = {}, []
    for name, (condition, parameters) in forms.items():
        query = AFTER.format(condition)
        found = [table.explain(query, parameters) for _ in range(REPEATS)]
        figures[name] = statistics.median(each["Execution Time"] for each in found)
        plans.append(plan_of(f"a page after the middle row: {name}", query, figures[name], found[-1]["Plan"]))
    return figures, plans

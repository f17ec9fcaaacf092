"""What was taken from an inbox before: by this task, or by others that have succeeded, failed or are still at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from airflow_state_watchers.core.bookmark import Bookmark
from airflow_state_watchers.core.chain import Event
from airflow_state_watchers.core.micros import micros_of, moment_of
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Fate, Question, Slot, Take, cut, flatten, select
from airflow_state_watchers.tasks.reading import Findings, scan
from airflow_state_watchers.tasks.rules import Rules
from airflow_state_watchers.tasks.surroundings import Opener, TaskStates

Given = tuple[Event, Numbers]
"""An event and the positions of it that are given."""

_FATES = {
    "success": Fate.DONE,
    "failed": Fate.FAILED,
    "upstream_failed": Fate.FAILED,
    # Skipped is not succeeded: whoever skips what was taken and wants it gone calls commit() first.
    "skipped": Fate.FAILED,
    "removed": Fate.FAILED,
}
_RUNNING = "running"


def fates_of(questions: Iterable[Question], tasks: TaskStates) -> dict[Question, dict[int, Fate]]:
    """Ask Airflow what became of the tasks that hold something."""
    by_task: dict[tuple[str, str], set[str]] = {}
    for dag_id, task_id, run_id in questions:
        by_task.setdefault((dag_id, task_id), set()).add(run_id)
    fates: dict[Question, dict[int, Fate]] = {}
    for (dag_id, task_id), run_ids in by_task.items():
        states = tasks.states(dag_id, task_id, run_ids)
        for run_id in run_ids:
            fates[dag_id, task_id, run_id] = _fates_in_run(dag_id, run_id, states.get(run_id, {}), tasks)
    return fates


def _fates_in_run(dag_id: str, run_id: str, states: Mapping[int, str | None], tasks: TaskStates) -> dict[int, Fate]:
    fates = {map_index: _FATES.get(state or "", Fate.ACTIVE) for map_index, state in states.items()}
    waiting = [i for i, fate in fates.items() if fate is Fate.ACTIVE and states[i] != _RUNNING]
    if waiting and tasks.run_finished(dag_id, run_id):
        # Nothing starts any more in a finished run: what still waits there waits for ever.
        fates.update(dict.fromkeys(waiting, Fate.FAILED))
    return fates


def own_again(take: Take, findings: Findings, rules: Rules) -> Take:
    """Read this task's own earlier take again."""
    slots, missing = _read(take, findings)
    if not missing:
        return take
    rules.gap(_missing(take, missing))
    size = sum(len(slot.positions) for slot in slots)
    everything = Numbers.span(0, size)
    return replace(take, pieces=cut(_given(slots)), size=size, numbers=everything, left=everything)


def taken_over(take: Take, numbers: Numbers, findings: Findings, rules: Rules) -> list[Given]:
    """Read what another task took and will not finish."""
    slots, missing = _read(take, findings)
    if missing:
        # The numbers count through events that are gone. Whatever is there is given: a repeat rather than a loss.
        rules.gap(_missing(take, missing))
        numbers = Numbers.span(0, take.size)
    return _given(select(slots, numbers))


def missed(bookmark: Bookmark, opener: Opener, findings: Findings) -> list[Given]:
    """Read the events that triggered this very run and that nobody remembers to have given to it.

    They came before this consumer began, or the run was cleared and lies further back than is remembered.
    """
    times = [micros_of(time) for time, _ in opener.triggered_by]
    span = bookmark.missed(opener.holder, times, cleared=opener.max_tries > opener.retries)
    if span is None:
        return []
    wanted = set(opener.triggered_by)
    remembered = bookmark.given()
    given: list[Given] = []
    for raw in scan(findings.log, *span):
        if raw.payload is None or (raw.time, raw.payload["batch_id"]) not in wanted:
            continue
        if raw.id not in remembered:
            event = findings.add(raw)
            given.append((event, Numbers.span(0, event.count)))
    return given


def _read(take: Take, findings: Findings) -> tuple[list[Slot], list[int]]:
    findings.read(take.pieces)
    return flatten(take.pieces, findings.events)


def _given(slots: Iterable[Slot]) -> list[Given]:
    return [(slot.event, slot.positions) for slot in slots]


def _missing(take: Take, missing: Sequence[int]) -> str:
    first, last = (min(piece.first for piece in take.pieces), max(piece.last for piece in take.pieces))
    return (
        f"of the events that task {take.holder.task_id} of run {take.holder.run_id} took between {moment_of(first)} and "
        f"{moment_of(last)}, {len(missing)} are missing."
    )

"""The pages on resumable jobs: their examples run as they stand, and their tables are those of the code."""

from __future__ import annotations

import difflib
import importlib.util
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_state_watchers import ResumableJobMixin
from airflow_state_watchers.core.resume import ResumeDecision
from airflow_state_watchers.job_harness import WorkerDied
from airflow_state_watchers.operators import stopping
from airflow_state_watchers.testing import JobHarness
from tests.core.resume_table import TABLE, Cell
from tests.operators.job_service import JobClient, JobService
from tests.operators.test_crash_sweep import WINDOW

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).with_name("examples")
REFERENCE = (ROOT / "docs/reference/resume.rst").read_text()
HOWTO = (ROOT / "docs/howto/make_resumable.rst").read_text()


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("reports")
    module.ReportsClient = JobClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reports", module)


def example(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["RunReport"]


def test_the_example_takes_less_than_twenty_new_lines() -> None:
    before, after = ((EXAMPLES / f"{name}.py").read_text() for name in ("report_before", "report_resumable"))
    changes = difflib.ndiff(before.splitlines(), after.splitlines())
    added = sum(line.startswith("+ ") and line[2:].strip() != "" for line in changes)
    assert f"{added} lines are new" in HOWTO
    assert added < 20


def test_the_example_starts_a_second_job_as_it_was_and_none_as_it_is(
    service: JobService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.behaviour.idempotent = True
    before, after = (
        JobHarness(example(name)(task_id="report", report="sales", address=service.address, retries=1))
        for name in ("report_before", "report_resumable")
    )

    def die(seconds: float) -> None:
        raise WorkerDied

    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", die)
        assert before.run() is None
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert before.retry() == "s3://reports/sales"
    assert len(service.jobs) == 2
    after.run(crash_at="after get_job_status")
    assert after.retry() == "s3://reports/sales"
    assert len(service.jobs) == 3


def cell(shown: Cell | None) -> str:
    if shown is None:
        return "cannot be"
    text = f"``{shown.decision.name}``"
    if shown.same_token:
        text += ", same token"
    if shown.otherwise is not None:
        note = "gone" if shown.decision is ResumeDecision.SUBMIT else "cancel"
        text += f" or ``{shown.otherwise.name}`` [#{note}]_"
    return text


def test_the_decision_table_is_that_of_the_code() -> None:
    rows = re.findall(r"^   \* - (.*)\n     - (.*)\n     - (.*)\n     - (.*)\n     - (.*)$", REFERENCE, re.MULTILINE)
    told = [tuple(row[2:]) for row in rows[1:]]
    assert told == [(cell(row.retry), cell(row.rerun), cell(row.reuse)) for row in TABLE]
    assert [row[0].partition(" (")[0] for row in rows[1:]] == [row.stands for row in TABLE]


def test_every_policy_and_hook_is_in_the_reference_with_its_default() -> None:
    told = dict(re.findall(r"^   \* - ``(\w+)``\n     - ``(.*)``$", REFERENCE, re.MULTILINE))
    policies = [
        name
        for name in vars(ResumableJobMixin)
        if not name.startswith("_") and name in ResumableJobMixin.__annotations__
    ]
    assert list(told) == [name for name in policies if name != "job_token"]
    for name, default in told.items():
        assert repr(getattr(ResumableJobMixin, name)).replace("'", '"') == default
    hooks = {name for name, value in vars(ResumableJobMixin).items() if callable(value) and not name.startswith("_")}
    for hook in hooks - {"execute_resumable", "resume_job", "on_kill"}:
        assert hook in REFERENCE, hook


def test_the_window_that_remains_is_told() -> None:
    for point in WINDOW:
        assert point.partition("(")[0].split()[-1] in REFERENCE


def test_the_states_in_which_a_job_is_cancelled_are_told() -> None:
    (told,) = re.findall(r"states \*(.*)\*", REFERENCE)
    assert set(told.split(", ")) == stopping._OVER


def test_the_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"``(tests/[\w/]+\.py)::(\w+)``", REFERENCE)
    assert named
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_the_how_tos_test_is_python() -> None:
    assert importlib.util.find_spec("airflow_state_watchers.testing") is not None
    for block in re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", HOWTO):
        compile("\n".join(line[4:] for line in block.splitlines()), "make_resumable.rst", "exec")

"""What a resumable job shows of itself: upstream's span and counters under upstream's names, and a counter of ours beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk.observability import stats
from opentelemetry import trace

from airflow_state_watchers.core.resume import JobPhase, ResumeDecision

_tracer = trace.get_tracer(__name__)

_UPSTREAM = {
    ResumeDecision.REATTACH: ("reconnect", "resumable_job.reconnect_success"),
    ResumeDecision.COLLECT: ("already_succeeded", "resumable_job.already_succeeded"),
}


class Telemetry:
    def __init__(self, operator: Any, ti: Any) -> None:
        self._operator = type(operator).__name__
        self._key = operator.external_id_key
        self._tags = {"operator": self._operator}
        if team := getattr(ti, "stats_tags", {}).get("team_name"):
            self._tags["team_name"] = team

    @contextmanager
    def span(self) -> Iterator[Any]:
        with _tracer.start_as_current_span("resumable_job.resume_decision") as span:
            span.set_attribute("operator", self._operator)
            span.set_attribute("resumable.external_id_key", self._key)
            yield span

    def decided(
        self, span: Any, decision: ResumeDecision, *, external_id: Any, phase: JobPhase, status: str | None
    ) -> None:
        """Count a decision, by upstream's name of it where it has one."""
        if external_id is not None:
            stats.incr("resumable_job.reconnect_attempt", tags=self._tags)
            span.set_attribute("resumable.external_id", str(external_id))
            span.set_attribute("resumable.prior_status", str(status or phase.value))
        name, counter = _UPSTREAM.get(decision, (decision.name.lower(), None))
        if decision is ResumeDecision.SUBMIT:
            name = "fresh_submit" if external_id is None else "terminal_resubmit"
            counter = f"resumable_job.{name}"
        span.set_attribute("resumable.decision", name)
        if counter is not None:
            stats.incr(counter, tags=self._tags)
        stats.incr("resumable_job.decision", tags={**self._tags, "decision": decision.name.lower()})

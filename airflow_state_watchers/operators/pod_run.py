"""One try's way to its pod: look, decide by the table of all resumable jobs, do it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kubernetes.client import ApiException
from kubernetes.client import models as k8s

from airflow_state_watchers.core.resume import (
    Circumstances,
    JobId,
    JobPhase,
    JobRecord,
    ResumeDecision,
    id_of,
    keeps_token,
    next_record,
    resolve_reconnect,
)
from airflow_state_watchers.core.resume_codec import digests_of, drifted
from airflow_state_watchers.exceptions import JobError, PodLost
from airflow_state_watchers.operators.pod_calls import NO_ANSWER, NameTaken, PodCalls, named
from airflow_state_watchers.operators.pod_look import PodFinder, PodLook
from airflow_state_watchers.operators.pod_memory import PodMemory
from airflow_state_watchers.operators.pod_outcome import CANCELLED, PodIdentifier, PodOutcome, identifier_of
from airflow_state_watchers.operators.stopping import Stop

if TYPE_CHECKING:
    from airflow_state_watchers.operators.pod import PodResumeMixin


_SHORT = 5.0
"""Seconds between two looks at a pod that is being deleted."""


@dataclass(frozen=True, slots=True)
class Standing:
    record: JobRecord | None
    stored: JobId
    look: PodLook
    now: Circumstances
    decision: ResumeDecision
    token: str


class PodRun:
    def __init__(
        self,
        operator: PodResumeMixin,
        ti: Any,
        memory: PodMemory,
        calls: PodCalls,
        stop: Stop,
        pause: Callable[..., None],
    ) -> None:
        self._operator, self._ti = operator, ti
        self._memory, self._calls = memory, calls
        self._stop, self._pause = stop, pause
        self._unknown = 0

    def obtain(self, request: k8s.V1Pod, finder: PodFinder) -> k8s.V1Pod:
        """Return the pod that this try goes by, started by whichever try; as it ended, if its object is gone.

        Raises :class:`PodLost` once too many were lost, :class:`JobError` where one of before a clear still runs.
        """
        while True:
            standing = self._decide(request, finder)
            decision, look = standing.decision, standing.look
            if decision is ResumeDecision.FAIL:
                raise self._refusal(standing)
            if decision is ResumeDecision.WAIT:
                self._wait(look.why)
            elif decision is ResumeDecision.ADOPT:
                assert standing.record is not None
                assert look.identifier is not None
                self._memory.remember(standing.record, look.identifier.dump())
            elif decision in (ResumeDecision.REATTACH, ResumeDecision.COLLECT):
                assert look.pod is not None
                self._hold_on_to(standing, look.pod)
                return look.pod
            else:
                try:
                    return self._submit(standing, request)
                except _NotSaid as error:
                    self._wait(str(error))

    def _decide(self, request: k8s.V1Pod, finder: PodFinder) -> Standing:
        record, stored = self._memory.load()
        external_id = id_of(record, stored)
        if external_id is not None:
            look = finder.look(self._memory.identifier(external_id), record)
        else:
            look = finder.search(None if record is None else record.token)
            # What upstream left behind counts as if its identifier were stored.
            external_id = look.identifier.dump() if record is None and look.identifier else None
        now = Circumstances(
            external_id=external_id,
            found=external_id is None and look.identifier is not None,
            max_tries=self._ti.max_tries,
            on_clear=self._operator.on_clear,
            same_job=self._is_same_job(record, request),
            can_cancel=self._operator.cancel_on_kill,
            max_resubmits=self._operator.max_pod_losses,
        )
        decision = resolve_reconnect(record, look.phase, now)
        if record is None and external_id is None and look.phase is JobPhase.UNKNOWN:
            decision = ResumeDecision.WAIT
        submits = decision in (ResumeDecision.SUBMIT, ResumeDecision.CANCEL_THEN_SUBMIT)
        keeps = record is not None and (keeps_token(record, now) or not submits)
        token = record.token if record is not None and keeps else str(uuid.uuid4())
        told = (token, decision.name, look.identifier, look.why)
        self._operator.log.info("resumable: token=%s, decision=%s, pod=%s (%s)", *told)
        return Standing(record, stored, look, now, decision, token)

    def _is_same_job(self, record: JobRecord | None, request: k8s.V1Pod) -> bool:
        changed = drifted(None if record is None else record.identity, self._identity(request))
        if changed:
            self._operator.log.info("the pod asked for has changed in %s; a retry does not mind", ", ".join(changed))
        return not changed

    def _identity(self, request: k8s.V1Pod) -> dict[str, str] | None:
        if self._operator.on_clear != "reuse":
            return None
        return digests_of(self._operator.pod_identity(request))

    def _hold_on_to(self, standing: Standing, pod: k8s.V1Pod) -> None:
        record = standing.record or JobRecord(token=standing.token, max_tries=standing.now.max_tries)
        external_id = identifier_of(pod).dump()
        wanted = replace(record, max_tries=standing.now.max_tries, external_id=external_id)
        if wanted != standing.record or standing.stored != external_id:
            self._memory.remember(wanted, external_id)

    def _submit(self, standing: Standing, request: k8s.V1Pod) -> k8s.V1Pod:
        self._make_room(standing)
        record = next_record(
            standing.record,
            standing.look.phase,
            standing.now,
            token=standing.token,
            stored=standing.stored,
            identity=self._identity(request),
        )
        named(request, record.token, random_suffix=getattr(self._operator, "random_name_suffix", False))
        with self._stop.held():
            self._memory.intend(record)
            pod = self._create(request, record.token, standing)
            self._memory.remember(record, identifier_of(pod).dump())
        self._operator.log.info("pod %s was created with token %s", identifier_of(pod), record.token)
        return pod

    def _create(self, request: k8s.V1Pod, token: str, standing: Standing) -> k8s.V1Pod:
        try:
            try:
                return self._calls.create(request, token)
            except NameTaken as taken:
                old = standing.look.identifier
                if old is None or taken.pod != old:
                    raise
                # The name is fixed, and what has it is this task's own pod, which is over.
                self._end(old)
                return self._calls.create(request, token)
        except NO_ANSWER as error:
            if _refused(error):
                raise JobError(f"pod {request.metadata.name} cannot be created: {error}") from error
            raise _NotSaid(f"it was not said whether pod {request.metadata.name} was created: {error}") from error

    def _make_room(self, standing: Standing) -> None:
        """End the old pod: one that still runs because a clear asks for another; one that is over as ``on_finish_action`` says."""
        look = standing.look
        if look.identifier is None or look.pod is None or not look.there:
            return
        if standing.decision is ResumeDecision.CANCEL_THEN_SUBMIT:
            self._operator.log.warning("deleting pod %s: the task was cleared and begins anew", look.identifier)
            self._end(look.identifier)
        elif look.pod.metadata.deletion_timestamp and look.pod.status.phase in ("Pending", "Running"):
            self._end(look.identifier)
        elif hasattr(self._operator, "process_pod_deletion"):
            self._operator.process_pod_deletion(look.pod, reraise=False)

    def _end(self, pod: PodIdentifier) -> None:
        """Delete the pod and wait until it is no more: two at once would write to the same places."""
        asked = False
        while True:
            try:
                if self._calls.read(pod) is None:
                    return
                if not asked:
                    self._calls.delete(pod)
                    asked = True
                    continue
            except NO_ANSWER as error:
                self._operator.log.warning("pod %s: %s. Waiting for its end.", pod, error)
            self._pause(_SHORT)

    def _wait(self, why: str) -> None:
        self._unknown += 1
        self._operator.log.warning("the pod: %s. Waiting, not creating another (look %d).", why, self._unknown)
        self._pause()

    def cancel(self, pod: PodIdentifier) -> None:
        """Delete a pod that nobody waits for, and remember that it was us, so that it does not count as lost."""
        self._operator.log.warning("deleting pod %s", pod)
        self._calls.delete(pod, grace_period=getattr(self._operator, "termination_grace_period", None))
        self._memory.remember_outcome(PodOutcome(pod, "Failed", CANCELLED, {}))

    def _refusal(self, standing: Standing) -> JobError:
        pod, why = standing.look.identifier, standing.look.why
        if standing.look.phase is JobPhase.GONE:
            return PodLost(
                f"pod {pod}: {why}, and max_pod_losses={self._operator.max_pod_losses} pods were started again already. "
                f"Clear the task to begin anew, or raise max_pod_losses."
            )
        return JobError(
            f"pod {pod} of before the clear still runs ({why}) and is not deleted, because cancel_on_kill is False. Delete "
            f"it and clear the task again, or set on_clear='reuse' to wait for it."
        )


def _refused(error: Exception) -> bool:
    """Whether the API server has said no, and will again."""
    return isinstance(error, ApiException) and 400 <= (error.status or 0) < 500 and error.status != 429


class _NotSaid(Exception):
    """A creation was not answered."""

"""What a pod's status means for its task: table by table, as the API server shows pods."""

from __future__ import annotations

from typing import Any

import kubernetes
import pytest
from kubernetes.client import models as k8s

from airflow_state_watchers.core.resume import JobPhase
from airflow_state_watchers.core.stored import Unreadable
from airflow_state_watchers.operators.pod_calls import chosen, named
from airflow_state_watchers.operators.pod_outcome import load_identifier, load_outcome, loss_of, outcome_of, phase_of

ACTIVE, SUCCEEDED, FAILED, GONE, UNKNOWN = JobPhase


def pod(phase: str = "Running", *, code: int | None = None, deleted: bool = False, **status: Any) -> k8s.V1Pod:
    """A pod with a container ``base``, ended with ``code`` or running, and a sidecar that runs."""
    ended = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
    containers: list[dict[str, Any]] = [
        {"name": name, "state": state, "image": "", "imageID": "", "ready": True, "restartCount": 0}
        for name, state in (("sidecar", {"running": {}}), ("base", ended))
    ]
    metadata: dict[str, Any] = {"name": "one", "namespace": "default", "uid": "u1", "creationTimestamp": None}
    if deleted:
        metadata["deletionTimestamp"] = "2026-12-01T00:00:00Z"
    body = {"metadata": metadata, "status": {"phase": phase, "containerStatuses": containers, **status}}
    return read(body)


def read(body: dict[str, Any]) -> k8s.V1Pod:
    return kubernetes.client.ApiClient()._ApiClient__deserialize(body, "V1Pod")


DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]


@pytest.mark.parametrize(
    ("shown", "phase"),
    [
        (pod("Pending"), ACTIVE),
        (pod(), ACTIVE),
        (pod("Unknown"), UNKNOWN),
        (pod("Succeeded", code=0), SUCCEEDED),
        (pod("Failed", code=3), FAILED),
        # The sidecar waits for the XCom to be fetched.
        (pod(code=0), SUCCEEDED),
        (pod(code=3), FAILED),
        # Its own limits are the pod's own failure.
        (pod("Failed", code=137), FAILED),
        (pod("Failed", reason="DeadlineExceeded"), FAILED),
        # Taken away.
        (pod("Failed", reason="Evicted", code=137), GONE),
        (pod("Failed", reason="Evicted"), GONE),
        (pod("Failed", reason="OutOfcpu"), GONE),
        (pod("Failed", reason="NodeLost"), GONE),
        (pod("Failed", code=143, conditions=DISRUPTED), GONE),
        (pod(code=143, conditions=DISRUPTED, deleted=True), GONE),
        (pod(code=143, deleted=True), GONE),
        # Not yet: it is told to go, and may still do its work; or its node does not answer, and it may.
        (pod(conditions=DISRUPTED, deleted=True), ACTIVE),
        (pod(reason="NodeLost", deleted=True), ACTIVE),
        # What had ended by itself has ended, whatever came after.
        (pod("Succeeded", code=0, conditions=DISRUPTED, deleted=True), SUCCEEDED),
        (pod("Failed", reason="Evicted", code=0), SUCCEEDED),
        (pod("Failed", code=0), FAILED),
        (pod(code=0, conditions=DISRUPTED, deleted=True), SUCCEEDED),
        (pod(code=3, deleted=True), FAILED),
        (pod("Failed", code=3, conditions=[{**DISRUPTED[0], "status": "False"}]), FAILED),
    ],
)
def test_phases(shown: k8s.V1Pod, phase: JobPhase) -> None:
    assert phase_of(shown, "base") is phase
    assert (loss_of(shown, "base") is None) is (phase is not GONE)
    assert (outcome_of(shown, "base") is None) is (phase not in (SUCCEEDED, FAILED))


def test_an_outcome_survives_being_stored_and_gives_the_pod_back() -> None:
    outcome = outcome_of(pod(code=3), "base")
    assert outcome is not None
    assert load_outcome(outcome.dump()) == outcome
    back = outcome.as_pod("base")
    assert (back.metadata.uid, back.status.phase) == ("u1", "Failed")
    assert phase_of(back, "base") is FAILED


@pytest.mark.parametrize(
    "stored",
    [None, "x", {}, {"name": "one"}, {"name": "one", "namespace": 1}, {"name": "a", "namespace": "b", "uid": 1}],
)
def test_an_identifier_that_cannot_be_read_is_refused(stored: Any) -> None:
    with pytest.raises(Unreadable):
        load_identifier(stored)


def test_upstreams_identifier_has_no_uid() -> None:
    assert load_identifier({"name": "one", "namespace": "default"}).uid is None


def test_of_several_pods_the_one_that_runs_and_has_done_most() -> None:
    def made(name: str, at: int, shown: k8s.V1Pod) -> k8s.V1Pod:
        stamp = {"creationTimestamp": f"2026-12-01T00:00:{at:02d}Z", "name": name}
        fresh = read({"metadata": {**stamp, "namespace": "default", "uid": name}})
        shown.metadata.creation_timestamp, shown.metadata.name = fresh.metadata.creation_timestamp, name
        return shown

    pods = [
        made("going", 0, pod(deleted=True)),
        made("failed", 1, pod("Failed", code=1)),
        made("ended", 2, pod("Succeeded", code=0)),
        made("pending", 3, pod("Pending")),
        made("younger", 5, pod()),
        made("older", 4, pod()),
    ]
    assert [one.metadata.name for one in chosen(pods)] == ["older", "younger", "pending", "ended", "failed", "going"]


TOKEN = "0a1b2c3d-70e8-4e45-af98-5e33776e13a3"


@pytest.mark.parametrize(
    ("metadata", "suffix", "name"),
    [
        ({"name": "work-x7k2a9b1"}, True, "work-0a1b2c3d"),
        ({"name": "x" * 63}, True, "x" * 54 + "-0a1b2c3d"),
        ({"name": "fixed"}, False, "fixed"),
        ({"generate_name": "count-"}, False, "count-0a1b2c3d"),
        ({"generate_name": "y" * 70}, False, "y" * 55 + "0a1b2c3d"),
    ],
)
def test_the_part_of_a_name_that_is_random_comes_from_the_token(
    metadata: dict[str, str], suffix: bool, name: str
) -> None:
    request = k8s.V1Pod(metadata=k8s.V1ObjectMeta(**metadata))
    for _ in range(2):
        named(request, TOKEN, random_suffix=suffix)
        assert request.metadata.name == name
        assert request.metadata.labels == {"state-watchers/token": TOKEN}

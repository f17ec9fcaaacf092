"""The few requests to Kubernetes that a task's pod needs. Each names the pod by uid as well, or refuses what has another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import KubernetesApiException, generic_api_retry
from kubernetes import watch
from kubernetes.client import ApiException, V1DeleteOptions, V1Preconditions
from kubernetes.client import models as k8s
from urllib3.exceptions import HTTPError

from airflow_state_watchers.exceptions import JobError
from airflow_state_watchers.operators.pod_outcome import PodIdentifier, identifier_of

TOKEN_LABEL = "state-watchers/token"  # noqa: S105 - a label's name
"""The label whose value is the job token: a pod is found by it though its uid was never stored."""
NO_ANSWER = (ApiException, HTTPError, KubernetesApiException)
"""Errors of a request after which nothing is known: no permission as little as no connection."""
_SUFFIX = re.compile(r"-[a-z0-9]{8}$")
_LONGEST = 63


_PASSES = frozenset({401, 403, 404, 408, 429})


def status_of(error: BaseException | None) -> int | None:
    return error.status if isinstance(error, ApiException) else None


def passes(error: BaseException | None) -> bool:
    """Whether a request without an answer may get one later: nothing to fail for, and no reason to give the pod up."""
    status = status_of(error)
    return isinstance(error, NO_ANSWER) and (status is None or status in _PASSES or status >= 500)


class PodCalls:
    """Requests by the operator's client of the moment, which it may renew.

    A look-up that fails raises one of :data:`NO_ANSWER`; a pod that is not there is ``None``.
    """

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client_now = client

    @property
    def _client(self) -> Any:
        return self._client_now()

    def read(self, pod: PodIdentifier) -> k8s.V1Pod | None:
        """The pod, if the one of this name still is this one."""
        found = self.read_name(pod.namespace, pod.name)
        return found if found is not None and pod.uid in (None, found.metadata.uid) else None

    def read_name(self, namespace: str, name: str) -> k8s.V1Pod | None:
        try:
            return self._client.read_namespaced_pod(name, namespace)
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def find(self, namespace: str, selector: str) -> list[k8s.V1Pod]:
        """The pods that the labels choose, the best first."""
        return chosen(self._client.list_namespaced_pod(namespace, label_selector=selector).items)

    def changes(self, pod: k8s.V1Pod, *, seconds: int) -> Iterator[tuple[bool, k8s.V1Pod]]:
        """This pod after each change since it was as given, for some seconds; with the last, of its deletion, ``True``."""
        events = watch.Watch().stream(
            self._client.list_namespaced_pod,
            pod.metadata.namespace,
            field_selector=f"metadata.name={pod.metadata.name}",
            resource_version=pod.metadata.resource_version,
            timeout_seconds=seconds,
        )
        for event in events:
            if event["object"].metadata.uid == pod.metadata.uid:
                gone = event["type"] == "DELETED"
                yield gone, event["object"]
                if gone:
                    return

    def create(self, request: k8s.V1Pod, token: str) -> k8s.V1Pod:
        """Create the pod. One that is there already under its name is taken for it if it has the token, and else refused."""
        namespace, name = request.metadata.namespace, request.metadata.name
        try:
            return self._client.create_namespaced_pod(namespace, request)
        except ApiException as error:
            if error.status != 409:
                raise
        there = self.read_name(namespace, name)
        if there is not None and (there.metadata.labels or {}).get(TOKEN_LABEL) == token:
            return there
        raise NameTaken(namespace, name, there)

    def delete(self, pod: PodIdentifier, *, grace_period: int | None = None) -> None:
        """Ask for the pod's end. One that is gone, or whose name is another's by now, is no error."""
        preconditions = V1Preconditions(uid=pod.uid) if pod.uid else None
        options = V1DeleteOptions(preconditions=preconditions, grace_period_seconds=grace_period)
        try:
            insisting = generic_api_retry(self._client.delete_namespaced_pod)  # type: ignore[no-untyped-call]
            insisting(pod.name, pod.namespace, body=options)
        except ApiException as error:
            if error.status not in (404, 409):
                raise


class NameTaken(JobError):
    """Another pod has the name that the request gives."""

    def __init__(self, namespace: str, name: str, there: k8s.V1Pod | None) -> None:
        self.pod = None if there is None else identifier_of(there)
        super().__init__(
            f"pod {namespace}/{name}: the name is taken by a pod that this task did not start "
            f"(uid {there.metadata.uid if there else 'unknown'}), which is left alone. Delete it, or leave "
            f"random_name_suffix on, so that every pod has a name of its own."
        )


def chosen(pods: Iterable[k8s.V1Pod]) -> list[k8s.V1Pod]:
    """Pods of one task, the one to go on with first: one that runs before one that has ended, then the older one.

    The older has done more of the work. What is being deleted comes after what is not.
    """
    return sorted(pods, key=lambda pod: (_rank(pod), pod.metadata.creation_timestamp or _NEVER, pod.metadata.uid or ""))


_NEVER = datetime.max.replace(tzinfo=timezone.utc)
_ORDER = {"Running": 0, "Pending": 1, "Unknown": 2, "Succeeded": 3}


def _rank(pod: k8s.V1Pod) -> int:
    return _ORDER.get(pod.status.phase, 4) + (5 if pod.metadata.deletion_timestamp else 0)


def named(request: k8s.V1Pod, token: str, *, random_suffix: bool) -> k8s.V1Pod:
    """Label the request with the token, and let the part of its name that was to be random come from the token.

    So the same intent sent twice, by whatever worker, asks for the same name, and the API server lets it be only once.
    """
    metadata = request.metadata
    metadata.labels = {**(metadata.labels or {}), TOKEN_LABEL: token}
    end = token[:8]
    if not metadata.name and metadata.generate_name:
        metadata.name = f"{metadata.generate_name[: _LONGEST - len(end)]}{end}"
    elif random_suffix:
        metadata.name = f"{_SUFFIX.sub('', metadata.name)[: _LONGEST - 1 - len(end)].rstrip('-.')}-{end}"
    return request

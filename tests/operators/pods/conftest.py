"""A fake Kubernetes API and the official client for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from airflow.providers.cncf.kubernetes import kubernetes_helper_functions
from kubernetes.stream.ws_client import WSClient

from tests.operators.kubernetes_api import KubernetesApi


@pytest.fixture(autouse=True)
def closed_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official client forgets the socket of an exec that the server has ended; its warning would be ours."""
    close = WSClient.close

    def close_socket(self: Any, **kwargs: Any) -> None:
        close(self, **kwargs)
        self.sock.shutdown()

    monkeypatch.setattr(WSClient, "close", close_socket)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider repeats a request that failed after one second, two, four and so on."""
    monkeypatch.setattr(kubernetes_helper_functions, "_default_wait", lambda _: 0.0)


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    """The API, which the connection ``kubernetes_default`` leads to."""
    api = KubernetesApi()
    connection = {"conn_type": "kubernetes", "extra": {"kube_config": json.dumps(api.config())}}
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(connection))
    yield api
    api.stop()


@pytest.fixture
def core(kube: KubernetesApi) -> Iterator[kubernetes.client.CoreV1Api]:
    configuration = kubernetes.client.Configuration(host=kube.url)
    configuration.retries = False
    with kubernetes.client.ApiClient(configuration) as client:
        yield kubernetes.client.CoreV1Api(client)
        # The client's own end does not close its connections.
        client.rest_client.pool_manager.clear()

"""A fake Kubernetes API for pods, over HTTP on 127.0.0.1: faithful enough for the official client and Airflow's operator.

It says so itself: every answer has the header ``X-Fake: kubernetes pods of a test``, and ``/version`` is ``v1.30.0-fake``.
There are pods (create, get, list with selectors, watch, patch, delete, evict, log, exec for the XCom sidecar) and an empty
list of events; nothing else. No container ever runs: a test says through :class:`Cluster` what kubelet and scheduler do.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.operators import kubernetes_exec, kubernetes_streams
from tests.operators.kubernetes_cluster import Cluster
from tests.operators.kubernetes_pods import Pod, Pods, Refused
from tests.operators.kubernetes_selectors import field_match, label_match

FAKE = "kubernetes pods of a test"
_VERSION = ("buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion", "platform")
# These send their answers themselves.
_SENT = {"log": kubernetes_streams.log, "exec": kubernetes_exec.serve}
_PODS = re.compile(
    r"^/api/v1(/namespaces/(?P<namespace>[^/]+))?/(?P<kind>pods|events)(/(?P<name>[^/]+)(/(?P<sub>\w+))?)?$"
)


@dataclass
class Fault:
    """Answer the next requests that match with ``code`` instead; with ``lost``, carry them out and answer nothing."""

    match: str
    code: int = 500
    times: int = 1
    lost: bool = False


@dataclass
class KubernetesApi:
    """The server. ``pods`` is what it stores, ``cluster`` what happens to them, ``requests`` what was asked."""

    pods: Pods = field(default_factory=Pods)
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    on_begin: Callable[[str], None] | None = None
    """Called with ``METHOD /path`` when a request has come."""
    on_done: Callable[[str], None] | None = None
    """Called with ``METHOD /path`` when a request has been carried out and its answer not been sent."""

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.pods)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        self.server.daemon_threads = True
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def config(self) -> dict[str, Any]:
        """What a kubeconfig file says of this server."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "anyone", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "anyone", "namespace": "default"}}],
            "current-context": "fake",
        }

    def fail(self, match: str, code: int = 500, *, times: int = 1, lost: bool = False) -> None:
        """Let the next requests fail whose ``METHOD /path`` matches this expression."""
        self.faults.append(Fault(match, code, times, lost))

    def asked(self, match: str) -> list[str]:
        return [request for request in self.requests if re.search(match, request)]

    def stop(self) -> None:
        self.stopped.set()
        with self.pods.changed:
            self.pods.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def fault(self, request: str) -> Fault | None:
        for fault in self.faults:
            if fault.times and re.search(fault.match, request):
                fault.times -= 1
                return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at ``requests`` instead."""

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        split = urlsplit(self.path)
        query = parse_qs(split.query, keep_blank_values=True)
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.api.requests.append(f"{method} {self.path}")
        if self.api.on_begin:
            self.api.on_begin(f"{method} {self.path}")
        fault = self.api.fault(f"{method} {self.path}")
        try:
            if fault and not fault.lost:
                raise Refused(fault.code, "Fault", "as the test asked")
            answer = self._route(method, split.path, query, json.loads(sent) if sent else {})
        except Refused as refused:
            answer = _refusal(refused)
            self.reply(json.dumps(answer).encode(), code=refused.code)
            return
        if self.api.on_done:
            self.api.on_done(f"{method} {self.path}")
        if fault:
            self.close_connection = True
        elif answer is not None:
            self.reply(json.dumps(answer).encode(), code=201 if method == "POST" else 200)

    def reply(self, body: bytes, *, code: int = 200, kind: str = "application/json") -> None:
        self.send_response(code)
        self.send_header("X-Fake", FAKE)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _route(self, method: str, path: str, query: dict[str, list[str]], body: Pod) -> Pod | None:
        asked = {key: values if key == "command" else values[0] for key, values in query.items()}
        if path.rstrip("/") == "/version":
            return dict.fromkeys(_VERSION, "fake") | {"major": "1", "minor": "30", "gitVersion": "v1.30.0-fake"}
        found = _PODS.match(path)
        if not found:
            raise Refused(404, "NotFound", f"this fake has no {path}")
        namespace, name = found["namespace"] or "", found["name"]
        if found["kind"] == "events":
            return {"kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
        if found["sub"]:
            return self._subresource(found["sub"], namespace, name, asked, body)
        if not name:
            return self._collection(method, namespace, asked, body)
        if method == "PATCH":
            return self.api.pods.patch(namespace, name, body)
        if method == "DELETE":
            return self.api.pods.delete(namespace, name, _options(asked, body))
        return self.api.pods.get(namespace, name)

    def _collection(self, method: str, namespace: str, asked: dict[str, Any], body: Pod) -> Pod | None:
        pods = self.api.pods
        if method == "POST":
            return pods.create(namespace, body)
        if asked.get("watch") in ("true", "True", "1"):
            kubernetes_streams.watch(self, namespace, asked)
            return None
        with pods.changed:
            items = [pod for (where, _), pod in sorted(pods.held.items()) if not namespace or where == namespace]
            kept = json.loads(json.dumps([pod for pod in items if chosen(pod, asked)]))
            return {
                "kind": "PodList",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": str(pods.version)},
                "items": kept,
            }

    def _subresource(self, sub: str, namespace: str, name: str, asked: dict[str, Any], body: Pod) -> Pod | None:
        if sub in _SENT:
            _SENT[sub](self, namespace, name, asked)
            return None
        if sub == "eviction":
            if self.api.pods.budget_blocks:
                raise Refused(
                    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
                )
            self.api.pods.get(namespace, name)
            Cluster(self.api.pods, namespace).drain(name)
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        raise Refused(404, "NotFound", f"this fake has no pods/{sub}")


def chosen(pod: Pod, asked: dict[str, Any]) -> bool:
    """Whether the selectors of a list or watch choose this pod."""
    try:
        labels = pod["metadata"].get("labels") or {}
        return label_match(asked.get("labelSelector", ""), labels) and field_match(asked.get("fieldSelector", ""), pod)
    except ValueError as error:
        raise Refused(400, "BadRequest", str(error)) from error


def _options(asked: dict[str, Any], body: Pod) -> Pod:
    return {**body, "gracePeriodSeconds": int(asked["gracePeriodSeconds"])} if "gracePeriodSeconds" in asked else body


def _refusal(refused: Refused) -> Pod:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**status, "message": str(refused), "reason": refused.reason, "code": refused.code}

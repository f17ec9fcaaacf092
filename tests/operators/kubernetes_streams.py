"""The answers of the fake Kubernetes API that do not end at once: a watch, and a log that is followed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tests.operators.kubernetes_pods import Line, Pod, Refused

if TYPE_CHECKING:
    from tests.operators.kubernetes_api import _Handler

Asked = dict[str, Any]


def watch(handler: _Handler, namespace: str, asked: Asked) -> None:
    """Every change since ``resourceVersion``, as lines of JSON, until ``timeoutSeconds`` are over."""
    _begin(handler, "application/json")
    until = time.monotonic() + float(asked.get("timeoutSeconds", 30))
    for event in _events(handler, namespace, asked, until):
        _chunk(handler, json.dumps(event).encode() + b"\n")
    _end(handler)


def _events(handler: _Handler, namespace: str, asked: Asked, until: float) -> Iterator[Pod]:
    from tests.operators.kubernetes_api import chosen

    pods = handler.api.pods
    since = asked.get("resourceVersion") or "0"
    if since == "0":
        # As the API server does without a version: first what is there, then what changes.
        with pods.changed:
            now_there = [json.loads(json.dumps(pod)) for (where, _), pod in pods.held.items() if where == namespace]
            seen = pods.version
        yield from ({"type": "ADDED", "object": pod} for pod in now_there if chosen(pod, asked))
    elif (seen := int(since)) < pods.compacted:
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "status": "Failure"}
        yield {"type": "ERROR", "object": {**gone, "message": f"too old resource version: {since} ({pods.version})"}}
        return
    while True:
        with pods.changed:
            fresh = [event for event in pods.history if event[0] > seen]
            if not fresh and not _wait(handler, until):
                return
        for version, kind, pod in fresh:
            seen = version
            if pod["metadata"]["namespace"] == namespace and chosen(pod, asked):
                yield {"type": kind, "object": pod}


def log(handler: _Handler, namespace: str, name: str, asked: Asked) -> None:
    """A container's lines, and with ``follow`` those to come until it has ended."""
    container = _log_container(handler, namespace, name, asked)
    uid = handler.api.pods.get(namespace, name)["metadata"]["uid"]
    _begin(handler, "text/plain")
    for line in _lines(handler, namespace, name, (uid, container), asked):
        stamp = f"{_stamp(line.at)} " if asked.get("timestamps") in ("true", "True") else ""
        _chunk(handler, f"{stamp}{line.text}\n".encode())
    _end(handler)


def _log_container(handler: _Handler, namespace: str, name: str, asked: Asked) -> str:
    pod = handler.api.pods.get(namespace, name)
    names = [container["name"] for container in pod["spec"]["containers"]]
    container = str(asked.get("container") or names[0])
    if "container" not in asked and len(names) > 1:
        raise Refused(400, "BadRequest", f"a container name must be specified for pod {name}, choose one of: {names}")
    if container not in names:
        raise Refused(400, "BadRequest", f"container {container} is not valid for pod {name}")
    if pod["status"]["phase"] == "Pending":
        message = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
        raise Refused(400, "BadRequest", message)
    return container


def _lines(handler: _Handler, namespace: str, name: str, key: tuple[str, str], asked: Asked) -> Iterator[Line]:
    pods = handler.api.pods
    oldest = _oldest(asked)
    sent = 0
    if tail := asked.get("tailLines"):
        sent = max(0, len(pods.logs.get(key, [])) - int(tail))
    while True:
        with pods.changed:
            lines = list(pods.logs.get(key, []))[sent:]
            running = _running(pods.held.get((namespace, name)), key)
            if not lines and (not running or asked.get("follow") not in ("true", "True") or not _wait(handler, None)):
                return
        sent += len(lines)
        yield from (line for line in lines if line.at >= oldest)


def _oldest(asked: Asked) -> int:
    if "sinceSeconds" in asked:
        # Whole seconds, and by the server's own clock.
        return (int(time.time()) - int(asked["sinceSeconds"])) * 1_000_000_000
    if "sinceTime" in asked:
        return int(datetime.fromisoformat(asked["sinceTime"].replace("Z", "+00:00")).timestamp()) * 1_000_000_000
    return 0


def _running(pod: Pod | None, key: tuple[str, str]) -> bool:
    if pod is None or pod["metadata"]["uid"] != key[0]:
        return False
    statuses = pod["status"].get("containerStatuses", [])
    return any(status["name"] == key[1] and "running" in status["state"] for status in statuses)


def _wait(handler: _Handler, until: float | None) -> bool:
    left = None if until is None else until - time.monotonic()
    if handler.api.stopped.is_set() or (left is not None and left <= 0):
        return False
    handler.api.pods.changed.wait(left)
    return not handler.api.stopped.is_set()


def _stamp(at: int) -> str:
    seconds, rest = divmod(at, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _begin(handler: _Handler, kind: str) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def _chunk(handler: _Handler, data: bytes) -> None:
    handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    handler.wfile.flush()


def _end(handler: _Handler) -> None:
    handler.wfile.write(b"0\r\n\r\n")

"""``pods/exec`` of the fake Kubernetes API: the few commands that Airflow sends to the XCom sidecar, over a WebSocket."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from typing import TYPE_CHECKING, Any

from tests.operators.kubernetes_cluster import SIDECAR, Cluster
from tests.operators.kubernetes_pods import Refused

if TYPE_CHECKING:
    from tests.operators.kubernetes_api import _Handler

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_STDOUT, _STDERR, _ERROR = 1, 2, 3
EMPTY = "__airflow_xcom_result_empty__"


def serve(handler: _Handler, namespace: str, name: str, asked: dict[str, Any]) -> None:
    pod = handler.api.pods.get(namespace, name)
    running = [one["name"] for one in pod["status"].get("containerStatuses", []) if "running" in one["state"]]
    if asked.get("container") not in running:
        raise Refused(400, "BadRequest", f"container {asked.get('container')} is not running in pod {name}")
    _shake_hands(handler)
    if any("return.json" in word for word in asked["command"]):
        _send(handler, _STDOUT, (handler.api.pods.files.get(pod["metadata"]["uid"]) or EMPTY).encode())
    elif "kill" in _receive(handler):
        Cluster(handler.api.pods, namespace).finish(name, container=SIDECAR)
    _send(handler, _ERROR, json.dumps({"metadata": {}, "status": "Success"}).encode())
    handler.wfile.write(struct.pack("!BBH", 0x88, 2, 1000))
    handler.close_connection = True


def _shake_hands(handler: _Handler) -> None:
    key = handler.headers["Sec-WebSocket-Key"] + _GUID
    accept = base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest()).decode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", accept)
    handler.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
    handler.end_headers()


def _send(handler: _Handler, channel: int, data: bytes) -> None:
    """One binary frame; its first byte names the channel."""
    body = bytes([channel]) + data
    size = struct.pack("!BB", 0x82, len(body)) if len(body) < 126 else struct.pack("!BBH", 0x82, 126, len(body))
    handler.wfile.write(size + body)
    handler.wfile.flush()


def _receive(handler: _Handler) -> str:
    """The text of one frame from the client, which masks what it sends; sizes beyond 64 KiB are not needed here."""
    _, size = handler.rfile.read(2)
    size &= 0x7F
    if size == 126:
        (size,) = struct.unpack("!H", handler.rfile.read(2))
    mask = handler.rfile.read(4)
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(handler.rfile.read(size)))
    return body[1:].decode()

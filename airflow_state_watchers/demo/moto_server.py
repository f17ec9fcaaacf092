"""Moto's S3 over HTTP on loopback, run as a process of its own: ``python -m airflow_state_watchers.demo.moto_server
PORT``.

Beside S3 it answers ``POST /plant``: a JSON list of ``[bucket, key, size, stamp]`` is stored at once, as if each
object had been uploaded at its ``stamp`` (seconds since 1970, UTC; ``null``: now). Tens of thousands a second, and
with times that no upload could have: many in one second, hours ago, in the future.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]


class Server:
    """A WSGI application: moto's, with ``/plant`` before it."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) != ("POST", "/plant"):
            answer: Iterable[bytes] = self._moto(environ, start_response)
            return answer
        plant(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b""]


def plant(objects: Iterable[tuple[str, str, int, float | None]]) -> None:
    s3 = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for bucket, key, size, stamp in objects:
        stored = s3.put_object(bucket, key, bytes(size), disable_notification=True)
        if stamp is not None:
            stored.last_modified = datetime.fromtimestamp(stamp, timezone.utc).replace(tzinfo=None)


def main(port: str) -> None:
    make_server("127.0.0.1", int(port), Server(), threaded=True, request_handler=MotoRequestHandler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

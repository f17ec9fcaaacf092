"""A fake of a service that runs jobs, over HTTP. It says so: in its ``Server`` header and at its root.

It can do what real ones do to their clients: start a job and lose the response, list it late, answer 403, report states that
nobody knows, forget jobs, or start the same request twice where it has no idempotency tokens.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

TELLS = "FakeJobService (a double for tests; it runs no jobs)"


@dataclass
class Job:
    id: str
    request: Any
    token: str | None
    looks: int = 0
    status: str | None = None
    """Once set, the job stays there: cancelled, or what a test says."""


@dataclass
class Behaviour:
    """What the service does; tests change it as they go."""

    idempotent: bool = False
    looks_until_done: int = 2
    ends_as: str = "SUCCEEDED"
    runs_as: str = "RUNNING"
    lost_responses: int = 0
    """So many of the next submissions start a job whose response never arrives."""
    hidden_searches: int = 0
    """So many searches do not see a new job yet."""
    denied: int = 0
    """So many of the next looks are answered with 403."""
    forgotten: set[str] = field(default_factory=set)
    refuses_to_stop: bool = False
    on_search: Callable[[], None] | None = None


class JobService:
    """A context manager; ``url`` is where it listens, ``jobs`` what it has started."""

    def __init__(self, **behaviour: Any) -> None:
        self.behaviour = Behaviour(**behaviour)
        self.jobs: list[Job] = []
        self.cancelled: list[str] = []
        self.searches = 0
        self._lock = threading.Lock()

    def __enter__(self) -> JobService:
        service = self

        class Handler(_Handler):
            jobs_of = service

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def running(self) -> list[str]:
        return [job.id for job in self.jobs if self.status_of(job) == self.behaviour.runs_as]

    def status_of(self, job: Job) -> str:
        if job.status is not None:
            return job.status
        done = job.looks > self.behaviour.looks_until_done
        return self.behaviour.ends_as if done else self.behaviour.runs_as

    def reset(self) -> None:
        """Forget everything; what it does stays."""
        self.jobs.clear()
        self.cancelled.clear()
        self.searches = 0

    # What the handler calls

    def submit(self, request: Any, token: str | None) -> tuple[Job, bool]:
        """Start a job, unless its token is known. Returns it, and whether the response arrives."""
        with self._lock:
            known = [job for job in self.jobs if token is not None and job.token == token]
            if known and self.behaviour.idempotent:
                return known[0], True
            job = Job(f"job-{len(self.jobs) + 1}", request, token)
            self.jobs.append(job)
            arrives = self.behaviour.lost_responses == 0
            self.behaviour.lost_responses -= not arrives
            return job, arrives

    def look(self, job_id: str) -> Job | None:
        with self._lock:
            for job in self.jobs:
                if job.id == job_id and job_id not in self.behaviour.forgotten:
                    job.looks += 1
                    return job
            return None

    def search(self, token: str) -> list[str]:
        if self.behaviour.on_search is not None:
            self.behaviour.on_search()
        with self._lock:
            self.searches += 1
            if self.searches <= self.behaviour.hidden_searches:
                return []
            return [job.id for job in self.jobs if job.token == token]

    def cancel(self, job_id: str) -> None:
        with self._lock:
            self.cancelled.append(job_id)
            for job in self.jobs:
                if job.id == job_id and not self.behaviour.refuses_to_stop:
                    job.status = "CANCELLED"

    def denies(self) -> bool:
        with self._lock:
            denied = self.behaviour.denied > 0
            self.behaviour.denied -= denied
            return denied


class _Handler(BaseHTTPRequestHandler):
    jobs_of: JobService

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def version_string(self) -> str:
        return TELLS

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        job, arrives = self.jobs_of.submit(body["request"], body.get("token"))
        if arrives:
            self._answer(201, {"id": job.id})
        else:
            self.close_connection = True

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        if where.path == "/":
            self._answer(200, {"about": TELLS})
        elif self.jobs_of.denies():
            self._answer(403, {"error": "AccessDenied"})
        elif where.path == "/jobs":
            self._answer(200, {"ids": self.jobs_of.search(parse_qs(where.query)["token"][0])})
        elif (job := self.jobs_of.look(where.path.removeprefix("/jobs/"))) is None:
            self._answer(404, {"error": "NotFound"})
        else:
            self._answer(200, {"status": self.jobs_of.status_of(job), "output": f"s3://reports/{job.request}"})

    def do_DELETE(self) -> None:
        self.jobs_of.cancel(self.path.removeprefix("/jobs/"))
        self._answer(202, {})


class Refused(Exception):
    """The service has answered with an error."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status} {body}")
        self.status = status


class JobClient:
    """What an operator's hook would be."""

    def __init__(self, address: str) -> None:
        self._address = address

    def submit(self, request: Any, token: str | None = None) -> str:
        return str(self._ask("POST", "/jobs", {"request": request, "token": token})["id"])

    def status(self, job_id: str) -> str:
        return str(self._ask("GET", f"/jobs/{quote(job_id)}")["status"])

    def output(self, job_id: str) -> str:
        return str(self._ask("GET", f"/jobs/{quote(job_id)}")["output"])

    def search(self, token: str) -> list[str]:
        return [str(job_id) for job_id in self._ask("GET", f"/jobs?token={quote(token)}")["ids"]]

    def cancel(self, job_id: str) -> None:
        self._ask("DELETE", f"/jobs/{quote(job_id)}")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection(self._address, timeout=10)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status >= 400:
            raise Refused(response.status, answer)
        return answer

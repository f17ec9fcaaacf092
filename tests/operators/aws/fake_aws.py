"""A fake of AWS Batch and of Athena over HTTP, for jobs that are still running. It says so in its ``Server`` header.

Of each service it knows what the operators call. As the real ones: Batch starts a second job for the same request, lists the
newest first and in pages; Athena starts one query per client request token, and refuses a token that comes with another query.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

TELLS = "FakeAws (a double for tests; it runs no jobs)"


@dataclass
class FakeJob:
    id: str
    request: dict[str, Any]
    looks: int = 0
    status: str | None = None
    """Once set, the job stays there."""


class Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class LostAnswer(Exception):
    """The connection breaks before the answer is sent."""


@dataclass
class FakeAws:
    """A context manager; ``url`` is where it listens, ``jobs`` and ``queries`` what it has started."""

    looks_until_done: int = 2
    ends_as: str = "SUCCEEDED"
    page: int = 100
    lost_answers: int = 0
    """So many of the next submissions start a job whose answer never arrives."""
    broken_answers: int = 0
    """... or whose answer is 500."""
    denied: int = 0
    """So many of the next looks are refused."""
    hidden_lists: int = 0
    """So many listings do not show a new job yet."""
    forgotten: set[str] = field(default_factory=set)
    jobs: list[FakeJob] = field(default_factory=list)
    queries: list[FakeJob] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    lists: int = 0

    def __enter__(self) -> FakeAws:
        fake, self._lock = self, threading.Lock()

        class Handler(_Handler):
            aws = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, action: str, asked: dict[str, Any]) -> Any:
        with self._lock:
            return getattr(self, f"_{action.lower()}")(asked)

    def _start(self, jobs: list[FakeJob], request: dict[str, Any]) -> FakeJob:
        job = FakeJob(f"job-{len(jobs) + 1}", request)
        jobs.append(job)
        if self.lost_answers:
            self.lost_answers -= 1
            raise LostAnswer
        if self.broken_answers:
            self.broken_answers -= 1
            raise Refusal(500, "ServerException", "an internal error")
        return job

    def _look(self, jobs: list[FakeJob], job_id: str) -> FakeJob | None:
        if self.denied:
            self.denied -= 1
            raise Refusal(403, "AccessDeniedException", "not authorized")
        for job in jobs:
            if job.id == job_id and job_id not in self.forgotten:
                job.looks += 1
                return job
        return None

    def _status(self, job: FakeJob) -> str:
        return job.status or (self.ends_as if job.looks > self.looks_until_done else "RUNNING")

    # Batch

    def _submitjob(self, asked: dict[str, Any]) -> Any:
        job = self._start(self.jobs, asked)
        return {"jobId": job.id, "jobName": asked["jobName"], "jobArn": f"arn:aws:batch:us-east-1:1:job/{job.id}"}

    def _describejobs(self, asked: dict[str, Any]) -> Any:
        return {"jobs": [self._told(job) for one in asked["jobs"] if (job := self._look(self.jobs, one))]}

    def _told(self, job: FakeJob) -> dict[str, Any]:
        arn = "arn:aws:batch:us-east-1:1:"
        return {
            "jobId": job.id,
            "jobName": job.request["jobName"],
            "jobQueue": f"{arn}job-queue/{job.request['jobQueue']}",
            "jobDefinition": f"{arn}job-definition/{job.request['jobDefinition']}:1",
            "status": self._status(job),
            "statusReason": "Essential container in task exited" if self._status(job) == "FAILED" else "",
            "startedAt": 0,
            "tags": job.request.get("tags", {}),
            "container": {"logConfiguration": {"logDriver": "awslogs"}, "logStreamName": f"job/default/{job.id}"},
        }

    def _listjobs(self, asked: dict[str, Any]) -> Any:
        self.lists += 1
        if self.lists <= self.hidden_lists:
            return {"jobSummaryList": []}
        ((name,),) = (one["values"] for one in asked["filters"] if one["name"] == "JOB_NAME")
        found = [job for job in reversed(self.jobs) if job.request["jobName"].lower() == name.lower()]
        found = [job for job in found if job.request["jobQueue"] == asked["jobQueue"]]
        size, start = min(self.page, asked["maxResults"]), int(asked.get("nextToken", 0))
        page: dict[str, Any] = {"jobSummaryList": [self._summary(job) for job in found[start : start + size]]}
        if start + size < len(found):
            page["nextToken"] = str(start + size)
        return page

    def _summary(self, job: FakeJob) -> dict[str, Any]:
        return {"jobId": job.id, "jobName": job.request["jobName"], "status": self._status(job)}

    def _terminatejob(self, asked: dict[str, Any]) -> Any:
        self._stop(self.jobs, asked["jobId"], "FAILED")
        return {}

    def _stop(self, jobs: list[FakeJob], job_id: str, status: str) -> None:
        self.stopped.append(job_id)
        for job in jobs:
            if job.id == job_id:
                job.status = status

    # Athena

    def _startqueryexecution(self, asked: dict[str, Any]) -> Any:
        for query in self.queries:
            if query.request["ClientRequestToken"] == asked["ClientRequestToken"]:
                if query.request != asked:
                    raise Refusal(400, "InvalidRequestException", "Idempotent parameters do not match")
                return {"QueryExecutionId": query.id}
        return {"QueryExecutionId": self._start(self.queries, asked).id}

    def _getqueryexecution(self, asked: dict[str, Any]) -> Any:
        query = self._look(self.queries, asked["QueryExecutionId"])
        if query is None:
            raise Refusal(400, "InvalidRequestException", f"QueryExecution {asked['QueryExecutionId']} was not found")
        status = {"State": self._status(query), "StateChangeReason": "SYNTAX_ERROR: line 1:8"}
        return {"QueryExecution": {"QueryExecutionId": query.id, "Status": status}}

    def _stopqueryexecution(self, asked: dict[str, Any]) -> Any:
        self._stop(self.queries, asked["QueryExecutionId"], "CANCELLED")
        return {}


class _Handler(BaseHTTPRequestHandler):
    aws: FakeAws

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def version_string(self) -> str:
        return TELLS

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        action = self.headers.get("X-Amz-Target", self.path).replace("/", ".").rpartition(".")[2]
        try:
            status, body = 200, self.aws.answer(action, asked)
        except LostAnswer:
            self.close_connection = True
            return
        except Refusal as refusal:
            status, body = refusal.status, {"__type": refusal.code, "message": str(refusal)}
        content = json.dumps(body).encode()
        self.send_response(status)
        if status != 200:
            self.send_header("x-amzn-ErrorType", body["__type"])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

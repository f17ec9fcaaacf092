"""Airflow's REST API as far as the demo and the system tests need it: plain dictionaries as Airflow sends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx

Json = dict[str, Any]
PAGE = 100


class Rest:
    """A client of ``/api/v2``. Errors are those of httpx; what is not there is ``None`` where a method says so.

    :param base_url: such as ``http://127.0.0.1:8080``. The server must let everyone in.
    """

    def __init__(self, base_url: str) -> None:
        self._client = httpx.Client(base_url=f"{base_url}/api/v2", timeout=30, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def request(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, json: Any = None) -> Any:
        """Send a request to ``path`` below ``/api/v2``; returns the decoded answer, ``None`` when it is empty."""
        response = self._client.request(method, path, params=params, json=json)
        if response.is_error:
            problem = f"{method} {path}: {response.status_code} {response.text[:500]}"
            raise httpx.HTTPStatusError(problem, request=response.request, response=response)
        return response.json() if response.content else None

    def find(self, path: str, **params: Any) -> Any | None:
        """GET, where 404 means ``None``."""
        try:
            return self.request("GET", path, params=params)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 404:
                return None
            raise

    def pages(self, path: str, field: str, **params: Any) -> list[Json]:
        """GET a whole collection, page by page."""
        found: list[Json] = []
        while True:
            page = self.request("GET", path, params={**params, "limit": PAGE, "offset": len(found)})
            found += page[field]
            if not page[field] or len(found) >= page["total_entries"]:
                return found

    # Airflow itself

    def health(self) -> dict[str, str | None]:
        """Return the status of ``metadatabase``, ``scheduler``, ``triggerer`` and ``dag_processor``."""
        return {piece: known["status"] for piece, known in self.request("GET", "/monitor/health").items()}

    def jobs(self, job_type: str) -> list[Json]:
        """Return the latest jobs of a type (``SchedulerJob``, ``TriggererJob``, ``DagProcessorJob``), newest first."""
        params = {"job_type": job_type, "order_by": "-id", "limit": PAGE}
        jobs: list[Json] = self.request("GET", "/jobs", params=params)["jobs"]
        return jobs

    def import_errors(self) -> list[Json]:
        """Return what is wrong with DAG files: ``filename``, ``stack_trace``."""
        return self.pages("/importErrors", "import_errors")

    # DAGs and runs

    def dag(self, dag_id: str) -> Json | None:
        return self.find(f"/dags/{dag_id}")

    def set_paused(self, dag_id: str, paused: bool) -> None:
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run by hand and return its id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self.request("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def dag_runs(self, dag_id: str) -> list[Json]:
        """Return the runs of a DAG, oldest first; none for an unknown DAG."""
        if self.dag(dag_id) is None:
            return []
        return self.pages(f"/dags/{dag_id}/dagRuns", "dag_runs", order_by="id")

    def triggering_events(self, dag_id: str, run_id: str) -> list[Json]:
        path = f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/upstreamAssetEvents"
        events: list[Json] = self.request("GET", path)["asset_events"]
        return events

    def clear_run(self, dag_id: str, run_id: str, *, only_failed: bool = False) -> None:
        body = {"dry_run": False, "only_failed": only_failed}
        self.request("POST", f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/clear", json=body)

    def clear_tasks(self, dag_id: str, run_id: str, task_ids: Sequence[str | tuple[str, int]]) -> None:
        """Clear tasks of a run, each an id or ``(id, map index)``."""
        body = {"dry_run": False, "only_failed": False, "dag_run_id": run_id, "task_ids": list(task_ids)}
        self.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def task_instances(self, dag_id: str, run_id: str) -> list[Json]:
        """Return a run's task instances, mapped ones each."""
        return self.pages(f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances", "task_instances")

    def xcom(self, dag_id: str, run_id: str, task_id: str, *, key: str = "return_value", map_index: int = -1) -> Any:
        """Return the value of an XCom, ``None`` if there is none."""
        task = f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}"
        entry = self.find(f"{task}/xcomEntries/{quote(key, safe='')}", map_index=map_index)
        return entry and entry["value"]

    # Assets

    def asset(self, name: str) -> Json | None:
        """Return the active asset of this name."""
        assets = self.pages("/assets", "assets", name_pattern=name)
        return next((asset for asset in assets if asset["name"] == name), None)

    def asset_id(self, name: str) -> int:
        """Return the id of the active asset of this name. Raises ``LookupError``."""
        asset = self.asset(name)
        if asset is None:
            raise LookupError(f"no active asset {name!r}")
        return int(asset["id"])

    def asset_events(self, name: str, *, since: datetime | None = None) -> list[Json]:
        """Return the events of an asset with their ``extra``, oldest first; none for an unknown asset."""
        asset = self.asset(name)
        if asset is None:
            return []
        params = {"timestamp_gte": since.isoformat()} if since else {}
        events = self.pages("/assets/events", "asset_events", asset_id=asset["id"], order_by="timestamp", **params)
        return sorted(events, key=lambda event: (event["timestamp"], event["id"]))

    def queued_events(self, dag_id: str) -> list[Json]:
        """Return the assets whose events wait for a run of this DAG."""
        found = self.find(f"/dags/{dag_id}/assets/queuedEvents")
        return found["queued_events"] if found else []

    # The state store of an asset, by its name

    def states(self, asset: str) -> list[Json]:
        """Return all entries: ``key``, ``value``, ``updated_at``, ``last_updated_by``; none for an unknown asset."""
        known = self.asset(asset)
        return self.pages(f"/assets/{known['id']}/state-store", "asset_state_store") if known else []

    def state(self, asset: str, key: str) -> Any | None:
        """Return one value, ``None`` if there is none."""
        entry = self.find(self._state_path(asset, key))
        return entry and entry["value"]

    def put_state(self, asset: str, key: str, value: Any) -> None:
        self.request("PUT", self._state_path(asset, key), json={"value": value})

    def delete_state(self, asset: str, key: str) -> None:
        self.request("DELETE", self._state_path(asset, key))

    def _state_path(self, asset: str, key: str) -> str:
        return f"/assets/{self.asset_id(asset)}/state-store/{quote(key, safe='')}"

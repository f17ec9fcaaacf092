"""For how long does a job of ten minutes hold a worker's slot?

A real Airflow runs one job in a task that polls, and one in a task that is scheduled again between two looks, side by side. What
is counted is what Airflow's executor counts: how long each process of the task held its slot.

    make bench-job_slot ARGS="--seconds 120"
"""

from __future__ import annotations

import argparse
import re
import time

from airflow_state_watchers.demo.airflow import Airflow
from benchmarks.result import Result

DAG = """
import time
from airflow.sdk import DAG, BaseOperator
from airflow_state_watchers import ResumableJobMixin

class Job(ResumableJobMixin, BaseOperator):
    def __init__(self, *, wait, seconds, **kwargs):
        super().__init__(**kwargs)
        self.wait, self.seconds = wait, seconds

    def execute(self, context):
        return self.execute_resumable(context)

    def submit_job(self, context):
        return time.time()

    def get_job_status(self, external_id, context):
        return "RUNNING" if time.time() < external_id + self.seconds else "DONE"

    def is_job_active(self, status):
        return status == "RUNNING"

    def is_job_succeeded(self, status):
        return status == "DONE"

for wait in ("poll", "reschedule"):
    with DAG(wait, schedule=None):
        Job(task_id="job", wait=wait, seconds={seconds})
"""
KINDS = ("poll", "reschedule")


def slot_seconds(airflow: Airflow, runs: dict[str, str]) -> dict[str, list[float]]:
    """Return how long each process held its slot, by DAG: from what the executor logs of each."""
    held: dict[str, list[float]] = {kind: [] for kind in KINDS}
    tasks = {airflow.rest.task_instances(kind, run_id)[0]["id"]: kind for kind, run_id in runs.items()}
    for line in airflow.log("scheduler").splitlines():
        found = re.search(r"Workload finished .*duration=([\d.]+) .*workload_id=([\w-]+)", line)
        if found and found[2] in tasks:
            held[tasks[found[2]]].append(float(found[1]))
    return held


def measure(seconds: float) -> dict[str, list[float]]:
    with Airflow() as airflow:
        airflow.write_dag("jobs", DAG.format(seconds=seconds))
        for kind in KINDS:
            airflow.wait_for_dag(kind)
        runs = {kind: airflow.rest.trigger(kind) for kind in KINDS}

        def ended() -> bool:
            states = [run["state"] for kind in KINDS for run in airflow.rest.dag_runs(kind)]
            return all(state in ("success", "failed") for state in states)

        airflow.wait_for(ended, seconds + 300, "both runs to end")
        time.sleep(10)  # the executor's own last line comes after the run has ended
        assert {run["state"] for kind in KINDS for run in airflow.rest.dag_runs(kind)} == {"success"}
        return slot_seconds(airflow, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long the jobs take")
    options = parser.parse_args()
    held = measure(options.seconds)
    result = Result("job_slot", {"job, s": options.seconds})
    for kind in KINDS:
        result.figures[f"{kind}: processes"] = len(held[kind])
        result.figures[f"{kind}: slot, s"] = sum(held[kind])
    result.ratios["slot: poll over reschedule"] = sum(held["poll"]) / sum(held["reschedule"])
    result.finish()


if __name__ == "__main__":
    main()

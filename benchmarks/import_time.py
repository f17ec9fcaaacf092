"""What importing the package root costs a process, beside the cheapest thing of Airflow's that a watcher needs.

Provider discovery imports the root of every provider in every Airflow process; that is why ours loads no Airflow.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from time import perf_counter

from benchmarks.result import Result

STATEMENTS = {
    "an empty interpreter, s": "pass",
    "import airflow_state_watchers, s": "import airflow_state_watchers",
    "all of core, s": "from airflow_state_watchers.core import batch, checkpoint, codec, envelope, ledger, window",
    "import airflow, s": "import airflow",
    "import airflow.triggers.base, s": "import airflow.triggers.base",
}
ROUNDS = 5


def seconds(statement: str, home: str) -> float:
    begun = perf_counter()
    subprocess.run([sys.executable, "-c", statement], env={**os.environ, "AIRFLOW_HOME": home}, check=True)
    return perf_counter() - begun


def main() -> None:
    taken: dict[str, list[float]] = {what: [] for what in STATEMENTS}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(ROUNDS + 1):  # in turns, so that a busy moment hits all alike
            for what, statement in STATEMENTS.items():
                taken[what].append(seconds(statement, home))
    # The first round warms the disk cache and writes the bytecode.
    result = Result("import_time", {what: statistics.median(times[1:]) for what, times in taken.items()})
    empty, root, core, airflow, trigger = result.figures.values()
    result.ratios = {
        "import airflow over the root": (airflow - empty) / (root - empty),
        "airflow.triggers.base over the root": (trigger - empty) / (root - empty),
        "airflow.triggers.base over all of core": (trigger - empty) / (core - empty),
    }
    result.finish()


if __name__ == "__main__":
    main()

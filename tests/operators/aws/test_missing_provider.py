"""Without the Amazon provider the package works, and the two operators say what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["airflow.providers.amazon.aws"] = None
import airflow_state_watchers
airflow_state_watchers.ResumableJobMixin
airflow_state_watchers.NAME
"""


@pytest.mark.parametrize("name", ["ResumableBatchOperator", "ResumableAthenaOperator"])
def test_the_missing_extra_is_named(name: str) -> None:
    program = PROGRAM.replace("NAME", name)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {name} needs the Amazon provider")
    assert last.endswith("Install airflow-provider-state-watchers[amazon].")

"""The core, its laws and its crash model run without Airflow: what they decide needs none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CORE = [
    f"airflow_state_watchers.core.{path.stem}"
    for path in (REPOSITORY / "airflow_state_watchers/core").glob("[a-z]*.py")
]


@pytest.mark.parametrize(
    "modules", [["airflow_state_watchers"], CORE, ["tests.core.crash_model"]], ids=["root", "core", "model"]
)
def test_no_airflow_and_no_client_is_loaded(modules: list[str]) -> None:
    program = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import {', '.join(modules)}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "airflow_state_watchers" in loaded
    assert not loaded & {"airflow", "boto3", "botocore", "aiobotocore", "aiohttp", "sqlalchemy", "psycopg"}

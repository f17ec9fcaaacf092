"""Loaded by Airflow in every process, through the entry point ``airflow.plugins``.

A mapped task reads its argument from XCom before it runs a line of its own, in a process of its own. There ``S3Object``
and ``SqlWindow`` must be allowed already, also where the DAG file imports nothing of this package.
"""

from __future__ import annotations

from airflow.sdk.plugins_manager import AirflowPlugin

import airflow_state_watchers.tasks.objects
import airflow_state_watchers.tasks.windows  # noqa: F401  both allow their class to be read back from XCom


class StateWatchersPlugin(AirflowPlugin):  # type: ignore[misc,unused-ignore]
    name = "state_watchers"

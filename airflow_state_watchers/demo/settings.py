"""The settings of an Airflow in pieces on one machine, as environment variables."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import airflow_state_watchers

FOREIGN = ("AIRFLOW", "AWS_", "_AIRFLOW", "BOTO", "PYTEST_")
"""Prefixes of variables that are not passed on, lest the caller's Airflow or cloud account is used."""

Config = Mapping[str, Mapping[str, object]]
"""Airflow's configuration: values by section and option."""


def config(home: Path, port: int, database_uri: str) -> dict[str, dict[str, object]]:
    """Return the configuration. What is not said here is Airflow's default."""
    url = f"http://127.0.0.1:{port}"
    return {
        "core": {
            "dags_folder": home / "dags",
            "plugins_folder": home / "plugins",
            "executor": "LocalExecutor",
            "parallelism": 2,
            "load_examples": False,
            "dags_are_paused_at_creation": False,
            "min_serialized_dag_update_interval": 1,  # an edited DAG counts at the next parse
            "execution_api_server_url": f"{url}/execution/",
            "simple_auth_manager_all_admins": True,
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "hostname_callable": "socket.gethostname",  # the default asks the DNS
        },
        "api": {"host": "127.0.0.1", "port": port, "base_url": url, "secret_key": secrets.token_hex(16)},
        "api_auth": {"jwt_secret": secrets.token_hex(64)},
        "database": {"sql_alchemy_conn": database_uri},
        "logging": {
            "base_log_folder": home / "logs",
            "colored_console_log": False,
            "namespace_levels": "http.access=WARNING",  # else the ends of logs show nothing but our own requests
        },
        "usage_data_collection": {"enabled": False},
        "dag_processor": {"refresh_interval": 2, "bundle_refresh_check_interval": 1, "min_file_process_interval": 10},
        "scheduler": {"scheduler_idle_sleep_time": 0.5},
        # On a busy machine the API server may need longer than the default of 5 s, after which a task fails for good.
        "workers": {"execution_api_timeout": 60},
        # A killed triggerer is replaced within some 15 s instead of 31 s.
        "triggerer": {"job_heartbeat_sec": 2, "triggerer_health_check_threshold": 6},
    }


def variables(home: Path, settings: Config, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of the pieces: the caller's without what is :data:`FOREIGN`, ours, and ``extra``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    package = str(Path(airflow_state_watchers.__path__[0]).parent)
    environment.update(
        AIRFLOW_HOME=str(home),
        PYTHONPATH=os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
        PYTHONUNBUFFERED="1",
        NO_PROXY="127.0.0.1,localhost",
        no_proxy="127.0.0.1,localhost",
    )
    for section, options in settings.items():
        environment |= {f"AIRFLOW__{section}__{option}".upper(): str(value) for option, value in options.items()}
    return {**environment, **extra}


def merged(settings: Config, overrides: Config) -> dict[str, dict[str, object]]:
    """Return ``settings`` with single options replaced."""
    sections = {**settings, **overrides}
    return {section: {**settings.get(section, {}), **overrides.get(section, {})} for section in sections}

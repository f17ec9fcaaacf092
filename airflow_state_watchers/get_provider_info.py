"""What Airflow's provider discovery is told about this package."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the content of ``provider.yaml``, which it must equal (a test compares the two).

    Every Airflow process calls this when it looks for providers, so it is plain Python: no file is read and no module
    imported.
    """
    return {
        "package-name": "airflow-provider-state-watchers",
        "name": "State Watchers",
        "description": (
            "Watchers that turn what is new at a source into asset events, lose nothing when a process dies, "
            "and an inbox that gives\neach item to a task once.\n"
        ),
        "state": "ready",
        "lifecycle": "incubation",
        "build-system": "hatchling",
        "source-date-epoch": 1795910400,
        "versions": ["0.1.0"],
        "integrations": [
            {
                "integration-name": "Amazon Simple Storage Service (S3)",
                "external-doc-url": "https://aws.amazon.com/s3/",
                "tags": ["aws"],
            },
            {
                "integration-name": "Common SQL",
                "external-doc-url": "https://www.postgresql.org/docs/current/",
                "tags": ["software"],
            },
            {
                "integration-name": "AWS Batch",
                "external-doc-url": "https://aws.amazon.com/batch/",
                "tags": ["aws"],
            },
            {
                "integration-name": "Amazon Athena",
                "external-doc-url": "https://aws.amazon.com/athena/",
                "tags": ["aws"],
            },
            {
                "integration-name": "Kubernetes",
                "external-doc-url": "https://kubernetes.io/docs/concepts/workloads/pods/",
                "tags": ["software"],
            },
        ],
        "operators": [
            {
                "integration-name": "AWS Batch",
                "python-modules": ["airflow_state_watchers.operators.batch"],
            },
            {
                "integration-name": "Amazon Athena",
                "python-modules": ["airflow_state_watchers.operators.athena"],
            },
            {
                "integration-name": "Kubernetes",
                "python-modules": ["airflow_state_watchers.operators.pod"],
            },
        ],
        "triggers": [
            {
                "integration-name": "Amazon Simple Storage Service (S3)",
                "python-modules": ["airflow_state_watchers.triggers.s3"],
            },
            {
                "integration-name": "Common SQL",
                "python-modules": ["airflow_state_watchers.triggers.sql"],
            },
        ],
        "config": {
            "state_watchers": {
                "description": (
                    "Tuning for all watchers of a deployment. These are options and no trigger arguments, so that "
                    "one edit changes\nhundreds of watchers without making new triggers of them. "
                    "The triggerer reads them when it starts.\n"
                ),
                "options": {
                    "min_poll_interval": {
                        "description": (
                            "The least number of seconds between two polls of one watcher; "
                            "a smaller ``poll_interval`` is raised to it.\n"
                        ),
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "5",
                    },
                    "state_refresh": {
                        "description": (
                            "Seconds after which a watcher looks at its stored checkpoint again, "
                            "and so the longest time until a watermark\nmoved by hand is adopted.\n"
                        ),
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "300",
                    },
                    "source_timeout": {
                        "description": "Seconds after which one request to a source is given up and tried again.\n",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "30",
                    },
                    "max_in_flight": {
                        "description": (
                            "How many deliveries of one watcher may wait for Airflow's confirmation "
                            "while it works off a backlog. In steady\nstate it is one.\n"
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "8",
                    },
                    "list_concurrency": {
                        "description": (
                            "How many pages of one watcher's listing may be on their way at once. "
                            "A large prefix is listed in so many ranges, dated\npartitions side by side.\n"
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "4",
                    },
                    "connections_per_database": {
                        "description": (
                            "How many connections all watchers of one database share at most, in each triggerer.\n"
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "4",
                    },
                    "manifest_retention": {
                        "description": (
                            "Seconds after which a manifest, the object with the items of a batch that is too large for an "
                            "event, is removed.\nWhat has not been read by then is read as events are that were cleaned "
                            "from the database.\n"
                        ),
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "2592000",
                    },
                    "max_backoff": {
                        "description": (
                            "The longest wait, in seconds, between two tries while a source keeps failing.\n"
                        ),
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "300",
                    },
                },
            }
        },
    }

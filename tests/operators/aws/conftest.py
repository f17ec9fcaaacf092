"""AWS over HTTP: a fake whose jobs run, moto's server whose jobs are done at once, and connections to both."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.loaders import JSONFileLoader
from moto.core.config import default_user_config
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.operators.aws.fake_aws import FakeAws

REGION = "us-east-1"
KEYS = {"aws_access_key_id": "AKIDJOBS", "aws_secret_access_key": "jobs-secret"}

Connect = Callable[[str], str]


@pytest.fixture(scope="session", autouse=True)
def models_are_read_once() -> Iterator[None]:
    """Each new process of a task makes a client, and botocore reads its models anew for each."""
    read = functools.cache(functools.partial(JSONFileLoader.load_file, JSONFileLoader()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda loader, path: read(path))
        yield


@pytest.fixture(autouse=True)
def only_airflow_has_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Hide what the machine of whoever runs the tests has."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def connect(url: str) -> str:
        value = {
            "conn_type": "aws",
            "login": KEYS["aws_access_key_id"],
            "password": KEYS["aws_secret_access_key"],
            "extra": {"endpoint_url": url, "region_name": REGION},
        }
        monkeypatch.setenv("AIRFLOW_CONN_JOBS", json.dumps(value))
        return "jobs"

    return connect


@pytest.fixture
def aws(connect: Connect) -> Iterator[FakeAws]:
    with FakeAws() as aws:
        connect(aws.url)
        yield aws


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    """Serve moto over HTTP in a thread. Batch without Docker: a job has succeeded as soon as it is submitted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(default_user_config, "batch", {"use_docker": False})
        application = DomainDispatcherApplication(create_backend_app)
        server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def moto(moto_url: str, connect: Connect) -> Iterator[Callable[[str], Any]]:
    """Clients of moto by service, with a queue ``queue`` and a job definition ``sums`` there."""
    made: list[Any] = []

    def client(service: str) -> Any:
        made.append(boto3.client(service, region_name=REGION, endpoint_url=moto_url, **KEYS))
        return made[-1]

    connect(moto_url)
    _reset()
    batch, iam = client("batch"), client("iam")
    role = iam.create_role(RoleName="batch", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    place = batch.create_compute_environment(
        computeEnvironmentName="place", type="UNMANAGED", state="ENABLED", serviceRole=role
    )
    batch.create_job_queue(
        jobQueueName="queue",
        state="ENABLED",
        priority=1,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": place["computeEnvironmentArn"]}],
    )
    batch.register_job_definition(
        jobDefinitionName="sums",
        type="container",
        containerProperties={"image": "busybox", "vcpus": 1, "memory": 16, "command": ["true"]},
    )
    yield client
    for each in made:
        each.close()
    _reset()


def _reset() -> None:
    from moto.athena.models import athena_backends
    from moto.batch.models import batch_backends
    from moto.iam.models import iam_backends

    batch_backends[DEFAULT_ACCOUNT_ID][REGION].reset()
    athena_backends[DEFAULT_ACCOUNT_ID][REGION].reset()
    iam_backends[DEFAULT_ACCOUNT_ID]["aws"].reset()

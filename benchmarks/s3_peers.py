"""Other listers of a prefix, each as it is documented. ``benchmarks.s3_listing`` runs each of them in a process of its own.

Each makes its client and lists a prefix without objects before it is measured, so that everything is loaded by then.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from benchmarks.heartbeat import Run, idle, measure, measure_without_loop, memory
from benchmarks.s3_server import BUCKET, PREFIX, control

EMPTY = "nothing-here/"
REGION = "us-east-1"
IDLE = "an idle loop"
Outcome = dict[str, Run]
List = Callable[[str], Awaitable[object]]


def credentials(port: int) -> dict[str, str]:
    return {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region_name": REGION,
        "aws_access_key_id": "AKIDBENCH",
        "aws_secret_access_key": "not-a-secret",
    }


def load_triggerer(port: int) -> None:
    """Load what a triggerer has loaded (the more a process holds, the longer a collection of its garbage halts it)."""
    os.environ["AIRFLOW_HOME"] = home = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    login = {"login": "AKIDBENCH", "password": "not-a-secret"}
    extra = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": REGION}
    os.environ["AIRFLOW_CONN_BENCH"] = json.dumps({"conn_type": "aws", **login, "extra": extra})
    import airflow.jobs.triggerer_job_runner  # noqa: F401


async def in_loop(port: int, name: str, list_prefix: List) -> Outcome:
    await list_prefix(EMPTY)
    held = memory()
    quiet = await idle()
    control(port, "/served")
    run = await measure(lambda: list_prefix(PREFIX))
    return {IDLE: quiet, name: complete(run, port, held)}


def without_loop(port: int, name: str, list_prefix: Callable[[str], object]) -> Outcome:
    list_prefix(EMPTY)
    held = memory()
    control(port, "/served")
    run = measure_without_loop(lambda: list_prefix(PREFIX))
    return {name: complete(run, port, held)}


def complete(run: Run, port: int, held: float) -> Run:
    """Take off the memory that the process held before, and add what the server says that it has listed."""
    run.peak -= held
    served = control(port, "/served")
    run.pages, run.keys = served["pages"], served["keys"]
    return run


async def aiobotocore(port: int, name: str) -> Outcome:
    load_triggerer(port)
    from aiobotocore.session import get_session

    async with get_session().create_client("s3", **credentials(port)) as client:

        async def list_prefix(prefix: str) -> None:
            async for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
                page.get("Contents", [])

        return await in_loop(port, name, list_prefix)


async def boto3(port: int, name: str) -> Outcome:
    load_triggerer(port)
    import boto3

    client = boto3.client("s3", **credentials(port))

    def list_prefix(prefix: str) -> None:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
            page.get("Contents", [])

    return await in_loop(port, name, lambda prefix: asyncio.to_thread(list_prefix, prefix))


async def key_trigger(port: int, name: str) -> Outcome:
    """What S3KeyTrigger awaits at each of its pokes for a wildcard key; here no key matches, so it looks at all of them."""
    load_triggerer(port)
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    hook: Any = S3Hook(aws_conn_id="bench")
    async with await hook.get_async_conn() as client:

        async def list_prefix(prefix: str) -> None:
            if await hook.check_key_async(client, BUCKET, f"{prefix}*.csv", True):
                raise AssertionError("a key that does not exist was found")

        return await in_loop(port, name, list_prefix)


async def list_keys(port: int, name: str) -> Outcome:
    load_triggerer(port)
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    hook = S3Hook(aws_conn_id="bench")
    return without_loop(port, name, lambda prefix: hook.list_keys(bucket_name=BUCKET, prefix=prefix))


async def s3fs(port: int, name: str) -> Outcome:
    from s3fs import S3FileSystem  # type: ignore[import-not-found,unused-ignore]

    options = credentials(port)
    system = S3FileSystem(
        asynchronous=True,
        endpoint_url=options["endpoint_url"],
        key=options["aws_access_key_id"],
        secret=options["aws_secret_access_key"],
        client_kwargs={"region_name": REGION},
    )
    session = await system.set_session()

    async def find(prefix: str) -> None:
        with suppress(FileNotFoundError):
            await system._find(f"{BUCKET}/{prefix}", detail=True)

    try:
        return await in_loop(port, name, find)
    finally:
        await session.close()


async def dagster(port: int, name: str) -> Outcome:
    """What a Dagster sensor calls to see what was modified since it last looked."""
    import boto3
    from dagster_aws.s3.sensor import get_objects  # type: ignore[import-not-found,unused-ignore]

    client: Any = boto3.client("s3", **credentials(port))
    now = datetime.now(timezone.utc)
    return without_loop(port, name, lambda prefix: get_objects(BUCKET, prefix, since_last_modified=now, client=client))

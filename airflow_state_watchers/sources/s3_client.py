"""An aiobotocore client for one Airflow connection, made so that the event loop is not held.

Everything here runs in a worker thread: importing the Amazon provider, asking Airflow for the connection, reading botocore's
models and assuming a role take from 70 ms to seconds. The connection is asked for by the provider's own hook, outside the
loop's thread as the provider's triggers do it: inside a triggerer that question is answered by the loop, which must be free.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from airflow.providers.amazon.aws.hooks.s3 import S3Hook
from botocore import UNSIGNED
from botocore.config import Config

from airflow_state_watchers.exceptions import SourceDenied, SourceError, SourceMissing
from airflow_state_watchers.sources.s3_errors import explain_connection
from airflow_state_watchers.sources.s3_listing import read_in_thread
from airflow_state_watchers.sources.s3_place import S3Place

MAX_ATTEMPTS = 3
CONNECTIONS = 50
"""At most so many calls of all watchers that share a client are on their way at once; further ones wait."""


def build_client(place: S3Place) -> Any:
    """Return a client that has yet to be entered (``await client.__aenter__()``), of the connection as it is now.

    Blocks: call it in a thread. Nothing is remembered, so the next call sees a connection that was mended.
    Raises :class:`SourceError`.
    """
    try:
        hook = _hook(place)
        hook.conn_config.botocore_config = _limits(place.timeout).merge(hook.config)
        return asyncio.run(_create(hook))
    except SourceError:
        raise
    except Exception as error:
        # Without its cause: the text of such an error may repeat what the connection holds.
        raise explain_connection(error, place) from None


def _hook(place: S3Place) -> S3Hook:
    hook = S3Hook(
        aws_conn_id=place.aws_conn_id,
        region_name=place.region_name,
        verify=place.verify,
        config=_own_config(place),
    )
    # The hook takes a missing connection for an empty one and goes on with whatever credentials the machine has. Users of the
    # Amazon provider count on that for its default connection; for any other id it is a mistake.
    if place.aws_conn_id and place.aws_conn_id != S3Hook.default_conn_name and not hook.conn_config:
        raise SourceMissing(
            f"{place.uri}: Airflow has no connection {place.aws_conn_id!r}, or cannot read it. Create it, or change aws_conn_id."
        )
    return hook


def _own_config(place: S3Place) -> Config | None:
    """Return ``botocore_config`` as botocore's; ``None``, which leaves the choice to the connection, if there is none."""
    if not place.botocore_config:
        return None
    options: Mapping[str, Any] = deepcopy(dict(place.botocore_config))  # botocore changes what it is given
    if options.get("signature_version") == "unsigned":  # as in a connection's config_kwargs: UNSIGNED is not JSON
        options = {**options, "signature_version": UNSIGNED}
    try:
        return Config(**options)
    except Exception as error:
        what = str(error) if isinstance(error, TypeError) else type(error).__name__
        raise SourceDenied(
            f"{place.uri}: botocore's Config does not take botocore_config ({what}). Correct it."
        ) from None


def _limits(timeout: float) -> Config:
    """Time-outs and retries, where neither the caller nor the connection says otherwise.

    ``timeout`` is for all attempts of a call: one that hangs leaves room for another.
    """
    return Config(
        connect_timeout=timeout / 3,
        read_timeout=timeout / 2,
        retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
        max_pool_connections=CONNECTIONS,
        user_agent_extra="airflow-provider-state-watchers",
    )


async def _create(hook: S3Hook) -> Any:
    session = hook.get_session(region_name=hook.region_name, deferrable=True)
    if hook.config.signature_version is not UNSIGNED:
        _refresh_in_thread(await session.get_credentials())
    # create_client() would enter the client too, but its connection pool belongs to the loop that is going to use it.
    client = await session._create_client(
        service_name="s3",
        endpoint_url=hook.conn_config.get_service_endpoint_url("s3"),
        config=hook.config,
        verify=hook.verify,
    )
    # botocore asks a pattern with an early wildcard before its own handler, which reads every body in search of an error.
    for operation in ("ListObjectsV2", "ListMultipartUploads"):
        client.meta.events.register_first(f"before-parse.*.{operation}", read_in_thread)
    client.meta.events.register_last("before-call.s3", _without_expect)
    return client


def _without_expect(params: dict[str, Any], **_: Any) -> None:
    """Send a body at once. aiohttp waits for ever for the "100 Continue" that botocore asks for, and not every proxy sends it."""
    params["headers"].pop("Expect", None)


def _refresh_in_thread(credentials: Any) -> None:
    """Make credentials refresh in a thread where that is a blocking call, as with the roles that the provider assumes."""
    refresh: Callable[[], Any] | None = getattr(credentials, "_refresh_using", None)
    if refresh is None or inspect.iscoroutinefunction(refresh):
        return

    async def refresh_using() -> Any:
        metadata = await asyncio.to_thread(refresh)
        return await metadata if inspect.isawaitable(metadata) else metadata

    credentials._refresh_using = refresh_using

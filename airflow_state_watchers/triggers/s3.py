"""Asset events for the objects that are new under a prefix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from airflow_state_watchers.exceptions import WatcherArgumentError
from airflow_state_watchers.ports import ManifestStore
from airflow_state_watchers.sources.layout import Layout
from airflow_state_watchers.sources.partitions import DatePattern
from airflow_state_watchers.sources.s3 import KeyFilter, S3Source
from airflow_state_watchers.sources.s3_manifest import S3Manifests, manifest_place
from airflow_state_watchers.sources.s3_place import S3Place
from airflow_state_watchers.triggers.arguments import choice, count, flag, plain, seconds, text
from airflow_state_watchers.triggers.settings import configured
from airflow_state_watchers.triggers.watermark import WatermarkTrigger

_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")


class S3PrefixWatermarkTrigger(WatermarkTrigger):
    """One asset event per poll that found new object versions under a prefix.

    :param bucket_name: the bucket; an access point's ARN works too.
    :param prefix: the literal beginning of the keys; ``""`` is the whole bucket.
    :param start: where a watcher without a stored checkpoint begins: ``"latest"`` skips what exists, ``"earliest"``
        delivers it.
    :param initial_value: begin with the objects last modified at this time (inclusive) instead.
    :param poll_interval: seconds, or a ``timedelta``, from one poll's beginning to the next one's.
    :param order: ``"modified"``: any layout, by a full LIST of the prefix at each poll. ``"key"``: keys only grow, so that each
        poll lists no more than what came during ``lookback``.
    :param date_pattern: a ``strftime`` pattern that follows the prefix in every key (``"dt=%Y-%m-%d/"``); a poll lists the
        partitions from ``lookback`` ago, two before them and one after the current one.
    :param timezone: the time zone of ``date_pattern``.
    :param key_pattern: a glob on the whole key, as in ``S3KeySensor``; with ``use_regex`` a regular expression.
    :param min_size: smaller objects (bytes) are left out. Directory markers always are.
    :param overwrites: ``"ignore"``: an object whose key was delivered inside the lookback is not delivered again.
    :param name: the watcher's identity and state key; the default is ``s3://bucket/prefix``. Two assets that are watched
        with equal arguments need different names.
    :param on_source_change: what to do when bucket, prefix or connection changed under one name: ``"stop"`` loudly,
        ``"keep"`` the watermark, or ``"start"`` again.
    :param settle: how old an object must be, by S3's clock, before it is read.
    :param lookback: how far behind the frontier each poll looks again for objects that appeared late.
    :param upload_ttl: multipart uploads in progress are remembered for so long, as their objects appear late; ``None`` for as
        long as they last, 0 not at all.
    :param max_objects_per_event: a poll that found more makes several events; so does one whose items take more than 512 KiB
        in Airflow's database.
    :param manifest_uri: ``s3://bucket/prefix``: a poll that found more makes one event instead, whose items are written there
        as one object; up to 50,000 of them.
    :param aws_conn_id: the Amazon provider's connection; ``None`` uses the environment's credentials.
    :param region_name: overrides the connection's region.
    :param verify: TLS verification, as in the Amazon provider's hooks.
    :param botocore_config: options of botocore's ``Config``.

    Raises :class:`~airflow_state_watchers.exceptions.WatcherArgumentError` at DAG parse for arguments that cannot work.
    """

    kind = "s3_objects"

    def __init__(
        self,
        bucket_name: str,
        *,
        prefix: str,
        start: Literal["latest", "earliest"] = "latest",
        initial_value: datetime | None = None,
        poll_interval: float | timedelta = 60,
        order: Literal["modified", "key"] = "modified",
        date_pattern: str | None = None,
        timezone: str = "UTC",
        key_pattern: str | None = None,
        use_regex: bool = False,
        min_size: int = 0,
        overwrites: Literal["deliver", "ignore"] = "deliver",
        name: str | None = None,
        on_source_change: Literal["stop", "keep", "start"] = "stop",
        settle: float | timedelta = 2,
        lookback: float | timedelta = 3600,
        upload_ttl: float | timedelta | None = 604800,
        max_objects_per_event: int = 1000,
        manifest_uri: str | None = None,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        verify: bool | str | None = None,
        botocore_config: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.bucket_name = _bucket(bucket_name)
        self.prefix = _prefix(prefix)
        self.name = None if name is None else text("name", name)
        self.order = choice("order", order, ("modified", "key"))
        self.date_pattern = None if date_pattern is None else text("date_pattern", date_pattern)
        self.timezone = text("timezone", timezone)
        self._layout = _layout(self.prefix, self.order, self.date_pattern, self.timezone)
        self.use_regex = flag("use_regex", use_regex)
        self.key_pattern = _pattern(key_pattern, self.prefix, is_regex=use_regex)
        self.min_size = count("min_size", min_size, least=0)
        self.overwrites = choice("overwrites", overwrites, ("deliver", "ignore"))
        self.upload_ttl = None if upload_ttl is None else seconds("upload_ttl", upload_ttl)
        self.max_objects_per_event = count("max_objects_per_event", max_objects_per_event, most=100_000)
        self.aws_conn_id = None if aws_conn_id is None else text("aws_conn_id", aws_conn_id)
        self.region_name = None if region_name is None else text("region_name", region_name)
        self.verify = verify if verify is None or isinstance(verify, bool) else text("verify", verify)
        self.botocore_config = _config(botocore_config)
        self.manifest_uri = None if manifest_uri is None else text("manifest_uri", manifest_uri)
        self._filter = KeyFilter(self.key_pattern, self.use_regex, self.min_size)
        super().__init__(
            watcher_name=self.name or f"s3://{self.bucket_name}/{self.prefix}",
            start=start,
            initial_value=initial_value,
            poll_interval=poll_interval,
            on_source_change=on_source_change,
            settle=settle,
            lookback=lookback,
            max_items=self.max_objects_per_event,
            **kwargs,
        )
        self._manifests = None if self.manifest_uri is None else self._manifests_at(self.manifest_uri)

    def build_source(self, timeout: float) -> S3Source:
        return S3Source(
            self.bucket_name,
            prefix=self.prefix,
            layout=self._layout,
            key_filter=self._filter,
            overwrites=self.overwrites,
            lookback=None if self.upload_ttl == 0 else timedelta(seconds=self.lookback or 0),
            concurrency=max(1, int(configured("list_concurrency", 4))),
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            botocore_config=self.botocore_config,
            timeout=timeout,
        )

    def build_manifests(self, timeout: float, keep: timedelta) -> ManifestStore | None:
        if self._manifests is None:
            return None
        bucket, prefix = self._manifests
        place = S3Place(
            bucket=bucket,
            prefix=prefix,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            botocore_config=self.botocore_config,
            timeout=timeout,
            argument="manifest_uri",
        )
        return S3Manifests(place, keep=keep)

    def _manifests_at(self, uri: str) -> tuple[str, str]:
        """Return bucket and prefix of this watcher's manifests, which must not be among the objects that it watches."""
        place = manifest_place(uri, self.watcher_name)
        if place is None:
            raise WatcherArgumentError(f"manifest_uri={uri!r}: give an address like 's3://bucket/manifests'")
        bucket, prefix = place
        if bucket == self.bucket_name and (prefix.startswith(self.prefix) or self.prefix.startswith(prefix)):
            raise WatcherArgumentError(
                f"manifest_uri={uri!r} lies under the watched s3://{self.bucket_name}/{self.prefix} (bucket_name, prefix): the "
                "watcher would deliver its own manifests. Choose another place"
            )
        return place

    def event_fields(self) -> Mapping[str, Any]:
        return {"bucket": self.bucket_name}


def _layout(prefix: str, order: str, date_pattern: str | None, timezone: str) -> Layout:
    if date_pattern is None:
        if timezone != "UTC":
            raise WatcherArgumentError(
                f"timezone={timezone!r} is the time zone of date_pattern, which is not given; give it, or leave timezone out"
            )
        return Layout(prefix, in_order=order == "key")
    if order == "key":
        raise WatcherArgumentError(
            'order="key" and date_pattern are two ways to list less; leave one of them out (with dated partitions date_pattern '
            "is the safer one)"
        )
    return Layout(prefix, dated=DatePattern(date_pattern, timezone))


def _bucket(value: Any) -> str:
    bucket = text("bucket_name", value)
    if "://" in bucket or ("/" in bucket and not bucket.startswith("arn:")):
        raise WatcherArgumentError(
            f"bucket_name={value!r} is an address. Give the bucket alone and the rest as prefix: "
            f"bucket_name={bucket.split('://')[-1].split('/')[0]!r}, prefix=..."
        )
    if not bucket.startswith("arn:") and not _BUCKET.fullmatch(bucket):
        raise WatcherArgumentError(
            f"bucket_name={value!r} cannot be the name of a bucket: letters, digits, '.', '-', '_'"
        )
    return bucket


def _prefix(value: Any) -> str:
    if not isinstance(value, str):
        raise WatcherArgumentError(
            f'prefix={value!r}: give the beginning of the keys, or prefix="" for the whole bucket'
        )
    if "{{" in value or "{%" in value:
        literal = value.split("{", 1)[0]
        raise WatcherArgumentError(
            f"prefix={value!r} has a template, but a watcher belongs to no DAG run. Use prefix={literal!r}, and where a date "
            'follows it date_pattern="dt=%Y-%m-%d/"'
        )
    prefix = text("prefix", value, empty=True)
    if prefix.startswith("s3://"):
        raise WatcherArgumentError(
            f"prefix={value!r} is an address. Give what the keys begin with: prefix={prefix[5:].partition('/')[2]!r}"
        )
    return prefix


def _pattern(value: Any, prefix: str, *, is_regex: bool) -> str | None:
    if value is None:
        return None
    pattern = text("key_pattern", value)
    head = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    if not is_regex and not (head.startswith(prefix) or prefix.startswith(head)):
        raise WatcherArgumentError(
            f"key_pattern={value!r} is matched on the whole key, and none below prefix={prefix!r} can match it. "
            f"Write key_pattern={prefix + pattern!r}"
        )
    return pattern


def _config(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        # Not its content: a proxy's address may hold a password.
        raise WatcherArgumentError(
            f"botocore_config is a {type(value).__name__}: give a dict of botocore's Config options"
        )
    config: dict[str, Any] = plain("botocore_config", value)
    return config

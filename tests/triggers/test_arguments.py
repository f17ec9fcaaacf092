"""Arguments: what they accept, what they say, and what Airflow stores of them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from airflow.triggers.base import BaseEventTrigger

from airflow_state_watchers import S3PrefixWatermarkTrigger
from airflow_state_watchers.exceptions import WatcherArgumentError


def make(**arguments: Any) -> S3PrefixWatermarkTrigger:
    return S3PrefixWatermarkTrigger(**{"bucket_name": "lake", "prefix": "orders/", **arguments})


SELF: dict[str, Any] = {}
SELF["inner"] = SELF


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prefix": None}, ["prefix=None", 'prefix=""']),
        ({"prefix": "orders/{{ ds }}/"}, ["prefix='orders/{{ ds }}/'", "template", "prefix='orders/'"]),
        ({"bucket_name": ""}, ["bucket_name=''"]),
        ({"bucket_name": None}, ["bucket_name=None"]),
        ({"bucket_name": "s3://lake/orders"}, ["bucket_name='s3://lake/orders'", "bucket_name='lake'"]),
        ({"bucket_name": "{{ var.value.bucket }}"}, ["bucket_name", "template"]),
        ({"poll_interval": 0}, ["poll_interval=0", "above zero"]),
        ({"poll_interval": -5}, ["poll_interval=-5"]),
        ({"poll_interval": timedelta(0)}, ["poll_interval"]),
        ({"poll_interval": "60"}, ["poll_interval='60'", "seconds or a timedelta"]),
        ({"poll_interval": True}, ["poll_interval=True"]),
        ({"poll_interval": float("nan")}, ["poll_interval=nan"]),
        ({"poll_interval": float("inf")}, ["poll_interval=inf"]),
        ({"settle": -1}, ["settle=-1"]),
        ({"lookback": timedelta(days=-1)}, ["lookback"]),
        ({"lookback": 1e30}, ["lookback"]),
        ({"start": "newest"}, ["start='newest'", "'latest', 'earliest'"]),
        ({"start": ["latest"]}, ["start=['latest']"]),
        ({"prefix": "s3://lake/orders/"}, ["prefix='s3://lake/orders/' is an address", "prefix='orders/'"]),
        ({"prefix": "a\ud800"}, ["prefix=", "surrogate"]),
        ({"bucket_name": "Bad_Bucket!!"}, ["bucket_name='Bad_Bucket!!' cannot be the name of a bucket"]),
        ({"key_pattern": "data_*.csv"}, ["key_pattern='data_*.csv'", "key_pattern='orders/data_*.csv'"]),
        ({"poll_interval": 10**400}, ["poll_interval"]),
        ({"upload_ttl": -(10**400)}, ["upload_ttl"]),
        ({"botocore_config": SELF}, ["botocore_config", "holds itself"]),
        ({"order": "size"}, ["order='size'", "'modified', 'key'"]),
        ({"order": "key", "date_pattern": "%Y/"}, ["order", "date_pattern"]),
        ({"date_pattern": "day/"}, ["date_pattern='day/' names no date"]),
        ({"date_pattern": "%Y-%b/"}, ["date_pattern='%Y-%b/': %b cannot be used"]),
        ({"date_pattern": "%Y/%"}, ["date_pattern='%Y/%'"]),
        ({"date_pattern": ""}, ["date_pattern=''"]),
        ({"date_pattern": "%Y/", "timezone": "Mars/Base"}, ["timezone='Mars/Base'", "Europe/Berlin"]),
        ({"timezone": "Europe/Berlin"}, ["timezone='Europe/Berlin'", "date_pattern"]),
        ({"overwrites": "keep"}, ["overwrites='keep'", "'deliver', 'ignore'"]),
        ({"upload_ttl": -1}, ["upload_ttl=-1"]),
        ({"upload_ttl": "1d"}, ["upload_ttl='1d'"]),
        ({"on_source_change": "ignore"}, ["on_source_change='ignore'", "'stop', 'keep', 'start'"]),
        ({"initial_value": datetime(2026, 1, 1)}, ["initial_value", "time zone"]),  # noqa: DTZ001
        ({"initial_value": "soon"}, ["initial_value", "soon"]),
        ({"initial_value": datetime.now(timezone.utc), "start": "earliest"}, ["initial_value", "earliest"]),
        ({"key_pattern": "(", "use_regex": True}, ["key_pattern='('"]),
        ({"key_pattern": ""}, ["key_pattern=''"]),
        ({"use_regex": "yes"}, ["use_regex='yes'"]),
        ({"min_size": -1}, ["min_size=-1"]),
        ({"max_objects_per_event": 0}, ["max_objects_per_event=0"]),
        ({"max_objects_per_event": 1.5}, ["max_objects_per_event=1.5"]),
        ({"name": ""}, ["name=''"]),
        ({"aws_conn_id": ""}, ["aws_conn_id=''"]),
        ({"verify": 5}, ["verify=5"]),
        ({"botocore_config": [1]}, ["botocore_config is a list"]),
        ({"botocore_config": {"retries": object()}}, ["botocore_config"]),
        ({"bucket": "lake"}, ["'bucket'", "'bucket_name'"]),
        ({"poll_intervall": 5}, ["'poll_intervall'", "'poll_interval'"]),
        ({"wildcard_match": True}, ["'wildcard_match'"]),
    ],
)
def test_a_wrong_argument_is_named_at_dag_parse(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(WatcherArgumentError) as caught:
        make(**arguments)
    for word in words:
        assert word in str(caught.value)
    # The triggerer of 3.3 survives nothing but a TypeError from a constructor.
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


def test_durations_are_timedelta_or_seconds_and_serialized_as_seconds() -> None:
    one, other = make(poll_interval=timedelta(minutes=5), settle=1.5), make(poll_interval=300, settle=1.5)
    assert one.serialize() == other.serialize()
    assert one.serialize()[1] == {"bucket_name": "lake", "prefix": "orders/", "poll_interval": 300, "settle": 1.5}


def test_arguments_survive_airflows_way_to_the_triggerer() -> None:
    trigger = make(
        initial_value=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        key_pattern="*.csv",
        verify=False,
        botocore_config={"retries": {"max_attempts": 3}, "proxies": ("a", "b")},
        name="mine",
        aws_conn_id=None,
    )
    path, arguments = trigger.serialize()
    again = S3PrefixWatermarkTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)
    assert arguments["initial_value"] == "2025-12-31T22:00:00+00:00"
    assert BaseEventTrigger.hash(path, arguments) == BaseEventTrigger.hash(*again.serialize())
    module, name = path.rsplit(".", 1)
    assert (module, name) == ("airflow_state_watchers.triggers.s3", "S3PrefixWatermarkTrigger")


def test_the_default_name_is_readable_and_made_of_the_source_alone() -> None:
    assert make(poll_interval=5, settle=9).watcher_name == make().watcher_name == "s3://lake/orders/"
    assert make(name="mine").watcher_name == "mine"
    assert make(prefix="").watcher_name == "s3://lake/"


def test_the_stream_key_is_one_per_trigger_and_copes_without_an_id() -> None:
    one, other = make(), make()
    assert one.shared_stream_key() == one.shared_stream_key()
    assert one.shared_stream_key() != other.shared_stream_key()
    one.trigger_id, other.trigger_id = 1, 2
    assert one.shared_stream_key() != other.shared_stream_key()
    other.trigger_id = 1
    assert one.shared_stream_key() == other.shared_stream_key()


async def test_run_says_that_it_is_not_the_way() -> None:
    with pytest.raises(Exception, match="shared stream"):
        await anext(make().run())


def test_no_error_shows_what_botocore_config_holds() -> None:
    for value in (
        "http://user:secret@proxy",
        [("proxies", "http://user:secret@proxy")],
        {"proxies": {"http": {"secret"}}},
    ):
        with pytest.raises(WatcherArgumentError) as caught:
            S3PrefixWatermarkTrigger("lake", prefix="orders/", botocore_config=value)  # type: ignore[arg-type]
        assert "secret" not in str(caught.value)


def test_text_of_an_enum_is_text() -> None:
    class Bucket(str, Enum):
        LAKE = "lake"

    trigger = S3PrefixWatermarkTrigger(Bucket.LAKE, prefix=Bucket.LAKE)
    assert trigger.watcher_name == "s3://lake/lake"
    assert type(trigger.serialize()[1]["bucket_name"]) is str

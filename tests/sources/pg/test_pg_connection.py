"""From an Airflow connection to what libpq is told."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from airflow.providers.postgres.hooks.postgres import PostgresHook
from psycopg.conninfo import conninfo_to_dict

from airflow_state_watchers.exceptions import SourceDenied, SourceMissing
from airflow_state_watchers.sources.pg_connection import find_target
from tests.sources.pg.conftest import Define

FIELDS: dict[str, Any] = {
    "host": "db.example",
    "port": 6432,
    "login": "me",
    "password": "it's a s3cret",
    "schema": "shop",
}


def told(conn_id: str, **hook_params: Any) -> dict[str, Any]:
    return conninfo_to_dict(find_target(conn_id, hook_params).conninfo)


def test_fields_and_what_is_ours(define: Define) -> None:
    options = told(define("shop", **FIELDS))
    expected = {"host": "db.example", "port": "6432", "user": "me", "password": "it's a s3cret", "dbname": "shop"}
    assert expected.items() <= options.items()
    assert options["fallback_application_name"] == "airflow-state-watchers"
    assert options["connect_timeout"] == "10"
    assert options["keepalives"] == "1"


def test_the_extra_is_told_to_libpq_and_comes_first(define: Define) -> None:
    extra = {
        "sslmode": "require",
        "sslcert": "/etc/client.pem",
        "connect_timeout": "3",
        "keepalives": False,
        "keepalives_idle": "300",
        "application_name": "mine",
        "options": "-c search_path=sales",
        "target_session_attrs": "read-write",
    }
    options = told(define("shop", **FIELDS, extra=extra))
    assert {**extra, "keepalives": "0"}.items() <= options.items()


def test_what_is_the_hooks_own_is_not(define: Define) -> None:
    extra = {"cursor": "dictcursor", "iam": False, "aws_conn_id": "x", "sqlalchemy_scheme": "postgresql+psycopg"}
    extra.update(sqlalchemy_query={}, redshift=False)
    assert told(define("shop", **FIELDS, extra=extra)) == told(define("plain", **FIELDS))


def test_a_service_names_the_rest(define: Define) -> None:
    options = told(define("shop", extra={"service": "reporting"}))
    assert options["service"] == "reporting"
    assert not {"host", "port", "user", "password", "dbname", "application_name"} & set(options)


def test_hook_params(define: Define) -> None:
    options = told(define("shop", **FIELDS), database="other", options="-c role=reader")
    assert options["dbname"] == "other"
    assert options["options"] == "-c role=reader"


def test_a_token_instead_of_a_password(define: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for with each new connection; the place stays the same."""
    tokens = iter(["t0ken-1", "t0ken-2"])
    monkeypatch.setattr(PostgresHook, "get_iam_token", lambda self, connection: ("me", next(tokens), 5432))
    define("shop", **{**FIELDS, "password": ""}, extra={"iam": True})
    first, second = find_target("shop", {}), find_target("shop", {})
    assert conninfo_to_dict(first.conninfo)["password"] == "t0ken-1"
    assert conninfo_to_dict(second.conninfo)["password"] == "t0ken-2"
    assert first.place == second.place


def test_a_token_that_cannot_be_had(define: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, connection: Any) -> None:
        raise ValueError("the key is AKIAs3cret")

    monkeypatch.setattr(PostgresHook, "get_iam_token", fail)
    with pytest.raises(SourceDenied, match="ValueError") as failed:
        find_target(define("shop", **FIELDS, extra={"iam": True}), {})
    assert "s3cret" not in str(failed.value)
    assert failed.value.__cause__ is None


def test_no_such_connection() -> None:
    with pytest.raises(SourceMissing, match="no connection 'nowhere'"):
        find_target("nowhere", {})


def test_an_extra_that_nobody_knows(define: Define) -> None:
    with pytest.raises(SourceDenied, match="'shop' has ssl_mode, which libpq"):
        find_target(define("shop", **FIELDS, extra={"ssl_mode": "s3cret"}), {})


def test_the_password_is_not_shown(define: Define) -> None:
    assert "s3cret" not in repr(find_target(define("shop", **FIELDS), {}))


def test_a_changed_password_is_another_place(define: Define) -> None:
    """So that connections of before are not used beside new ones."""
    places = {find_target(define("shop", **{**FIELDS, "password": word}), {}).place for word in ("one", "two")}
    assert len(places) == 2


def test_psycopg_is_what_connects() -> None:
    from airflow_state_watchers.sources import pg_connection

    assert pg_connection.AsyncConnection is psycopg.AsyncConnection

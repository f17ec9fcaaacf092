"""What goes wrong with a real MariaDB is said, with connection and table and no secret, and passes when its cause does."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from airflow_state_watchers import SqlWindow
from system_tests.sql_servers.mariadb_server import PASSWORD, MariadbServer
from system_tests.sql_servers.shop import Shop, Watched, ids


@pytest.fixture
def watched(shop: Shop) -> Watched:
    """A watcher that has delivered row 1."""
    shop.orders("bigint", 1)
    watched = Watched()
    assert ids(watched.windows()) == [1]
    return watched


def failure(watched: Watched) -> str:
    """Return the kind of error that a poll ends with."""
    root = watched.root
    assert watched.poll() == []
    assert watched.root == root
    message = watched.error()
    assert message is not None
    assert "'shop'" in message
    assert "secret" not in message
    return str(watched.health()["last_error"]["kind"])


def recovers(watched: Watched, shop: Shop) -> None:
    shop.insert(2)
    assert ids([SqlWindow.from_payload(watched.until_event())]) == [2]
    assert watched.error() is None


def test_a_wrong_password(shop: Shop, connect_airflow: Callable[..., None]) -> None:
    shop.orders("bigint", 1)
    connect_airflow(password="wrong-secret")
    watched = Watched()
    assert failure(watched) == "SourceDenied"
    connect_airflow()
    watched.harness.restart()
    assert ids(watched.windows()) == [1]


def test_nobody_listens(shop: Shop, connect_airflow: Callable[..., None]) -> None:
    shop.orders("bigint", 1)
    connect_airflow(port=9)
    assert failure(Watched()) == "SourceUnavailable"


def test_there_is_no_such_database(shop: Shop, connect_airflow: Callable[..., None]) -> None:
    connect_airflow(schema="nowhere")
    assert failure(Watched()) == "SourceMissing"


def test_a_table_that_is_not_there_is_found_once_it_is(shop: Shop, watched: Watched) -> None:
    shop.run("RENAME TABLE orders TO aside")
    assert failure(watched) == "SourceMissing"
    shop.run("RENAME TABLE aside TO orders")
    recovers(watched, shop)


def test_a_column_that_is_not_there_is_found_once_it_is(shop: Shop, watched: Watched) -> None:
    shop.run("ALTER TABLE orders RENAME COLUMN w TO v")
    assert failure(watched) == "SourceMissing"
    shop.run("ALTER TABLE orders RENAME COLUMN v TO w")
    recovers(watched, shop)


def test_a_user_who_may_not_read(shop: Shop, connect_airflow: Callable[..., None]) -> None:
    shop.orders("bigint", 1)
    shop.run(f"CREATE OR REPLACE USER guest@'%' IDENTIFIED BY '{PASSWORD}'")
    shop.run("CREATE TABLE other (id int)")
    shop.run("GRANT SELECT ON shop.other TO guest@'%'")
    connect_airflow(login="guest")
    watched = Watched()
    assert failure(watched) == "SourceDenied"
    shop.run("GRANT SELECT ON shop.orders TO guest@'%'")
    assert ids(watched.windows()) == [1]


def test_another_session_has_locked_the_table(shop: Shop, watched: Watched) -> None:
    shop.run("SET GLOBAL lock_wait_timeout = 1")
    try:
        watched.harness.restart()
        shop.run("LOCK TABLES orders WRITE")
        assert failure(watched) == "SourceUnavailable"
        assert "lock" in (watched.error() or "")
        shop.run("UNLOCK TABLES")
        recovers(watched, shop)
    finally:
        shop.run("SET GLOBAL lock_wait_timeout = 86400")


def test_a_statement_that_hangs_does_not_hold_the_watcher(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__STATE_WATCHERS__SOURCE_TIMEOUT", "0.5")
    shop.orders("bigint", 1)
    watched = Watched()
    assert ids(watched.windows()) == [1]
    shop.run("LOCK TABLES orders WRITE")
    assert failure(watched) == "SourceUnavailable"
    assert "no answer within 0.5 s" in (watched.error() or "")
    shop.run("UNLOCK TABLES")
    recovers(watched, shop)


def test_the_server_ends_the_session(shop: Shop, watched: Watched) -> None:
    sessions = shop.run("SELECT id FROM information_schema.processlist WHERE user = 'shop' AND id <> connection_id()")
    assert sessions
    for (session,) in sessions:
        shop.run(f"KILL {session}")
    recovers(watched, shop)


def test_the_server_is_killed_and_comes_back(shop: Shop, watched: Watched, server: MariadbServer) -> None:
    server.kill()
    try:
        assert [failure(watched), failure(watched)] == ["SourceUnavailable"] * 2
    finally:
        server.start()
    shop.reconnect()
    recovers(watched, shop)


def test_the_server_is_killed_while_it_answers(shop: Shop, watched: Watched, server: MariadbServer) -> None:
    shop.run("LOCK TABLES orders WRITE")
    poll = Thread(target=watched.poll)
    poll.start()
    waiting = "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
    while not shop.run(waiting):
        assert poll.is_alive()
    server.kill()
    try:
        poll.join()
        assert watched.health()["last_error"]["kind"] == "SourceUnavailable"
    finally:
        server.start()
    shop.reconnect()
    recovers(watched, shop)


def test_another_type_under_a_stored_watermark_is_loud(shop: Shop, watched: Watched) -> None:
    shop.run("ALTER TABLE orders MODIFY w varchar(20)")
    watched.harness.restart()
    shop.insert("2")
    assert watched.poll() == []
    assert "stored for a column of type bigint, and it is varchar now" in (watched.error() or "")
    shop.run("ALTER TABLE orders MODIFY w bigint")
    watched.harness.restart()
    assert ids(watched.windows()) == [2]


def test_a_type_that_changes_while_the_watcher_runs_is_loud_too(shop: Shop, watched: Watched) -> None:
    shop.run("ALTER TABLE orders MODIFY w varchar(20)")
    shop.insert("2")
    for _ in range(21):  # the catalogue is asked now and then
        watched.poll()
    assert "stored for a column of type bigint, and it is varchar now" in (watched.error() or "")

"""Values at the edges of their types: they are delivered, and keep nothing else from being delivered."""

from __future__ import annotations

import pytest

from tests.sources.pg.conftest import Define, Place
from tests.sources.pg.test_watched_starts import Watched, table


@pytest.mark.parametrize(
    ("type_name", "greatest"), [("smallint", 2**15 - 1), ("int", 2**31 - 1), ("bigint", 2**63 - 1), ("numeric", 10**40)]
)
async def test_the_greatest_integer_there_is(place: Place, define: Define, type_name: str, greatest: int) -> None:
    await table(place, type_name, "5", str(greatest))
    watched = Watched(place, define, start="earliest", settle=0)
    assert [number for _ in range(4) for number in await watched.ids()] == [1, 2]


@pytest.mark.parametrize(
    ("type_name", "values"),
    [
        ("timestamptz", ["-infinity", "0044-03-15 12:00 BC", "2026-01-01"]),
        ("timestamp", ["-infinity", "2026-01-01"]),
        ("date", ["-infinity", "2026-01-01"]),
    ],
)
async def test_times_that_python_has_not(place: Place, define: Define, type_name: str, values: list[str]) -> None:
    await table(place, type_name, *values)
    async with await place.connect() as connection:
        await connection.execute(
            "ALTER TABLE t ADD valid_to timestamptz DEFAULT 'infinity', ADD closes time DEFAULT '24:00'"
        )
        await connection.execute("ALTER TABLE t ADD days date[] DEFAULT '{infinity,2026-01-31}'")
    watched = Watched(place, define, start="earliest", timezone=None if type_name == "timestamptz" else "UTC")
    (event,) = await watched.harness.poll()
    assert [row["id"] for row in event["items"]] == list(range(1, len(values) + 1))
    assert event["items"][0] == {
        "id": 1,
        "w": "-infinity",
        "valid_to": "infinity",
        "closes": "24:00:00",
        "days": ["infinity", "2026-01-31"],
    }

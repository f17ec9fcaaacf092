"""The documentation says of the servers what the tests assert, and nothing is asserted that no test looks at."""

from __future__ import annotations

from pathlib import Path

from system_tests.s3_servers.deviations import RIGHT, WRONG, table

HERE = Path(__file__).parent


def test_the_documentation_has_the_table() -> None:
    page = (HERE.parents[1] / "docs" / "reference" / "s3_servers.rst").read_text()
    assert table() in page, "python -m system_tests.s3_servers.deviations prints the table as it has to be"


def test_every_topic_is_looked_at() -> None:
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    assert [topic for topic in RIGHT if f'"{topic}"' not in tests] == []
    assert [topic for wrong in WRONG.values() for topic in wrong if topic not in RIGHT] == []

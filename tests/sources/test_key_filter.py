from __future__ import annotations

import pytest

from airflow_state_watchers.exceptions import WatcherArgumentError
from airflow_state_watchers.sources.key_filter import KeyFilter


def test_everything_is_wanted_by_default() -> None:
    assert KeyFilter().accepts("any/key", 0)


@pytest.mark.parametrize(
    ("pattern", "key", "wanted"),
    [
        ("orders/*.csv", "orders/a.csv", True),
        ("orders/*.csv", "orders/deep/er/a.csv", True),  # a star crosses slashes, as in S3KeySensor
        ("orders/*.csv", "orders/a.csv.gz", False),
        ("*.csv", "orders/a.CSV", False),
        ("*.csv", "line\nbreak.csv", True),
        ("orders/[ab].csv", "orders/b.csv", True),
        ("a.csv", "abcsv", False),
    ],
)
def test_a_glob_is_matched_on_the_whole_key(pattern: str, key: str, wanted: bool) -> None:
    assert KeyFilter(pattern).accepts(key, 1) is wanted


@pytest.mark.parametrize(
    ("pattern", "key", "wanted"),
    [
        (r"orders/\d+\.csv$", "orders/17.csv", True),
        (r"orders/\d+", "orders/17.csv", True),  # from the beginning, not to the end
        (r"\d+\.csv", "orders/17.csv", False),
    ],
)
def test_a_regular_expression_is_matched_from_the_beginning(pattern: str, key: str, wanted: bool) -> None:
    assert KeyFilter(pattern, use_regex=True).accepts(key, 1) is wanted


def test_small_objects_are_left_out() -> None:
    wanted = KeyFilter("*.csv", min_size=10)
    assert [wanted.accepts("a.csv", size) for size in (9, 10)] == [False, True]


def test_a_wrong_regular_expression_is_an_argument_error_that_names_the_argument() -> None:
    with pytest.raises(WatcherArgumentError, match=r"key_pattern='\('"):
        KeyFilter("(", use_regex=True)
    assert KeyFilter("(").accepts("(", 1), "the same text is a fine glob"


def test_equal_filters_are_equal() -> None:
    assert KeyFilter("*.csv") == KeyFilter("*.csv")
    assert KeyFilter("*.csv") != KeyFilter("*.csv", use_regex=False, min_size=1)

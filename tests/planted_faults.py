"""Plant faults in a copy of the package and see that the laws catch each of them.

    python tests/planted_faults.py [word ...]

Exit code 0 only if the copy without a fault passes and every fault is caught. With words: only the faults whose name has one.

A fault replaces a text that must stand exactly once in its file, so a fault that no longer fits the code fails this script. It
is caught when a test of its ring fails by an assertion; one that merely breaks the code does not count.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGE = "airflow_state_watchers"
PARALLEL = 2
LAWS, CRASHES = "tests/core/test_laws.py", "tests/core/test_crashes.py"
ROWS = "tests/triggers/test_row_histories.py"

CONFTEST = """
from hypothesis import Phase, settings

# The same examples every time; the first that fails will do, however long it is.
settings.register_profile(
    "planted", derandomize=True, deadline=None, database=None, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("planted")

def pytest_exception_interact(node, call):
    error = call.excinfo.value
    with open("failed.txt", "w") as file:
        print(node.nodeid.rpartition("/")[2], type(error).__name__, str(error).partition("\\n")[0], sep="\\n", file=file)
"""
PYTEST = """
[pytest]
addopts = --import-mode=importlib
pythonpath = .
filterwarnings = error
"""


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str
    tests: str = CRASHES


FAULTS = [
    # What a poll reads.
    Fault(
        "no lookback",
        "core/checkpoint.py",
        "low = None if self.frontier is None else minus(self.frontier.value, lookback)",
        "low = None if self.frontier is None else self.frontier.value",
        LAWS,
    ),
    Fault(
        "settle ignored",
        "core/window.py",
        "return Window(low, Position(now - settle))",
        "return Window(low, Position(now))",
        LAWS,
    ),
    Fault(
        "a replay without the lookback",
        "core/window.py",
        "return Window(low, checkpoint.intents[-1].upto)",
        "return Window(checkpoint.frontier.value if checkpoint.frontier else None, checkpoint.intents[-1].upto)",
    ),
    Fault(
        "batches not sorted",
        "core/window.py",
        "sorted(distinct.values(), key=lambda item: item.position.order)",
        "list(distinct.values())",
        LAWS,
    ),
    Fault(
        "a tie at the cut is lost",
        "core/window.py",
        "self._upto = end",
        "self._upto = Position(end.value + _TICK)",
        LAWS,
    ),
    Fault(
        "the frontier passes an incomplete selection",
        "core/window.py",
        "return Selected(tuple(self._items), self._upto, self._complete, tuple(self._old))",
        "return Selected(tuple(self._items), self._window.upto, self._complete, tuple(self._old))",
        LAWS,
    ),
    # What is remembered.
    Fault(
        "no ledger",
        "core/ledger.py",
        "        if not new:\n",
        "        if new:\n",
        LAWS,
    ),
    Fault(
        "the ledger pruned a moment early",
        "core/ledger.py",
        "if segment.high >= before",
        "if segment.high > before",
        "tests/core/test_ledger.py",
    ),
    Fault(
        "the ledger pruned by half the lookback",
        "core/checkpoint.py",
        "self.ledger.pruned(before)",
        "self.ledger.pruned(before + lookback / 2)",
    ),
    Fault(
        "an open segment changed under its name",
        "core/ledger.py",
        "        segments = list(kept)\n",
        "        segments = list(kept)\n        name = copied[-1].name if copied else name\n",
    ),
    Fault(
        "the watermark not the greatest",
        "core/checkpoint.py",
        "watermark = later(self.watermark, items[-1].position if items else None)",
        "watermark = items[-1].position if items else self.watermark",
        LAWS,
    ),
    Fault(
        "the frontier moves back",
        "core/checkpoint.py",
        "frontier = later(later(self.frontier, intent.upto), watermark)",
        "frontier = later(intent.upto, watermark)",
    ),
    Fault(
        "what stands at the beginning is not seen",
        "core/checkpoint.py",
        "cursor=None).with_ledger(seen)",
        "cursor=None)",
    ),
    Fault(
        "the chain goes on over a move",
        "core/checkpoint.py",
        "return replace(empty, intents=(), last_batch=None, cursor=None)",
        "return replace(empty, intents=(), cursor=None)",
    ),
    # Uploads that end late.
    Fault(
        "an upload that is gone not looked up",
        "core/window.py",
        "elif item.position in self._window or self._gone.made(item):",
        "elif item.position in self._window:",
    ),
    Fault(
        "an upload forgotten when it is gone",
        "core/uploads.py",
        "return (*uploads, *(replace(upload, missed=upload.missed + 1) for upload in before.values()))",
        "return tuple(uploads)",
    ),
    Fault(
        "an upload forgotten before its stamp has settled",
        "core/uploads.py",
        "upload.missed >= LOOKS and upload.initiated + TOLERANCE < horizon",
        "upload.missed >= LOOKS",
        "tests/core/test_uploads.py",
    ),
    Fault(
        "an upload forgotten though its work waits for delivery",
        "core/uploads.py",
        "return looked_up and not any(map(upload.made, made.get(upload.key, ())))",
        "return looked_up",
        "tests/core/test_uploads.py",
    ),
    Fault(
        "an upload that is done with looked up again",
        "core/uploads.py",
        "for upload in uploads if upload.id not in gone)",
        "for upload in uploads)",
        "tests/core/test_uploads.py",
    ),
    Fault(
        "what stood taken for the work of an upload",
        "core/uploads.py",
        "            and item.identity not in self.known\n",
        "",
        "tests/core/test_uploads.py",
    ),
    Fault(
        "uploads not stored",
        "core/codec.py",
        '"uploads": [segment.name for segment in checkpoint.upload_segments]',
        '"uploads": []',
    ),
    Fault(
        "uploads forgotten by a new generation",
        "core/checkpoint.py",
        "return replace(empty, intents=(), last_batch=None, cursor=None)",
        "return replace(empty, intents=(), last_batch=None, cursor=None, uploads=())",
    ),
    Fault(
        "the work of an upload counted as what stood",
        "core/stood.py",
        "if start.sees(item) and not (uploads.by_key and uploads.made(item)):",
        "if start.sees(item):",
    ),
    Fault(
        "uploads overwritten under the name that a stored root has",
        "state/checkpoint_store.py",
        "max(checkpoint.n, self._n) + 1",
        "checkpoint.n + 1",
    ),
    # What is delivered again.
    Fault(
        "a replay ignores the stored bounds",
        "core/batch.py",
        "    rest: Sequence[Item] = selected.items\n",
        "    yield None, selected.items, selected.upto\n    return\n    rest: Sequence[Item] = selected.items\n",
    ),
    Fault(
        "replaces dropped",
        "core/batch.py",
        "return tuple(known for known in",
        "return tuple(known for known in () and",
    ),
    Fault(
        "replaces names the last one only",
        "core/batch.py",
        "(old.batch_id, *old.replaces)",
        "(old.batch_id,)",
    ),
    Fault(
        "an intent closed before its end",
        "core/batch.py",
        "if old is not None and upto == old.upto else ()",
        "if old is not None else ()",
    ),
    Fault(
        "an intent closed that is still on its way",
        "core/batch.py",
        "if each not in begun or each == batch_id",
        "",
        "tests/core/test_batch.py",
    ),
    Fault(
        "a batch id that is not its content",
        "core/batch.py",
        "digest.update(identity)",
        'digest.update(b"item")',
        LAWS,
    ),
    Fault(
        "a batch id without the generation",
        "core/batch.py",
        r"{checkpoint.origin}\0{checkpoint.generation}\0",
        r"{checkpoint.origin}\0",
    ),
    Fault(
        "batches not chained",
        "core/batch.py",
        "previous, closes = batch_id, ()",
        "closes = ()",
        LAWS,
    ),
    # What is stored, and when.
    Fault(
        "committed before it is confirmed",
        "triggers/progress.py",
        "return await self._save(checkpoint.intend(batch.intent, closes=batch.closes), now)",
        "return await self._save(\n"
        "                checkpoint.commit(\n"
        "                    batch.intent, batch.items, lookback=self._settings.lookback, segment=batch.batch_id\n"
        "                ),\n"
        "                now,\n"
        "            )",
    ),
    Fault(
        "a root stored before its segments",
        "state/checkpoint_store.py",
        "        for segment in segments:\n",
        "        await self._set(self._root, dump_root(new))\n        for segment in segments:\n",
    ),
    Fault(
        "segments deleted before the root",
        "state/checkpoint_store.py",
        "        await self._set(self._root, dump_root(new))\n",
        "        await self._delete(new.dropped, keep=named)\n        await self._set(self._root, dump_root(new))\n",
    ),
    Fault(
        "a segment of a killed process left behind",
        "state/checkpoint_store.py",
        "(*checkpoint.dropped, *_orphans(checkpoint))",
        "checkpoint.dropped",
    ),
    Fault(
        "a write without a look",
        "triggers/progress.py",
        "        verdict = await self._look()\n        if self.checkpoint is None",
        "        verdict = Verdict.UNCHANGED\n        if self.checkpoint is None",
    ),
    # Windows of rows.
    Fault(
        "open transactions not waited for",
        "core/reach.py",
        "return Reach(oldest.since - settle, oldest, tuple(passing))",
        "return Reach(opened.now - settle, oldest, tuple(passing))",
        ROWS,
    ),
    Fault(
        "a value readable at the look that shows it",
        "core/reach.py",
        "if seen.at < moment), None)",
        "), None)",
        ROWS,
    ),
    Fault(
        "what was passed not read again",
        "triggers/row_polling.py",
        "if passed.key not in keys]",
        "if passed.key in ()]",
        ROWS,
    ),
    Fault(
        "what was passed forgotten with the process",
        "core/row_codec.py",
        '"passed": tuple(Passed(key, load_cut(low, "passed")) for key, low in rows["passed"]),',
        '"passed": (),',
        ROWS,
    ),
    Fault(
        "a passed transaction forgotten when it is prepared",
        "triggers/row_polling.py",
        "checkpoint.passing(unknown, like=ended[0])",
        "checkpoint",
        "tests/triggers/test_rows.py",
    ),
    Fault(
        "the lookback not looked at",
        "triggers/row_polling.py",
        "        if not slices:\n            return []",
        "        if slices is not None:\n            return []",
        ROWS,
    ),
    Fault(
        "a slice forgotten with the process",
        "core/row_codec.py",
        '"slices": tuple(_load_slice(each) for each in rows["slices"]),',
        '"slices": (),',
        ROWS,
    ),
    Fault(
        "the frontier ahead of a window that is not committed",
        "triggers/row_polling.py",
        "return Read(self._checkpoint, batches, upto,",
        "return Read(replace(self._checkpoint, frontier=end.cut) if end else self._checkpoint, batches, upto,",
        ROWS,
    ),
    Fault(
        "windows not delivered again after a crash",
        "core/row_codec.py",
        '"intents": tuple(_load_intent(intent) for intent in stored["intents"]),',
        '"intents": (),',
        ROWS,
    ),
    Fault(
        "a window's new end taken for its reading again",
        "core/rows.py",
        "return replace(done, slices=replaced(done.slices, intent.slice)) if intent.slice else done",
        "return replace(done, watermark=intent.high, frontier=intent.high)",
        ROWS,
    ),
    Fault(
        "an event of an idle table",
        "triggers/row_polling.py",
        "elif not (is_last and not intents and self._is_hot(end.at)):",
        "elif not is_last:",
        "tests/triggers/test_rows.py",
    ),
    Fault(
        "another type under a stored watermark not said",
        "core/rows.py",
        "return self.column in (None, column) or {self.column, column} <= _WHOLE",
        "return True",
        "tests/triggers/test_rows.py",
    ),
    # Who has written.
    Fault(
        "a person's edit not seen",
        "core/codec.py",
        'stored.get("seal") == _seal(stored)',
        '"seal" in stored',
    ),
    Fault(
        "a deleted root taken for a loss",
        "core/verdict.py",
        "        if marked:\n",
        "        if marked and mine is None:\n",
    ),
    Fault(
        "a loss taken for a beginning",
        "core/verdict.py",
        "Verdict.FIRST if mine is None else Verdict.LOST",
        "Verdict.FIRST",
    ),
    Fault(
        "a second triggerer adopted backward",
        "core/verdict.py",
        "return Verdict.STALE if stored.is_behind(mine) else Verdict.ADOPT",
        "return Verdict.ADOPT",
    ),
    Fault(
        "a second triggerer taken for a person",
        "core/verdict.py",
        "    if stored.by == by:\n",
        "    if stored.by:\n",
    ),
    Fault(
        "intents overwritten for a frontier in memory",
        "core/checkpoint.py",
        "return (self.generation, self.watermark is not None, self.watermark)",
        "return (self.generation, self.watermark is not None, self.watermark, self.frontier is not None, self.frontier)",
    ),
]


@dataclass(frozen=True)
class Result:
    name: str
    caught: bool
    where: str


def copy(directory: Path) -> None:
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / PACKAGE, directory / PACKAGE, ignore=skip)
    shutil.copytree(REPOSITORY / "tests" / "core", directory / "tests" / "core", ignore=skip)
    (directory / "tests" / "triggers").mkdir()
    for name in ("rows.py", "test_rows.py", "test_row_histories.py"):
        shutil.copy(REPOSITORY / "tests" / "triggers" / name, directory / "tests" / "triggers")
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "pytest.ini").write_text(PYTEST)


def plant(fault: Fault, directory: Path) -> None:
    path = directory / PACKAGE / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.name}: {fault.old!r} stands {text.count(fault.old)} times in {fault.file}, not once")
    path.write_text(text.replace(fault.old, fault.new))
    compile(path.read_text(), path, "exec")


def run(directory: Path, *tests: str) -> tuple[int, list[str]]:
    """Run tests until one fails; return pytest's exit code and what failed: test, kind of error, message."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *tests]
    env = {
        **os.environ,
        "PYTHONPATH": str(directory),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "AIRFLOW_HOME": str(directory / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=600)
    failed = directory / "failed.txt"
    if failed.exists():
        return done.returncode, failed.read_text().splitlines()
    return done.returncode, ["", "", f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}"]


def judge(fault: Fault | None) -> Result:
    with tempfile.TemporaryDirectory(prefix="planted-fault-") as name:
        directory = Path(name)
        copy(directory)
        if fault is not None:
            plant(fault, directory)
        code, (test, kind, message) = run(directory, *([LAWS, CRASHES, ROWS] if fault is None else [fault.tests]))
    if fault is None:
        return Result("(none)", code == 0, message if code else "everything passes")
    if code == 0:
        return Result(fault.name, False, "NOT CAUGHT")
    return Result(
        fault.name, code == 1 and kind == "AssertionError", f"{test.replace('::runTest', '')}: {message or kind}"
    )


def main(words: list[str]) -> int:
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    wanted: list[Fault | None] = [*([] if words else [None]), *chosen]
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = []
        for result in pool.map(judge, wanted):
            results.append(result)
            print(f"{'  ' if result.caught else '! '}{result.name:<48} {result.where}", flush=True)
    missed = [result.name for result in results if not result.caught]
    print(f"{len(chosen)} faults, {len(missed)} not caught{': ' + ', '.join(missed) if missed else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

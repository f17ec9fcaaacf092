"""The reference has every argument, with the default that the code has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from airflow_state_watchers import S3PrefixWatermarkTrigger

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs/reference/s3_watcher.rst"


def test_every_argument_of_the_s3_watcher_is_in_its_reference_with_its_default() -> None:
    rows = re.findall(r"^   \* - ``(\w+)``\n     - (.*)$", TABLE.read_text(), re.MULTILINE)
    told = dict(rows)
    parameters = inspect.signature(S3PrefixWatermarkTrigger.__init__).parameters
    assert list(told) == [name for name in parameters if name not in ("self", "kwargs")]
    for name, text in told.items():
        default = parameters[name].default
        if default not in (inspect.Parameter.empty, 0) and name != "name":
            shown = f'"{default}"' if isinstance(default, str) else str(default)
            assert shown in text, f"{name}: {text!r} does not say {shown}"


def test_the_tests_that_the_documentation_names_are_there() -> None:
    text = (ROOT / "docs/concepts/faults.rst").read_text()
    named = re.findall(r"``([\w/]+\.py)::(\w+)``", text)
    assert len(named) > 25
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"
    planted = (ROOT / "tests/planted_faults.py").read_text()
    for fault in re.findall(r"planted: \*([^*]+)\*", text):
        assert f'"{fault}"' in planted, fault

"""The package as a whole: what importing it costs, and what it shows."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import airflow_state_watchers

ROOT = Path(airflow_state_watchers.__file__).parent
LAZY = sorted(set(airflow_state_watchers.__all__) - set(vars(airflow_state_watchers.exceptions)))


def modules_loaded_by(statement: str) -> set[str]:
    """Return the top-level names in ``sys.modules`` of a fresh interpreter that has run ``statement``."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


# What the interpreter itself starts with: the site module, and what editable installs hook into it.
SITE = modules_loaded_by("pass")


def submodules(package: str) -> list[str]:
    path = importlib.import_module(package).__path__
    return [package, *(found.name for found in pkgutil.walk_packages(path, f"{package}."))]


def test_the_root_loads_only_the_standard_library() -> None:
    loaded = modules_loaded_by("from airflow_state_watchers import get_provider_info as info; info.get_provider_info()")
    assert loaded - SITE == {"airflow_state_watchers"} | (loaded - SITE) & sys.stdlib_module_names


def test_the_core_loads_only_the_standard_library_and_no_loop_log_or_service() -> None:
    core = submodules("airflow_state_watchers.core")
    assert len(core) > 1
    loaded = modules_loaded_by("import " + ", ".join(core))
    assert loaded - SITE == {"airflow_state_watchers"} | (loaded - SITE) & sys.stdlib_module_names
    assert not (loaded - SITE) & {"asyncio", "logging", "socket", "subprocess", "threading"}


@pytest.mark.parametrize("module", submodules("airflow_state_watchers.core"))
def test_a_module_of_the_core_imports_only_the_core_and_the_standard_library(module: str) -> None:
    source = importlib.import_module(module).__file__
    assert source is not None
    for name in imported_names(Path(source)):
        ours = name.startswith("airflow_state_watchers.core")
        assert ours or name.partition(".")[0] in sys.stdlib_module_names, name


def imported_names(source: Path) -> list[str]:
    """Return the modules that a file imports, wherever in it; a relative import begins with a dot."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append("." * node.level + (node.module or ""))
    return names


@pytest.mark.parametrize("name", airflow_state_watchers.__all__)
def test_every_public_name_is_the_one_of_its_module(name: str) -> None:
    value = getattr(airflow_state_watchers, name)
    assert value.__module__.startswith("airflow_state_watchers.")
    assert value is getattr(sys.modules[value.__module__], name)
    assert name in dir(airflow_state_watchers)


def test_there_is_something_to_load_lazily() -> None:
    assert LAZY


@pytest.mark.parametrize("name", LAZY)
def test_type_checkers_find_a_lazy_name_where_it_is_loaded_from(name: str) -> None:
    seen = {
        alias.name: node.module
        for block in ast.parse((ROOT / "__init__.py").read_text()).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen[name] == getattr(airflow_state_watchers, name).__module__


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'airflow_state_watchers' has no attribute 'Inbx'"):
        airflow_state_watchers.Inbx  # type: ignore[attr-defined]  # noqa: B018


def test_all_is_sorted_and_has_no_doubles() -> None:
    assert list(airflow_state_watchers.__all__) == sorted(set(airflow_state_watchers.__all__))


def test_types_are_announced() -> None:
    assert (ROOT / "py.typed").is_file()

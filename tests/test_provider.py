"""What Airflow learns about this package."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points, requires, version
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
import yaml
from airflow.configuration import conf

import airflow_state_watchers
from airflow_state_watchers.get_provider_info import get_provider_info

DISTRIBUTION = "airflow-provider-state-watchers"
REPOSITORY = Path(__file__).parents[1]
OPTIONS = sorted(get_provider_info()["config"]["state_watchers"]["options"])


@pytest.fixture(scope="module")
def provider_yaml() -> Any:
    return yaml.safe_load((REPOSITORY / "provider.yaml").read_text())


@pytest.mark.parametrize("schema", ["provider.yaml.schema.json", "provider_info.schema.json"])
def test_provider_yaml_fits_the_schemas_of_the_installed_airflow(provider_yaml: Any, schema: str) -> None:
    path = Path(airflow.__path__[0]) / schema
    jsonschema.validate(provider_yaml, json.loads(path.read_text()))


def test_provider_info_equals_provider_yaml(provider_yaml: Any) -> None:
    assert get_provider_info() == provider_yaml


def test_the_entry_point_gives_the_provider_info() -> None:
    found = [
        entry
        for entry in entry_points(group="apache_airflow_provider")
        if entry.dist and entry.dist.name == DISTRIBUTION
    ]
    assert [entry.load() for entry in found] == [get_provider_info]


def test_airflow_loads_the_plugin_in_a_task_process(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from airflow.sdk import plugins_manager\n"
        "plugins_manager.get_hook_lineage_readers_plugins()\n"
        "assert {'airflow_state_watchers.tasks.objects', 'airflow_state_watchers.tasks.windows'} <= set(sys.modules)\n"
    )
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, stdin=subprocess.DEVNULL, check=True)


def test_one_version_everywhere() -> None:
    assert airflow_state_watchers.__version__ == version(DISTRIBUTION) == get_provider_info()["versions"][0]
    assert f"\n{version(DISTRIBUTION)} (" in (REPOSITORY / "CHANGELOG.rst").read_text()


def test_the_declared_modules_exist_and_have_their_integration() -> None:
    info = get_provider_info()
    integrations = {integration["integration-name"] for integration in info["integrations"]}
    for declared in info["triggers"]:
        assert declared["integration-name"] in integrations
        for module in declared["python-modules"]:
            importlib.import_module(module)


def test_the_base_install_needs_airflow_alone() -> None:
    always = [requirement for requirement in requires(DISTRIBUTION) or [] if "extra ==" not in requirement]
    assert always == ["apache-airflow>=3.3.2"]


def test_the_declared_options_are_those_that_the_package_reads() -> None:
    package = Path(airflow_state_watchers.__file__).parent
    read = {
        node.args[0].value
        for source in package.rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name | ast.Attribute)
        and ast.unparse(node.func).rpartition(".")[2] == "configured"
        and isinstance(node.args[0], ast.Constant)
    }
    assert read == set(OPTIONS)


@pytest.mark.parametrize("option", OPTIONS)
def test_airflow_knows_the_default_of_every_option(option: str) -> None:
    declared = get_provider_info()["config"]["state_watchers"]["options"][option]
    read = {"float": conf.getfloat, "integer": conf.getint}[declared["type"]]
    assert read("state_watchers", option) == float(declared["default"]) > 0


def test_an_option_is_set_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__STATE_WATCHERS__MIN_POLL_INTERVAL", "7.5")
    assert conf.getfloat("state_watchers", "min_poll_interval") == 7.5


def test_airflow_providers_list_shows_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "providers", "list", "--output", "json"],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = {provider["package_name"]: provider for provider in json.loads(done.stdout[done.stdout.index("[") :])}
    assert listed[DISTRIBUTION]["version"] == version(DISTRIBUTION)
    assert "inbox" in listed[DISTRIBUTION]["description"]

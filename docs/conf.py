"""Sphinx configuration."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import textwrap
from typing import Any

from airflow_state_watchers import __version__
from airflow_state_watchers.get_provider_info import get_provider_info

# Airflow writes a configuration into its home while autodoc imports it; not into the home of whoever builds this.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="state-watchers-docs-")
atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

project = "airflow-provider-state-watchers"
author = "the airflow-provider-state-watchers contributors"
project_copyright = f"2026, {author}"
version = release = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.doctest"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"State Watchers {release}"
html_copy_source = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
nitpicky = False


def _options(_app: Any, name: str, source: list[str]) -> None:
    """Write the configuration section out, from what Airflow is told of it, so that there is one list of options."""
    if name != "reference/configuration":
        return
    section = get_provider_info()["config"]["state_watchers"]
    text = [section["description"], ""]
    for option, about in section["options"].items():
        text += [f".. confval:: {option}", f"   :type: {about['type']}", f"   :default: ``{about['default']}``", ""]
        text += [textwrap.indent(about["description"], "   "), f"   Since {about['version_added']}.", ""]
    source[0] = source[0].replace("(options)", "\n".join(text))


def setup(app: Any) -> None:
    app.connect("source-read", _options)

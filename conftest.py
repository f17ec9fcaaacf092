"""What every test run needs before its first import: an Airflow home of its own, and a profile for Hypothesis."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from hypothesis import settings

# Airflow creates its home and reads its configuration while it is imported, so this cannot wait for a fixture. The
# tests must neither depend on the configuration of whoever runs them nor write into it.
for _name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
    del os.environ[_name]
_home = tempfile.mkdtemp(prefix="state-watchers-tests-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = _home
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__USAGE_DATA_COLLECTION__ENABLED"] = "False"

# The same examples on every run in CI, so that a red run is red again; new ones on every run elsewhere. Without a
# deadline: a busy machine is no failure.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

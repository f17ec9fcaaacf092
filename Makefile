# Two commands need nothing but make and a Python 3.10 to 3.13:  make test  and  make demo.
# The first one makes .venv and installs what requirements/dev.txt pins; later ones find it there.
#
#   make test PYTHON=/path/to/python3.12                 with another Python
#   make test VENV=.venv-3.10 PYTHON=/path/to/python3.10  beside the usual environment

VENV ?= .venv
PYTHON ?=
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
LOCK := requirements/dev.txt
UV_VERSION := 0.13.9
UV := $(VENV)/bin/uv
SERVERS := .venv-ministack/.installed .venv-localstack/.installed
MARIADB := .venv-mariadb/.installed
BENCH := .venv-bench
ARGS ?=

# Another tool's environment must not be taken for ours, nor a Python be downloaded.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# An environment of another Python than the one asked for, or whose Python is gone, is made anew.
ifneq ($(shell PYTHON='$(PYTHON)' sh dev/make_venv.sh --check $(VENV) && echo right),right)
.PHONY: $(INSTALLED)
endif

.DEFAULT_GOAL := help
.PHONY: help install test demo lint format planted-faults system-tests sql-histories soak s3-servers mariadb sql-servers docs wheel lock lock-servers clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-zA-Z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  make bench-NAME     Run benchmarks/NAME.py; it prints a table and writes benchmarks/results/NAME.json"

install: $(INSTALLED) ## Make .venv and install everything into it; the other commands do this by themselves

$(INSTALLED): pyproject.toml $(LOCK) Makefile
	@PYTHON='$(PYTHON)' sh dev/make_venv.sh $(VENV)
	@$(UV) --version 2>/dev/null | grep -q '^uv $(UV_VERSION)' \
		|| $(PY) -m pip install --quiet uv==$(UV_VERSION)
	@$(UV) pip sync --quiet --python $(PY) $(LOCK)
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

test: $(INSTALLED) ## Run the tests that need neither root nor another Python
	$(PY) -m pytest tests $(ARGS)
	@echo
	@echo "Left out: the system tests on a real Airflow (make system-tests), the checks of style, types and layers"
	@echo "(make lint), the other Pythons (make test VENV=.venv-3.10 PYTHON=python3.10). All of it: .ci/run"

demo: $(INSTALLED) ## Start a real Airflow and an S3 server on this machine, and watch objects become DAG runs
	$(PY) -m airflow_state_watchers.demo $(ARGS)

lint: $(INSTALLED) ## Check style, types and the direction of imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

format: $(INSTALLED) ## Mend what ruff can mend
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

planted-faults: $(INSTALLED) ## Plant faults in a copy of the package and see that the tests catch each
	$(PY) tests/planted_faults.py $(ARGS)

system-tests: $(INSTALLED) $(MARIADB) ## Run the tests on a real Airflow with real servers; takes minutes
	$(PY) -m pytest system_tests --ignore=system_tests/s3_servers --ignore=system_tests/sql_servers \
		--ignore=system_tests/sql_histories --timeout=1500 -m "not soak" $(ARGS)
	$(if $(ARGS),,HISTORY_SECONDS=12 $(PY) -m pytest system_tests/sql_histories -n 3 --timeout=1500)

sql-histories: $(INSTALLED) $(MARIADB) ## Run the random histories of SQL databases at their full length, a minute of writing each
	$(PY) -m pytest system_tests/sql_histories --timeout=1500 $(ARGS)

soak: $(INSTALLED) $(SERVERS) $(MARIADB) ## Run the system tests that wait for minutes: edits, pauses, broken files, frozen triggerers, long uploads
	OTHER_HISTORIES=3000 $(PY) -m pytest tests/core/test_crashes.py --timeout=1500
	$(PY) -m pytest system_tests --timeout=1500 -m soak $(ARGS)

s3-servers: $(INSTALLED) $(SERVERS) ## Run the tests on three S3 servers, two of which get an environment each; needs Python 3.13
	$(PY) -m pytest system_tests/s3_servers -m "not soak" $(ARGS)

sql-servers: $(INSTALLED) $(MARIADB) ## Run the tests on a real MariaDB, which is unpacked from the system's packages once
	$(PY) -m pytest system_tests/sql_servers $(ARGS)

mariadb: $(MARIADB) ## Unpack MariaDB's server into .venv-mariadb; needs apt, and neither root nor an installation

$(MARIADB): dev/get_mariadb.sh
	@sh dev/get_mariadb.sh $(@D)
	@touch $@

# The servers pin other versions than Airflow does. LocalStack takes no Python but 3.13, and the other one does not mind.
.venv-%/.installed: requirements/%.txt Makefile | $(INSTALLED)
	@PYTHON="$$(sh dev/find_python.sh 3.13)" && export PYTHON && sh dev/make_venv.sh $(@D)
	@$(UV) pip sync --quiet --python $(@D)/bin/python $<
	@touch $@

docs: $(INSTALLED) ## Build the documentation into docs/_build/html
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html

wheel: $(INSTALLED) ## Build the wheel and try it in an empty environment
	$(PY) dev/check_wheel.py

bench-%: $(INSTALLED)
	$(PY) -m benchmarks.$* $(ARGS)

# It compares with packages that would not fit into one environment with Airflow.
bench-s3_listing: $(BENCH)/.installed

$(BENCH)/.installed: requirements/bench.txt | $(INSTALLED)
	@$(UV) venv --quiet --clear --python $(PY) $(BENCH)
	@$(UV) pip sync --quiet --python $(BENCH)/bin/python $<
	@touch $@

# The mysqlclient that the MySQL provider asks for would have to be compiled. Tests use the two drivers that need not.
lock: $(INSTALLED) ## Renew what requirements/ pins: the newest versions that fit pyproject.toml
	$(UV) pip compile pyproject.toml --universal --python-version 3.10 --upgrade --quiet \
		--extra amazon --extra demo --extra postgres --extra sql --group test --group lint --group docs --group build \
		--no-emit-package mysqlclient --custom-compile-command 'make lock' --output-file $(LOCK)
	$(UV) pip compile --group bench --universal --python-version 3.10 --upgrade --quiet \
		--custom-compile-command 'make lock' --output-file requirements/bench.txt

lock-servers: $(INSTALLED) ## Renew what the S3 servers of make s3-servers are installed from, requirements/*.in
	$(UV) pip compile requirements/ministack.in --python-version 3.13 --upgrade --quiet \
		--custom-compile-command 'make lock-servers' --output-file requirements/ministack.txt
	$(UV) pip compile requirements/localstack.in --python-version 3.13 --upgrade --quiet \
		--exclude-newer 2026-03-01 --custom-compile-command 'make lock-servers' --output-file requirements/localstack.txt

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) $(dir $(SERVERS) $(MARIADB)) $(BENCH) build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

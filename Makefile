# gpubus: `make` prints this list.
SHELL := /bin/bash
VENV  ?= .venv
PY    := $(VENV)/bin/python
PYTEST := $(PY) -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo cluster lint check test bench fmt generate clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# --- installing -------------------------------------------------------------------------------------------------
define NEED_PYTHON
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo 'gpubus needs Python >= 3.11 as python3'; exit 1; }
endef
define NEED_GO
v=$$(go env GOVERSION 2>/dev/null | sed -E 's/^go1\.([0-9]+).*/\1/'); [ "$${v:-0}" -ge 26 ] || { echo 'make test builds a real Kubernetes control plane and Jaeger: it needs Go >= 1.26 on PATH (make check does not)'; exit 1; }
command -v $${CC:-cc} >/dev/null || { echo 'make test builds a stand-in for libnvidia-ml: it needs a C compiler (cc)'; exit 1; }
endef

$(VENV)/.run: pyproject.toml constraints.txt
	@$(NEED_PYTHON)
	@python3 -m venv $(VENV)
	@echo "installing gpubus into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[local]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing the test tools into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt $$($(PY) -c 'import tomllib; print(*[f"\"{d}\"".replace("\"","") for d in tomllib.load(open("pyproject.toml","rb"))["dependency-groups"]["dev"]])' | sed 's/>=[^ ]*//g')
	@touch $@

# The scheduler's inner loops, compiled once and cached beside the source; else the first start would do it.
$(VENV)/.warm: $(VENV)/.run $(wildcard scheduler/core/arrays/*.py)
	@echo "compiling the scheduler's inner loops"
	@$(PY) -m scheduler.core.arrays.warm
	@touch $@

# --- using ------------------------------------------------------------------------------------------------------
demo: $(VENV)/.warm ## run the whole line on this machine: NATS, simulated nodes, a mixed workload, an audit
	@$(VENV)/bin/gpubus demo

cluster: $(VENV)/.dev $(VENV)/.warm ## two real nodes with containers and the chart on this machine, to try things on (root, Go)
	@$(NEED_GO)
	@tests/cluster/build.sh
	@$(PY) -m tests.bed.cluster

# --- checking ---------------------------------------------------------------------------------------------------
lint: $(VENV)/.dev ## lint, format, types, layering
	@$(VENV)/bin/ruff check --quiet . && $(VENV)/bin/ruff format --quiet --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo

check: lint $(VENV)/.warm ## lint and everything that needs no server: about a minute
	@$(PYTEST) -q -n 2 tests/unit tests/properties

test: $(VENV)/.dev $(VENV)/.warm ## everything, on real servers: up to 40 minutes the first time (Go builds), 15 after
	@$(NEED_GO)
	@$(MAKE) --no-print-directory lint
	@tests/cluster/build.sh
	@$(VENV)/bin/coverage erase
	@$(VENV)/bin/coverage run -m pytest -q -n 2 tests/unit tests/properties
	@$(VENV)/bin/coverage combine --quiet
	@$(VENV)/bin/coverage report
	@$(PYTEST) -q -n 4 --dist loadfile --ignore=tests/cluster/test_chaos.py --ignore=tests/cluster/bed tests/contract tests/cluster
	@$(PYTEST) -q -n 2 tests/cluster/test_chaos.py
	@$(PYTEST) -q tests/cluster/bed

bench: $(VENV)/.dev $(VENV)/.warm ## the measured tables of the README, each with the floor of the same run
	@$(PY) -m bench

fmt: $(VENV)/.dev ## format and fix
	@$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check --fix .

generate: $(VENV)/.dev ## write the schemas, the AsyncAPI document and the tables in the docs again
	@$(PY) -m contracts.schema
	@$(PY) -m tests.builders.scenarios

clean: ## remove what was built here
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*

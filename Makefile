# Two commands do all the set-up: `make demo` and `make test`. They need a Python from
# 3.11 to 3.13, pip and make; tests open pages in Chromium or Chrome. `make help` lists
# the others.

VENV := .venv
PY := $(VENV)/bin/python
# The interpreter that `.venv` is made with, once; afterwards that of `.venv` itself.
PYTHON ?= $(shell $(PY) -c "" 2>/dev/null && echo $(PY) || echo python3)
# What benchmark and tests compare with has an environment of its own, at versions of
# its own.
PEERS ?=
PEERS_VENV := .venv-peers
# Arguments of the demo, as in: make demo ARGS="--mechanisms softmax linear".
ARGS ?=
# Arguments of pytest, as in: make pytest TESTS="tests/ops -k linear".
TESTS ?=
WORKERS ?= 2
# Words in the names of faults, as in: make mutations FAULTS="causal padded".
FAULTS ?=

# Somebody who names an interpreter must not get the one of an earlier call.
ifneq ($(filter command environment,$(firstword $(origin PYTHON))),)
EXACT := --exact
endif

.DEFAULT_GOAL := help
.PHONY: help demo bench test lint format types pytest smoke docs peers contract mutations \
	survive notebooks lab constraints python environment-test environment-experiments \
	environment-docs environment-notebooks environment-peers clean

help: ## list the targets
	@echo "make TARGET [PYTHON=python3.12]"
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) \
		| awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

demo: environment-experiments ## compare the mechanisms on real text; ARGS="--steps 50 ..."
	$(PY) -m experiments.compare $(ARGS)

bench: environment-$(if $(PEERS),peers,experiments) ## measure speed and memory; ARGS="quick", PEERS=1 brings the others
	$(if $(PEERS),$(PEERS_VENV)/bin/python,$(PY)) -m benchmarks $(ARGS)

test: environment-test ## every check and every test: lint, types, pytest, smoke
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory pytest
	@$(MAKE) --no-print-directory smoke

lint: environment-test ## ruff: rules, import direction, format
	$(PY) -m ruff check
	$(PY) -m ruff format --check

format: environment-test ## let ruff rewrite what it can
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

types: environment-test ## type check of the package
	$(PY) -m basedpyright

pytest: environment-test ## the test suite alone; TESTS="tests/ops -k linear"
	$(PY) -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

smoke: environment-test ## the built wheel on every other Python from 3.11 to 3.13
	$(PY) tools/smoke.py

docs: environment-docs ## the documentation as a site: build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "Open build/site/index.html"

peers: environment-peers ## the tests that compare with other libraries, beside them
	$(PEERS_VENV)/bin/python -m pytest tests/peers

contract: environment-test ## run the laws, measure errors, write docs/contract.md
	$(PY) -m tests.contract

mutations: environment-test ## plant every fault of tests/mutations.py; FAULTS="causal"
	$(PY) -m tests.mutations $(FAULTS)

survive: environment-test ## kill a training 20 times, lose a host: nothing is lost
	$(PY) -m tests.survive
	$(PY) -m tests.hosts

notebooks: python ## write notebooks/*.ipynb anew from their scripts, without outputs
	$(PYTHON) tools/notebooks.py

lab: environment-notebooks ## open the notebooks in JupyterLab
	$(PY) -m jupyterlab notebooks

constraints: environment-test ## pin the versions again, on every Python
	$(PY) tools/pin.py

clean: ## remove environments, caches and build products; keeps runs/
	rm -rf .venv .venv-* .jax_cache .pytest_cache .ruff_cache .hypothesis build dist

python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		2>/dev/null || { \
		echo "attn_jax needs Python 3.11, 3.12 or 3.13, but PYTHON=$(PYTHON) is:" \
			"$$($(PYTHON) --version 2>&1 | head -n 1)." >&2; \
		echo "Name another one: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12" >&2; \
		exit 1; }

environment-test environment-docs environment-experiments environment-notebooks: environment-%: python
	@$(PYTHON) tools/environment.py $(EXACT) $(VENV) $*

environment-peers: python
	@$(PYTHON) tools/environment.py --unpinned $(PEERS_VENV) peers

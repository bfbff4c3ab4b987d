# Everything a contributor runs. `make test` on a fresh machine makes its own environment first.

VENV := .venv
BIN := $(VENV)/bin
CODE := src overlay peer dispatching mqtt_front logger collector experiments
# One more than the cores of the smallest machine that is meant to run this, as many tests wait for real processes.
WORKERS ?= 3
PEERS ?= 12
# The first of these that is new enough and can make environments is taken. To choose: make PYTHON=python3.13
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11

.DEFAULT_GOAL := help
.PHONY: help venv test lint types pytest format index ring experiments clean

help:
	@echo "make test         everything that must hold: ruff, mypy, pytest"
	@echo "make format       put the code into its form"
	@echo "make index        write docs/modules.md from the docstrings"
	@echo "make ring         a ring of $(PEERS) peers on this machine (PEERS=50 for more)"
	@echo "make experiments  repeat the experiments of the papers, small: a quarter of an hour at most"
	@echo "make clean        remove the environment and all that was made"

test: lint types pytest

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy

pytest: venv
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

index: venv
	$(BIN)/python tests/module_index.py

ring: venv
	$(BIN)/ringmq ring --peers $(PEERS)

experiments: venv
	$(BIN)/ringmq experiment all --quick

# The stamp says for which place and which pyproject.toml the environment was made: it cannot be moved.
venv:
	@stamp="$(CURDIR) $$(cksum < pyproject.toml)"; \
	if [ -x $(BIN)/ringmq ] && [ "$$(cat $(VENV)/made-for 2>/dev/null)" = "$$stamp" ]; then exit 0; fi; \
	set -e; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1 || ! head -1 $(BIN)/pip | grep -qF "$(CURDIR)/"; then \
		python=$$($(MAKE) --no-print-directory -s python); \
		echo "making $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV); \
	fi; \
	echo "installing into $(VENV)"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	echo "$$stamp" > $(VENV)/made-for

# Prints the first Python that is new enough and can make environments.
.PHONY: python
python:
	@new=; \
	for python in $(PYTHON); do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
		new="$$python"; \
		"$$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || continue; \
		echo "$$python"; \
		exit 0; \
	done; \
	if [ -n "$$new" ]; then \
		echo "ringmq: $$new has no venv or ensurepip: on Debian or Ubuntu run: apt-get install python3-venv" >&2; \
	else \
		echo "ringmq: no Python 3.11 or newer found as $(PYTHON): install one, or name it: make PYTHON=..." >&2; \
	fi; \
	exit 1

clean:
	rm -rf $(VENV) build dist src/ringmq.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(CODE) tests -name __pycache__ -type d -prune -exec rm -rf {} +

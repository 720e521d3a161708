# make demo: generate a kernel and run it.   make docs: the documentation as a site, in site/.
# make test: the test suite, in minutes.   make test-all: also of more chips, sizes and seeds.
# make campaign: the suite with every combination of sizes, and longer draws.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
GEMM := --spec hw_specs/vta.yaml --workload workloads/gemm.yaml --set M=1 --set N=256 --set K=256
DEMO := build/demo
PYTEST_ARGS ?=

.PHONY: demo test test-all campaign lint docs bench clean

# The packages are only reinstalled when pyproject.toml changes; `make -B` forces it.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "error: Python 3.10 or newer is needed; say which with make PYTHON=python3.x" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(RUN)

$(DOCS): pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[docs]'
	@touch $@ $(RUN)

demo: $(RUN)
	@echo "== Compile the tutorial's GEMM, 1 x 256 x 256, to $(DEMO)"
	@$(BIN)/python -m hwgen generate $(GEMM) -o $(DEMO)
	@echo
	@echo "== Run it in the simulator and, where there is a C compiler, the emitted C on the C model"
	@$(BIN)/python -m hwgen simulate $(GEMM)

# With bytecode, whatever the environment says: else every process compiles all files again.
# Tests marked as thorough show, of more chips, sizes or seeds, what others show already.
test: LEFT_OUT := -m "not thorough"
test test-all: $(DEV)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist loadfile --max-worker-restart 0 $(LEFT_OUT) $(PYTEST_ARGS)

campaign: $(DEV)
	HWGEN_CAMPAIGN=1 HWGEN_EXAMPLES=$(or $(EXAMPLES),1000) $(BIN)/python -m pytest -o timeout=0 -n auto --dist loadfile $(PYTEST_ARGS)

lint: $(DEV)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/python -m pyright

# Warnings are errors: `strict` in mkdocs.yml.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "site/index.html"

bench: $(RUN)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf build site .pytest_cache .ruff_cache .hypothesis

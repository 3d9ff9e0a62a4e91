# `make demo` and the tests each set up everything they need in .venv, from Python and a package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= 2
COMMA := ,
# Every target starts many processes: what one compiles of Python's modules, all others find.
unexport PYTHONDONTWRITEBYTECODE
# Clients are trained by compiled kernels: where there is no C compiler, a package brings one.
COMPILER := $(shell command -v cc || command -v gcc || command -v clang)
# Python compiles a module when it is first imported; all of them at once take as long as all else of installing.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

TESTS := $(BIN)/python -m pytest --numprocesses $(CORES) --dist worksteal --durations 10

# Snakemake takes its lock away however it ends, unless it is killed: one that is left is another's, or a dead one's.
LOCKED := test -z "$$(ls -A .snakemake/locks 2>/dev/null)" || echo "This folder is locked by a snakemake that still \
works in it, or by one that was killed. If none is at work: make unlock, then the same command again; what was done \
stays done."

.PHONY: help demo site unlock test quick-tests test-all test-slurm slurm-tests test-libraries programs check format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/.runs ## run the demonstration to its report, without a network
	@$(BIN)/fedrec run --workers --cores $(CORES) demo || { $(LOCKED); exit 1; }
	@echo; cat results/report/demo.txt; echo "All of it: $(CURDIR)/results/report/demo.html"

site: $(VENV)/.site ## write documentation and results as pages for a browser, into the folder site
	$(BIN)/python -m docs.site site

unlock: $(VENV)/.runs ## after a kill or a power cut, let snakemake work in this folder again
	$(BIN)/snakemake --unlock

test: $(VENV)/.tests ## run the linters, and beside them every test that reaches what no other does: about 11 minutes on 2 cores
	@$(MAKE) --no-print-directory --jobs 2 check quick-tests

quick-tests: $(VENV)/.tests
	$(TESTS) -m "not matrix and not slurm"

test-slurm: ## run the workflow through a Slurm of one node, where its daemons are installed; else say what is missing
	@$(PYTHON) -m tests.slurm.one_node || exit 0; $(MAKE) --no-print-directory slurm-tests

slurm-tests: $(VENV)/.slurm
	$(TESTS) -m "slurm and not matrix" tests/slurm

test-libraries: $(VENV)/.libraries ## hold centralised references to a public library, on real data where FEDREC_MIRROR names it
	$(TESTS) tests/libraries

test-all: $(VENV)/.tests check ## run the linters and all tests, with the whole matrix of methods and settings
	$(TESTS)

programs: $(VENV)/.tests ## hold every engine to the plain loop on unusual and on random losses and rounds
	$(BIN)/python -m tests.programs --unexpected
	$(BIN)/python -m tests.programs.random_programs --count 1000

check: $(VENV)/.tests ## run the linters alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.tests ## bring the sources into their format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

clean: ## remove the environment and caches; results stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || \
		{ echo "There is no $(PYTHON) here. fedrec needs Python 3.11.4 or later; name one with: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' || \
		{ echo "fedrec needs Python 3.11.4 or later; name one with: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# The one that Python brings may be years old, and takes twice as long to install all else.
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.runs: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) --editable $(if $(COMPILER),.,'.[fused]')
	touch $@

$(VENV)/.site: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[docs$(if $(COMPILER),,$(COMMA)fused)]'
	touch $(VENV)/.runs $@

# One call for all: what tests need holds what runs need, and what those of Slurm need holds both.
$(VENV)/.tests: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev$(if $(COMPILER),,$(COMMA)fused)]'
	touch $(VENV)/.runs $@

$(VENV)/.slurm: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev,slurm$(if $(COMPILER),,$(COMMA)fused)]'
	touch $(VENV)/.runs $(VENV)/.tests $@

$(VENV)/.libraries: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev,libraries$(if $(COMPILER),,$(COMMA)fused)]'
	touch $(VENV)/.runs $(VENV)/.tests $@

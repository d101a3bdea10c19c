# Everything a fresh clone needs, on a machine with Python 3.11+, a C++ compiler, make and git.
# `make help` lists the targets. Packages go into .venv; stamps in it say what is up to date.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check -qq
STAMPS := $(VENV)/.stamps
BENCH  ?=

SOURCES := pyproject.toml CMakeLists.txt $(shell find src native -type f \
             -not -name '*.pyc' -not -name '.*' 2>/dev/null)
RECORDINGS = $(sort $(wildcard examples/*.wav examples/*.flac examples/*.mp3 examples/*.ogg))

# Run make's recipes in a shell that stops at the first failure, and leave no half-made stamp.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | \
	  while IFS='|' read -r target text; do printf '%-18s%s\n' "$$target" "$$text"; done

.PHONY: demo
demo: $(STAMPS)/package ## set up and transcribe the recordings in examples/ with the bundled model
	@test -n "$(RECORDINGS)" || { echo "make demo: no recording in examples/" >&2; exit 1; }
	@echo "$$ stapes transcribe $(RECORDINGS)"
	@$(PY) -m stapes transcribe $(RECORDINGS)

.PHONY: test
test: $(STAMPS)/package $(STAMPS)/test ## set up what the tests need and run them
	@$(PY) -m pytest $(ARGS)

# Recordings of a human voice, on which tests measure the bundled model, and a browser for the
# server's page; what needs them is skipped without.
DEBIAN := asterisk-core-sounds-en-g722 asterisk-core-sounds-en-wav chromium chromium-driver

.PHONY: test-deps
test-deps: ## install the Debian packages that the tests use, as root (tests skip what is missing)
	@if dpkg -s $(DEBIAN) >/dev/null 2>&1; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(DEBIAN) >/dev/null; \
	else echo "make test-deps: as root on Debian: apt-get install $(DEBIAN)" >&2; fi

.PHONY: lint
lint: $(STAMPS)/package $(STAMPS)/lint ## check style, formatting and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

.PHONY: format
format: $(STAMPS)/lint ## rewrite the Python files in the project's format
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

.PHONY: docs
docs: $(STAMPS)/package ## write docs/cli.md and docs/performance.md anew
	@$(PY) docs/generate_cli.py
	@$(PY) docs/generate_performance.py

.PHONY: bench
bench: $(STAMPS)/package $(STAMPS)/bench ## measure docs/performance.md anew (BENCH="kernels asr": these steps)
	@$(PY) tools/run_benchmarks.py $(BENCH)

.PHONY: clean
clean: ## remove .venv, build/ and caches
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests training -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The virtual environment with the build tools. They are installed here, not in pip's throw-away
# build environment, so that CMake's cache stays valid and a change compiles only what it must.
$(STAMPS)/venv: Makefile pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "stapes needs Python 3.11 or newer as $(PYTHON); name another: make PYTHON=..." >&2; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || \
	  { echo "stapes needs a C++ compiler, such as Debian's package g++" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || \
	  { echo "cannot create $(VENV): is Python's venv module there (Debian: python3-venv)?" >&2; exit 1; }
	@echo "Setting up $(VENV) ..."
	@mkdir -p $(STAMPS)
	@$(PY) tools/requirements.py build > $(STAMPS)/build.txt
	@$(PIP) install -r $(STAMPS)/build.txt
	@command -v cmake >/dev/null || $(PIP) install 'cmake>=3.26'
	@command -v ninja >/dev/null || $(PIP) install ninja
	@touch $@

$(STAMPS)/package: $(STAMPS)/venv $(SOURCES)
	@echo "Building and installing stapes ..."
	@$(PIP) install --no-build-isolation .
	@touch $@

$(STAMPS)/test: $(STAMPS)/venv pyproject.toml
	@echo "Installing what the tests need ..."
	@$(PY) tools/requirements.py test server parity ray voice > $(STAMPS)/test.txt
	@$(PIP) install -r $(STAMPS)/test.txt
	@touch $@

$(STAMPS)/bench: $(STAMPS)/venv pyproject.toml
	@echo "Installing what the benchmarks compare with ..."
	@$(PY) tools/requirements.py bench > $(STAMPS)/bench.txt
	@$(PIP) install -r $(STAMPS)/bench.txt
	@touch $@

$(STAMPS)/lint: $(STAMPS)/venv pyproject.toml
	@echo "Installing the linters ..."
	@$(PY) tools/requirements.py lint server > $(STAMPS)/lint.txt
	@$(PIP) install -r $(STAMPS)/lint.txt
	@touch $@

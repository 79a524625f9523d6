# Everything that a developer does here; `make` alone lists it. Needs python3 (3.10 or newer, with venv) and make.

PYTHON ?= python3
PYTEST_ARGS ?=
# Integration tests wait more than they compute.
WORKERS ?= $(shell expr $$(nproc) + 3)
BENCH_ARGS ?=
NAMES ?=
MINUTES ?= 60

# The workers share the tests with their rewritten asserts, and what tests start shares profd's modules; each would
# compile them anew where bytecode is not written.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help try demo test quick mutants recordings check docs bench truth gallery soak scale pictures format install clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

try: .venv/installed ## profile a small training loop without torch, in a minute: dashboard, summary, report
	$(BIN)/profd demo digits

demo: .venv/demo-installed ## profile the bundled training script: dashboard, summary, report
	$(BIN)/profd demo

test: .venv/dev-installed ## run all the tests, WORKERS at a time; PYTEST_ARGS selects some
	$(BIN)/pytest -n $(WORKERS) --durations 20 $(PYTEST_ARGS)

quick: .venv/dev-installed ## run the tests that need no torch and no other real tool, for the inner loop
	$(BIN)/pytest -n $(WORKERS) -q -m "not requires and not dashboard" tests/unit tests/replay $(PYTEST_ARGS)

recordings: .venv/dev-installed ## record the tests' programs anew and show what changed, about 20 minutes on a quiet machine; NAMES="a b" selects
	$(BIN)/python tests/recordings/make.py $(NAMES)

mutants: .venv/dev-installed ## break the product in some 600 places one at a time, and show which tests notice, about an hour; NAMES="a b" selects
	PYTHONPATH=tests $(BIN)/python -m mutants.run $(NAMES)

check: .venv/dev-installed ## check format, lint, types, layers and documentation
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/lint-imports
	$(BIN)/python packaging/density.py
	$(BIN)/mkdocs build --strict
	$(BIN)/pytest -q tests/unit/test_documentation.py

docs: .venv/dev-installed ## build the documentation as a site: build/docs/index.html
	$(BIN)/mkdocs build --strict

bench: .venv/dev-installed ## measure cost on a quiet machine, about 50 minutes; writes docs/measurements.md; BENCH_ARGS=--quick tries it
	$(BIN)/python benchmarks/run.py startup $(BENCH_ARGS)
	$(BIN)/python benchmarks/run.py own_cost $(BENCH_ARGS)
	$(BIN)/python benchmarks/run.py scaling $(BENCH_ARGS)
	$(BIN)/python benchmarks/run.py throughput --minutes 4 $(BENCH_ARGS)
	$(BIN)/python benchmarks/run.py many_threads --rounds 10 $(BENCH_ARGS)
	$(BIN)/python benchmarks/run.py dashboard --attach 60
	$(BIN)/python benchmarks/run.py gpu_cost

truth: .venv/dev-installed ## measure on a quiet machine how true shares, intervals, phases and steps are, about 100 minutes; writes docs/measurements.md
	$(BIN)/python benchmarks/run.py calibration --cases 200
	$(BIN)/python benchmarks/run.py simulations
	$(BIN)/python benchmarks/run.py phases
	$(BIN)/python benchmarks/run.py windowclock
	$(BIN)/python benchmarks/run.py nodes
	$(BIN)/python benchmarks/run.py ranks
	$(BIN)/python benchmarks/run.py simulatedsteps
	$(BIN)/python benchmarks/run.py stepcounts
	$(BIN)/python benchmarks/run.py live_findings
	$(BIN)/python benchmarks/run.py neededrate
	$(BIN)/python benchmarks/run.py gpu_idle
	$(BIN)/python benchmarks/run.py oracle --profd-only --runs 16 --jobs 4 --title "Truth of shares, many runs" flat generators threads coroutines
	$(BIN)/python benchmarks/run.py oracle --runs 2 --jobs 2 --title "Truth: slow phases, deep stacks" slow recursion modules
	$(BIN)/python benchmarks/run.py oracle --runs 8 --jobs 1 --seconds 30 --busy $$(($$(nproc) - 1)) --title "Truth of shares on full cores" waiting

gallery: .venv/dev-installed ## measure on a quiet machine whether findings are right, about 2.5 hours; writes docs/measurements.md; BENCH_ARGS="--runs 1" is shorter
	$(BIN)/python benchmarks/run.py gallery $(BENCH_ARGS)
	$(BIN)/python benchmarks/run.py classic
	$(BIN)/python benchmarks/run.py diagnosis

soak: .venv/dev-installed ## profile a training for an hour and see whether profd stays as it is; MINUTES=N for another time
	$(BIN)/python benchmarks/run.py soak --minutes $(MINUTES)

scale: .venv/dev-installed ## measure on a quiet machine what an hour of metrics costs, and fleets of 10^8 rows, about 90 minutes
	$(BIN)/python benchmarks/run.py metrics --minutes 60
	$(BIN)/python benchmarks/run.py fleet

trust: .venv/dev-installed ## kill and stop profd, let each of its writes fail, plant hangs, give its readers hostile bytes, about 2.5 hours, as root; writes docs/measurements.md
	$(BIN)/python benchmarks/run.py kills
	$(BIN)/python benchmarks/run.py survival
	$(BIN)/python benchmarks/run.py faults
	$(BIN)/python benchmarks/run.py hangs
	$(BIN)/python benchmarks/run.py hangkinds
	$(BIN)/python benchmarks/run.py collectives
	$(BIN)/python benchmarks/run.py windows
	$(BIN)/python benchmarks/run.py traces
	$(BIN)/python benchmarks/run.py fuzz
	$(BIN)/python benchmarks/run.py unread 20
	$(BIN)/python benchmarks/run.py neighbors
	$(BIN)/python benchmarks/run.py native

pictures: .venv/dev-installed ## take the pictures of README and docs, of a made-up run; needs chromium
	$(BIN)/python docs/pictures/take.py

format: .venv/dev-installed ## format the code and mend what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

install: .venv/dev-installed ## make .venv with profd (editable), torch and the tools
	@echo "installed in .venv"

clean: ## remove .venv and the caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/profd.egg-info

# $(call room,GB) ends with one line if the disk lacks room for what is installed first of all: here, and where pip unpacks.
define room
	@ls -d .venv/lib/python3*/site-packages/torch >/dev/null 2>&1 || for need in "$(1) ." "3 $${TMPDIR:-/tmp}"; do \
		free=$$(df -Pk "$${need#* }" | awk 'NR == 2 { print int($$4 / 1048576) }'); \
		[ "$$free" -ge "$${need%% *}" ] || { \
			echo "$${need%% *} GB have to be free in $${need#* }, and $$free GB are: make room there" >&2; \
			exit 1; }; done
endef

# A stamp is newer than pyproject.toml once that is installed, so a second call does nothing.
.venv/installed: pyproject.toml | $(BIN)/python
	$(INSTALL) -q -e .
	@touch $@

.venv/demo-installed: pyproject.toml | $(BIN)/python
	$(call room,6)
	@echo "installing profd and torch into .venv: a few minutes and 5.5 GB the first time" >&2
	$(INSTALL) -e '.[demo]'
	@touch $@ .venv/installed

.venv/dev-installed: pyproject.toml | $(BIN)/python
	$(call room,7)
	@echo "installing profd, torch and the tools into .venv: a few minutes and 6.5 GB the first time" >&2
	$(INSTALL) -e '.[demo,dev]'
	@touch $@ .venv/demo-installed .venv/installed

# Asked for ahead: where ensurepip is missing, venv fails with a .venv left behind that looks whole.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed; name another with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) is older than 3.10; name a newer one with make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv

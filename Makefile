# One word = one job; `make check` is what CI runs. Each target sets up what it needs.

# Tests start thousands of processes, which spend a third to a half of their start on compiling
# where no bytecode is kept.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_STAMP := .venv/.installed-for-the-demo

# Pure packages are measured by their own tests: the rest of the suite must not hide a gap in them.
PURE_TESTS := $(wildcard tests/contract tests/core tests/numerics tests/schedules tests/collectives \
	tests/requests tests/sim tests/switchcfg)
# Attacks that leave other tests alone: on files and stores, failing calls, ranks that leave.
QUIET_ATTACKS := $(addprefix tests/attack/, test_store.py test_held_folders.py \
	test_failing_calls.py test_failing_calls_of_control.py test_completed_is_delivered.py)
# Not side by side with others: networks that are emulated, whose queues are judged; attacks that
# take every port and descriptor that there is; pages that are executed from top to bottom. Everything
# else is processes that mostly wait for each other.
SERIAL_TESTS := $(filter-out $(QUIET_ATTACKS),$(wildcard tests/attack/test_*.py)) tests/lab \
	tests/path_mtu tests/tooling/test_readme.py tests/tooling/test_quickstart.py
TRAFFIC_TESTS := tests/switches/test_traffic.py tests/switches/test_fabric.py
PURE_COVERAGE := --cov=dlcpd.contract --cov=dlcpd.core --cov=dlcpd.numerics \
	--cov=dlcpd.schedules --cov=dlcpd.collectives --cov=dlcpd.requests --cov=switchcfg \
	--cov-branch --cov-report=term --cov-fail-under=95

.PHONY: venv test test-all cov e2e-switch e2e-deploy screenshots attack faults drill fuzz soak conformance demo docs configuration-reference lint format types contracts check system-deps clean

PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) -e '.[client,demo,dev,docs,encryption,eos,gnmi,metrics,netconf,nxos,recipes,ssh,yang]'
	touch $(DEMO_STAMP) $@

# What the demo needs and no more: neither the tools of development nor those of switches.
$(DEMO_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) -e '.[demo]'
	touch $@

# Everything that needs no processes, namespaces, root, browser or switches, and the main paths.
test: $(STAMP)
	$(BIN)/pytest -q -n auto --dist worksteal -m "main_path or not (processes or netns or heavy)"

# Every test. CI runs it.
test-all: cov e2e-switch e2e-deploy
	$(BIN)/pytest -n auto --dist worksteal --durations 25 $(addprefix --ignore=,$(PURE_TESTS) $(SERIAL_TESTS) tests/switches tests/deploy tests/page)
	$(BIN)/pytest $(SERIAL_TESTS)

cov: $(STAMP)
	$(BIN)/pytest -n auto -m "not heavy" $(PURE_COVERAGE) $(PURE_TESTS)
	$(BIN)/pytest -n auto -m heavy $(PURE_TESTS)

# Real switches, or what comes nearest: Linux behind sshd, SONiC's CONFIG_DB in Redis, gNMI.
# They mostly wait, so several at once; but what measures traffic has the machine for itself.
e2e-switch: $(STAMP)
	$(BIN)/pytest -v -n auto --dist worksteal tests/switches $(addprefix --ignore=,$(TRAFFIC_TESTS))
	$(BIN)/pytest -v $(TRAFFIC_TESTS)

# What hosts and clusters install: wheel, .deb and its service in a machine that systemd boots,
# image, manifests of Kubernetes, Slurm's scripts, Ansible's role; and the status page and reports in
# a browser. A row per check.
e2e-deploy: $(STAMP)
	$(BIN)/pytest -q tests/deploy tests/page

# The pictures of docs/page.md anew: look at them before they are committed.
screenshots: $(STAMP)
	$(BIN)/python -m tests.page.screenshots docs/images

# What an attacker or an unlucky neighbour may do; a row per check.
attack: $(STAMP)
	$(BIN)/pytest -q tests/attack

# Search on for inputs that reach new code, SECONDS for each target; what does joins the corpus.
SECONDS ?= 20
fuzz: $(STAMP)
	$(PIP_INSTALL) -e '.[fuzz]'
	nice -n 10 $(BIN)/python -m tests.fuzz all --seconds $(SECONDS)

# Every fault in every phase, and the table of docs/reliability.md anew.
faults: $(STAMP)
	$(BIN)/python -m dlcp_lab.faults.matrix --repeat 3 --write docs/reliability.md

# Two jobs on four hosts, random faults, promises checked all the time: SOAK_SECONDS, 20 minutes
# by default.
soak: $(STAMP)
	$(BIN)/python -m dlcp_lab.faults.soak

# What breaks, and what each tool says of it: the section of docs/operations.md anew.
drill: $(STAMP)
	$(BIN)/python -m dlcp_lab.faults.drill --write docs/operations.md

# Suites of PyTorch, accelerate and torchft over the c10d backend, compared with what is expected;
# pytest runs some of them as well. Those that PyTorch's wheel has not: PYTORCH=a checkout of it.
conformance: $(STAMP)
	$(BIN)/python -m tests.conformance.run $(if $(PYTORCH),--pytorch $(PYTORCH))

demo: $(DEMO_STAMP)
	$(BIN)/dlcpctl demo

# Manual pages and completions of shells, generated from the grammars, as packages install them.
SHARE := build/share
.PHONY: pages
pages: $(STAMP)
	deploy/pages $(BIN)/python $(SHARE)

# The site of docs/, in site/. A link or an anchor that leads nowhere is an error.
docs: $(STAMP)
	$(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going --doctree-dir build/doctrees \
		docs site

# docs/configuration.md anew, from the definitions that the programs use.
configuration-reference: $(STAMP)
	$(BIN)/python docs/reference.py

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

check: lint types contracts test-all

# System tools of the emulated fabrics and of the tests of switches; says what it could not install.
system-deps:
	@.ci/system-deps

clean:
	rm -rf .venv build dist site .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache *.egg-info bench/*.egg-info client/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

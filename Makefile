# Development tasks. `make check` runs what CI runs. Each target installs its requirements.

# Tests start thousands of processes. Without stored bytecode, compiling takes a third to a half of
# each start.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_STAMP := .venv/.installed-for-the-demo

# The coverage of pure packages counts their own tests only: other tests must not hide a gap.
PURE_TESTS := $(wildcard tests/contract tests/core tests/numerics tests/schedules tests/collectives \
	tests/planning tests/requests tests/switchcfg)
# Attacks that flood, fill or starve the machine, or measure what it does then.
DISTURBING_ATTACKS := $(addprefix tests/attack/, test_abort_storm.py test_corruption.py \
	test_idle_connections.py test_many_sums.py test_memory.py test_memory_of_clients.py \
	test_mutated_datagrams.py test_oom.py test_out_of_descriptors.py test_private_socket.py \
	test_slow_start.py test_starvation.py test_strangers.py)
# Not in parallel with other tests: emulated networks, whose queues are measured; attacks that
# disturb; pages that are executed from top to bottom. All other tests are processes that mostly
# wait for each other.
SERIAL_TESTS := $(DISTURBING_ATTACKS) tests/lab tests/path_mtu tests/tooling/test_readme.py \
	tests/tooling/test_quickstart.py
TRAFFIC_TESTS := tests/switches/test_traffic.py tests/switches/test_fabric.py
# Their tests that start no processes only compute: tests/kinds.py marks them `computing`.
COMPUTING_TESTS := tests/language tests/simulation tests/spmd
PURE_COVERAGE := --cov=dlcpd.contract --cov=dlcpd.core --cov=dlcpd.numerics \
	--cov=dlcpd.schedules --cov=dlcpd.collectives --cov=dlcpd.planning --cov=dlcpd.requests \
	--cov=switchcfg --cov-branch --cov-report=term --cov-fail-under=95

.PHONY: venv compiled test test-all processes serial computing cov switches-emulated e2e-switch e2e-deploy screenshots attack faults drill fuzz soak conformance demo docs configuration-reference lint format types contracts check system-deps clean

PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

venv: $(STAMP)

$(STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) -e '.[client,demo,dev,docs,encryption,eos,gnmi,metrics,netconf,nxos,recipes,ssh,web,yang]'
	$(PIP_INSTALL) torchft-nightly || echo "without torchft: its test is skipped"
	touch $(DEMO_STAMP) $@

# The requirements of the demo only, without tools for development and switches.
$(DEMO_STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) -e '.[demo]'
	touch $@

# Compiles the transfer layer again, after a change of its source: until then it is interpreted.
compiled: $(STAMP)
	$(PIP_INSTALL) --no-deps -e .

# Everything that needs no processes, namespaces, root, browser or switches, and the main paths.
test: $(STAMP)
	$(BIN)/pytest -q -n auto --dist worksteal -m "main_path or not (processes or netns or heavy)"

PYTEST := $(BIN)/pytest
BESIDE := --no-print-directory --output-sync=target PYTEST=.ci/beside --jobs

# Every test. CI runs it. Those that mostly wait run beside each other; those that only compute get
# the CPU time that the serial ones leave. `.ci/alone` repeats a few tests that failed beside
# others.
test-all: $(STAMP)
	rm -rf .pytest_cache/beside
	$(MAKE) $(BESIDE) 2 serial computing
	.ci/beside -v $(TRAFFIC_TESTS)
	$(MAKE) $(BESIDE) 3 switches-emulated e2e-deploy processes
	.ci/alone

# All tests of no other part. Their processes wait for most of the time: two workers for each CPU.
WAITING_WORKERS = $(shell expr 2 \* $$(nproc))
processes: $(STAMP)
	$(PYTEST) -n $(WAITING_WORKERS) --dist worksteal --durations 25 -m "not computing" $(addprefix --ignore=,$(PURE_TESTS) $(SERIAL_TESTS) tests/switches tests/deploy tests/page)

serial: $(STAMP)
	$(PYTEST) $(SERIAL_TESTS)

# None of these tests measures the wall's time, so they may wait for a CPU, for minutes.
computing: export PYTEST_ADDOPTS = --timeout=900
computing: $(STAMP)
	.ci/idle-priority $(MAKE) --no-print-directory cov
	.ci/idle-priority $(BIN)/pytest -q -n auto -m "not heavy" tests/core tests/collectives
	.ci/idle-priority $(BIN)/pytest -n auto --dist worksteal --durations 10 -m computing $(COMPUTING_TESTS)

# Interpreted: coverage does not see compiled code. `make test` and the heavy ones run it compiled.
cov: $(STAMP)
	DLCPD_TRANSFER=interpreted $(BIN)/pytest -n auto -m "not heavy" $(PURE_COVERAGE) $(PURE_TESTS)
	$(BIN)/pytest -n auto -m heavy $(PURE_TESTS)

# Emulated switches: Linux behind sshd, SONiC's CONFIG_DB in Redis, gNMI. The tests mostly wait and
# run in parallel, and beside those of installations; those that measure traffic run alone.
e2e-switch: switches-emulated
	$(BIN)/pytest -v $(TRAFFIC_TESTS)

switches-emulated: $(STAMP)
	$(PYTEST) -v -n auto --dist worksteal tests/switches $(addprefix --ignore=,$(TRAFFIC_TESTS))

# Tests of all installations: wheel, .deb and its service in a machine that systemd boots, image,
# Kubernetes manifests, Slurm scripts, Ansible role; and the status page and reports in a browser.
e2e-deploy: $(STAMP)
	$(PYTEST) -q tests/deploy tests/page

# Makes the pictures of docs/page.md. Look at them before you commit them.
screenshots: $(STAMP)
	$(BIN)/python -m tests.page.screenshots docs/images

# Attacks, and accidental harm by other processes and hosts.
attack: $(STAMP)
	$(BIN)/pytest -q tests/attack

# Searches for inputs that reach new code, SECONDS per target, and adds them to the corpus.
SECONDS ?= 20
fuzz: $(STAMP)
	$(PIP_INSTALL) -e '.[fuzz]'
	nice -n 10 $(BIN)/python -m tests.fuzz all --seconds $(SECONDS)

# Injects every fault in every phase, and writes the table of docs/reliability.md.
faults: $(STAMP)
	$(BIN)/python -m dlcp_lab.faults.matrix --repeat 3 --write docs/reliability.md

# Two jobs on four hosts with random faults, promises checked all the time, for SOAK_SECONDS
# (default 20 minutes).
soak: $(STAMP)
	$(BIN)/python -m dlcp_lab.faults.soak

# Injects faults, and writes the section of docs/operations.md with the output of each tool.
drill: $(STAMP)
	$(BIN)/python -m dlcp_lab.faults.drill --write docs/operations.md

# Test suites of PyTorch, accelerate and torchft over the c10d backend, compared with the expected
# results; pytest runs some of them as well. PYTORCH=CHECKOUT adds those that the wheel lacks.
conformance: $(STAMP)
	$(BIN)/python -m tests.conformance.run $(if $(PYTORCH),--pytorch $(PYTORCH))

demo: $(DEMO_STAMP)
	$(BIN)/dlcpctl demo

# Manual pages and shell completions, generated from the commands, as packages install them.
SHARE := build/share
.PHONY: pages
pages: $(STAMP)
	deploy/pages $(BIN)/python $(SHARE)

# The site of docs/, in site/. A broken link or anchor is an error.
docs: $(STAMP)
	$(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going --doctree-dir build/doctrees \
		docs site

# Writes the pages, tables and the picture that come from definitions of the programs, stored
# measurements or the simulated core.
configuration-reference: $(STAMP)
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/performance.py
	$(BIN)/python docs/platforms.py
	$(BIN)/python docs/timeline.py
	$(BIN)/dlcpctl plan docs/planner.toml --svg docs/images/planner.svg

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

# Installs system tools of the emulated fabrics and tests; lists those that it could not install.
system-deps:
	@.ci/system-deps

clean:
	rm -rf .venv build dist site .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache *.egg-info bench/*.egg-info client/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

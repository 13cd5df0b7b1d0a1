# One word = one job; `make check` is what CI runs. Each target sets up what it needs.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# Pure packages are measured by their own tests: the rest of the suite must not hide a gap in them.
PURE_TESTS := $(wildcard tests/contract tests/core tests/numerics tests/schedules tests/collectives \
	tests/sim tests/switchcfg)
TRAFFIC_TESTS := tests/switches/test_traffic.py tests/switches/test_fabric.py
PURE_COVERAGE := --cov=dlcpd.contract --cov=dlcpd.core --cov=dlcpd.numerics \
	--cov=dlcpd.schedules --cov=dlcpd.collectives --cov=switchcfg \
	--cov-branch --cov-report=term --cov-fail-under=95

.PHONY: venv test cov e2e-switch conformance demo lint format types contracts check system-deps clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[client,demo,dev,eos,gnmi,netconf,ssh,yang]'
	touch $@

test: cov e2e-switch
	$(BIN)/pytest $(addprefix --ignore=,$(PURE_TESTS) tests/switches)

cov: $(STAMP)
	$(BIN)/pytest -n auto -m "not heavy" $(PURE_COVERAGE) $(PURE_TESTS)
	$(BIN)/pytest -n auto -m heavy $(PURE_TESTS)

# Real switches, or what comes nearest: Linux behind sshd, SONiC's CONFIG_DB in Redis, gNMI.
# They mostly wait, so several at once; but what measures traffic has the machine for itself.
e2e-switch: $(STAMP)
	$(BIN)/pytest -v -n auto --dist worksteal tests/switches $(addprefix --ignore=,$(TRAFFIC_TESTS))
	$(BIN)/pytest -v $(TRAFFIC_TESTS)

# PyTorch's own distributed suite over the c10d backend; pytest runs some of it as well.
conformance: $(STAMP)
	$(BIN)/python -m tests.conformance.run --ranks 2
	$(BIN)/python -m tests.conformance.run --ranks 3

demo: $(STAMP)
	$(BIN)/dlcpctl demo

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

check: lint types contracts test

# The emulated fabric of tests and benchmarks; without it those tests are skipped by name.
system-deps:
	@missing=; for tool in ip tc nft ethtool clang sshd redis-cli netconfd yanglint; do \
		command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	[ -e /usr/include/bpf/bpf_helpers.h ] || missing="$$missing libbpf-dev"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends \
			clang ethtool iproute2 libbpf-dev libyang2-tools netconfd nftables openssh-server redis-tools || echo "system-deps: apt-get failed"; fi
	@for tool in ip tc nft ethtool; do command -v $$tool >/dev/null || \
		echo "system-deps: no $$tool: tests marked 'netns' will be skipped"; done
	@command -v clang >/dev/null || \
		echo "system-deps: no clang: fabrics drop early by nft, tests of bpf will be skipped"
	@command -v sshd >/dev/null || \
		echo "system-deps: no sshd: tests of switchcfg over SSH will be skipped"
	@command -v redis-check-rdb >/dev/null || \
		echo "system-deps: no redis: tests of switchcfg with SONiC will be skipped"
	@command -v yanglint >/dev/null || \
		echo "system-deps: no yanglint: tests of SONiC's YANG models will be skipped"
	@[ "$$(id -u)" = 0 ] || echo "system-deps: not root: tests marked 'netns' will be skipped"

clean:
	rm -rf .venv build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache *.egg-info client/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

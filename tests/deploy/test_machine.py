"""The machine of these tests leaves nothing behind, whatever ends them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deploy.conftest import ROOT
from tests.deploy.machine import PATIENCE, Machine, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=f"machine: {unavailable()}")

TESTS = """
from tests.deploy.machine import Machine
print(Machine({}).booted().first, flush=True)
input()
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not runs(pid)


def test_it_ends_with_the_tests() -> None:
    machine = Machine({})
    try:
        first = machine.booted().first
        assert runs(first)
    finally:
        machine.off()
    assert gone(first)


def test_it_ends_with_tests_that_are_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TESTS],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as tests:
        assert tests.stdout
        first = int(tests.stdout.readline())
        assert runs(first)
        tests.kill()
    assert gone(first)

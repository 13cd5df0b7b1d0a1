"""The compiled data path under the address and undefined-behaviour sanitizers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlcpd.io.datapath.choices import SETTING
from tests.datapath.sanitized import build, environment

ROOT = Path(__file__).parents[2]
# What hostile, random and ordinary input does to it, and whole engines on top.
TESTS = ("tests/datapath", "tests/io/test_udp.py", "tests/io/test_engine.py")


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.skipif(SETTING in os.environ, reason="this run is about one library already")
def test_clean_under_sanitizers(tmp_path: Path) -> None:
    library = build(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=environment(library),
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "runtime error" not in done.stdout + done.stderr


def test_a_sanitizer_speaks_up(tmp_path: Path) -> None:
    """Else the other test would prove nothing."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    library = build(tmp_path)
    program = (
        "import numpy as np\n"
        "from dlcpd.io.datapath.compiled import compiled\n"
        "from dlcpd.io.datapath.receiving import CompiledRing\n"
        "from dlcpd.io.udp.loss import RandomLoss\n"
        "ring = CompiledRing(*compiled('auto'), gro=True, loss=RandomLoss(0.0, (1,)))\n"
        "ring._ring['messages'] = ring.strays.ctypes.data\n"
        "ring._ring['message_count'] = 1 << 20\n"
        "ring.digest(1 << 20)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(library),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr

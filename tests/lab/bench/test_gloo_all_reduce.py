"""The baseline runs where it is measured: over the emulated switch, with loss."""

import sys

import pytest

from dlcp_lab.emulation import Plan, fabric
from dlcp_lab.lab.ranks import run_ranks


@pytest.mark.netns
def test_gloo_crosses_a_lossy_switch() -> None:
    program = [sys.executable, "-m", "dlcp_lab.bench.gloo_all_reduce", "--sizes", "4096", "65536"]
    with fabric(Plan(loss=0.01)) as net:
        assert run_ranks(net, [*program, "--repeat", "2"], timeout=60) == 0
        assert net.statistics()["l0:h1"].sent_bytes > 2 * 65536

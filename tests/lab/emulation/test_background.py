"""Traffic of others: it flows, is counted, and ends."""

import subprocess
import time

import pytest

from dlcp_lab.emulation import FabricError, Plan, fabric
from dlcp_lab.emulation.traffic.background import Tcp, Udp, incast

pytestmark = pytest.mark.netns


def test_tcp_flows_fill_a_link_and_each_goodput_is_known() -> None:
    with fabric(Plan(host_rate="50mbit")) as net:
        with net.background(Tcp(0, 1, flows=2, congestion="reno", seconds=2.0)) as others:
            others.wait()
            whole = others.flows[0].goodput()[1:]  # without the start
        assert whole
        for interval in whole:
            assert len(interval) == 2
        assert 15e6 < sum(map(sum, whole)) / len(whole) < 50e6  # a busy machine fills less


def test_the_congestion_control_is_what_was_asked_for() -> None:
    with fabric() as net, net.background(Tcp(0, 1, congestion="reno", seconds=5.0)):
        time.sleep(0.5)
        shown = subprocess.run(
            ("ip", "netns", "exec", net.host_namespace(0), "ss", "-ti"),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert " reno " in shown


def test_an_unknown_congestion_control_is_an_error() -> None:
    flow = Tcp(0, 1, congestion="guess", seconds=0.1)
    with fabric() as net, net.background(flow) as others, pytest.raises(FabricError, match="guess"):
        others.wait()


def test_a_constant_rate_is_near_what_was_asked_for() -> None:
    with fabric() as net:
        with net.background(Udp(0, 1, "28mbit", dscp=(10,), seconds=1.0)) as others:
            others.wait()
            counts = others.flows[0].final_datagrams()
        assert set(counts) == {10 << 2}
        assert 1500 < counts[40] < 2700  # 2500 of 1400 bytes, less on a busy machine


def test_an_incast_bursts_together_and_overflows_the_port() -> None:
    with fabric(Plan(hosts=4, host_rate="50mbit", buffer_bytes=32 * 1024)) as net:
        # In the mean 24 Mb/s, half of the link: only bursts that coincide can overflow it.
        flows = incast([1, 2, 3], 0, rate="80mbit", on=0.02, off=0.18, seconds=1.0)
        with net.background(*flows) as others:
            others.wait()
        port = net.statistics()["l0:h0"]
        assert port.dropped_packets > 20
        assert port.dropped_packets + port.sent_packets < 4000  # a constant 80 Mb/s each: 21,000


def test_whatever_still_flows_ends_with_its_block() -> None:
    with fabric() as net:
        with net.background(Udp(0, 1, "10mbit", seconds=60.0), Tcp(1, 0, seconds=60.0)) as others:
            processes = [p for flow in others.flows for p in (flow.sender, flow.receiver)]
            assert all(process.poll() is None for process in processes)
        assert all(process.poll() is not None for process in processes)


def test_a_fast_link_is_kept_busy() -> None:
    """One sender fills most of 1 Gb/s: 40 datagrams per system call."""
    with fabric() as net:
        before = net.statistics()["l0:h1"].sent_bytes
        with net.background(Udp(0, 1, "800mbit", seconds=1.0)) as others:
            others.wait()
        assert net.statistics()["l0:h1"].sent_bytes - before > 20e6

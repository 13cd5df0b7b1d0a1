"""Which interface, and why; what the kernel says of those of this host."""

import dataclasses

import pytest

from dlcpd.doctor.interfaces import Interface, judge_interfaces, look_at_interfaces
from dlcpd.doctor.rows import Row, Verdict

GOOD = {"tx-checksum-ip-generic": True, "rx-gro": True, "tx-udp-segmentation": False}
ETH = Interface("10.0.0.7", "eth0", up=True, mtu=1500, speed=10_000, features=GOOD)
FAST = Interface("10.1.0.7", "eth1", up=True, mtu=9000, speed=100_000, features=GOOD)
LO = Interface("127.0.0.1", "lo", up=True, mtu=65536, speed=0, features={})


def rows(*known: Interface, use: str, chosen: bool = False) -> dict[str, Row]:
    found = judge_interfaces(known, [use], chosen=chosen)
    return {row.check.removesuffix(" of path 0"): row for row in found}


def test_a_good_interface_says_why_it_is_used() -> None:
    found = rows(LO, ETH, use="10.0.0.7")
    assert all(row.verdict is Verdict.PASS for row in found.values())
    assert "eth0, 10.0.0.7, 10000 Mbit/s: the default route" in found["interface"].found
    assert "as [network] paths says" in rows(ETH, use="10.0.0.7", chosen=True)["interface"].found
    assert "9000 on every host" in found["MTU"].found
    assert "in software" in found["offloads"].found


def test_loopback_alone_names_the_others() -> None:
    found = rows(LO, ETH, use="127.0.0.1")["interface"]
    assert found.verdict is Verdict.WARN
    assert "no other host reaches it" in found.found
    assert "10.0.0.7 (eth0)" in found.fix


def test_a_faster_one_is_named_unless_this_one_was_chosen() -> None:
    found = rows(LO, ETH, FAST, use="10.0.0.7")["interface"]
    assert found.verdict is Verdict.WARN
    assert found.fix == '[network] paths = [{ address = "10.1.0.7" }]'
    chosen = rows(LO, ETH, FAST, use="10.0.0.7", chosen=True)["interface"]
    assert chosen.verdict is Verdict.PASS
    unknown = dataclasses.replace(ETH, speed=0)
    assert rows(unknown, FAST, use="10.0.0.7")["interface"].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("change", "check", "verdict", "fix"),
    [
        ({"up": False}, "interface", Verdict.FAIL, "ip link set eth0 up"),
        ({"mtu": 1200}, "MTU", Verdict.FAIL, "ip link set eth0 mtu 1500"),
        ({"features": {"rx-gro": True}}, "offloads", Verdict.WARN, "ethtool -K eth0 tx on"),
        ({"features": GOOD | {"rx-gro": False}}, "offloads", Verdict.WARN,
         "ethtool -K eth0 gro on"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_fix(
    change: dict[str, object], check: str, verdict: Verdict, fix: str
) -> None:
    found = rows(dataclasses.replace(ETH, **change), use="10.0.0.7")  # type: ignore[arg-type]
    assert (found[check].verdict, found[check].fix) == (verdict, fix)


def test_an_address_that_nobody_has_fails() -> None:
    [row] = rows(LO, ETH, use="10.9.9.9").values()
    assert row.verdict is Verdict.FAIL
    assert "10.0.0.7 (eth0)" in row.fix
    assert "only loopback" in rows(LO, use="10.9.9.9")["interface"].fix


def test_the_kernel_tells_of_loopback() -> None:
    known = {one.address: one for one in look_at_interfaces()}
    assert known["127.0.0.1"].name == "lo"
    assert known["127.0.0.1"].loopback and known["127.0.0.1"].up
    assert known["127.0.0.1"].mtu > 9000
    assert known["127.0.0.1"].features, "ethtool's ioctl answers without root"

"""What a switch that switchcfg has configured does with traffic: real queues, a real overload."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.switchcfg.intents import EXAMPLES
from tests.switches.ssh_switch import SshSwitch, inside

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not shutil.which("sshd"), reason="sshd is not installed"),
]
ECT0, CE = 2, 3
CLASSES = tuple(range(56, -8, -8))  # of the example with eight classes, the most urgent first
RANKS = (10, 12, 14)
ONE_CLASS = """\
schema = 1
[fabric]
name = "lab"
[classes]
bulk = { rank = 0, dscp = [10, 12, 14], ecn = ["ect0", "ect0", "not-ect"] }
"""
WIRE = 1442 / 1400  # bytes on the wire per byte of payload
LINK = 20e6 * 0.98  # bit/s that the port is held to


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[SshSwitch]:
    with SshSwitch(tmp_path).running() as made:
        intent, _, _ = EXAMPLES["eight_classes"].partition("[[device]]")
        file = tmp_path / "intent.toml"
        _, device, ports = file.read_text().partition("[[device]]")
        file.write_text(intent.replace('"1MiB"', '"640KiB"') + device + ports)
        made.attach_hosts()
        yield made


def arrived(
    switch: SshSwitch, load: float, *, seconds: float = 3.0, dscps: Sequence[int] = CLASSES
) -> dict[int, int]:
    """Datagrams by TOS, of these code points in turn that offer `load` times the link."""
    program = (sys.executable, "-m", "dlcp_lab.emulation.traffic.udp")
    near, far = switch.hosts
    receiver = subprocess.Popen(
        inside(far, *program, "receive", "9000"), text=True, stdout=subprocess.PIPE
    )
    assert receiver.stdout is not None
    try:
        receiver.stdout.readline()  # it is bound
        rate = str(int(LINK * load / WIRE))
        tos = [str(dscp << 2 | ECT0) for dscp in dscps]
        send = ("send", "10.9.1.2", "9000", "--rate", rate, "--seconds", str(seconds), "--tos")
        subprocess.run(inside(near, *program, *send, *tos), check=True)
    finally:
        receiver.terminate()
        said, _ = receiver.communicate()
    counts = json.loads(said.splitlines()[-1])["datagrams"]
    return {int(tos): count for tos, count in counts.items()}


def kept(counts: dict[int, int], dscp: int) -> int:
    return sum(count for tos, count in counts.items() if tos >> 2 == dscp)


def test_under_overload_the_top_half_keeps_all_and_the_bottom_nothing(switch: SshSwitch) -> None:
    assert switch.run("plan", "INTENT", "--out", "PLANS")[0] == 2
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    counts = arrived(switch, 2.0)
    sent = max(kept(counts, dscp) for dscp in CLASSES)
    top, bottom = CLASSES[:4], CLASSES[4:]
    assert sum(kept(counts, dscp) for dscp in top) >= 0.95 * len(top) * sent
    assert sum(kept(counts, dscp) for dscp in bottom) <= 0.10 * len(bottom) * sent
    assert sum(count for tos, count in counts.items() if tos & 3 == CE) > 0


def test_drop_precedences_of_one_queue_go_in_their_order(switch: SshSwitch) -> None:
    file = switch.folder / "intent.toml"
    _, device, ports = file.read_text().partition("[[device]]")
    file.write_text(ONE_CLASS + device + ports)
    assert switch.run("plan", "INTENT", "--out", "PLANS")[0] == 2
    assert switch.run("apply", "INTENT", "PLANS")[0] == 0
    counts = arrived(switch, 2.0, dscps=RANKS)
    sent = LINK * 2.0 / WIRE / 8 / 1400 * 3.0 / len(RANKS)  # of each
    first, middle, last = (kept(counts, dscp) / sent for dscp in RANKS)
    assert first > 0.9
    assert 0.3 < middle < 0.7
    assert last < 0.2


def test_without_overload_all_arrives_and_nothing_is_marked(switch: SshSwitch) -> None:
    assert switch.run("plan", "INTENT", "--out", "PLANS")[0] == 2
    assert switch.run("apply", "INTENT", "PLANS")[0] == 0
    counts = arrived(switch, 0.3, seconds=1.5)
    assert {tos & 3 for tos in counts} == {ECT0}
    each = [kept(counts, dscp) for dscp in CLASSES]
    assert max(each) - min(each) <= 2


def test_verify_traffic_tells_what_the_network_does_to_each_tag(switch: SshSwitch) -> None:
    ask = ("verify", "INTENT", "--traffic", "host0", "host1", "10.9.1.2")
    load = ("--load", "39Mbit")
    assert switch.run("plan", "INTENT", "--out", "PLANS")[0] == 2
    assert switch.run("apply", "INTENT", "PLANS")[0] == 0
    code, said = switch.run(*ask, *load)
    assert code == 0, said
    assert said.count("honoured  survives") == len(CLASSES)
    assert "under load: in order" in said
    assert "paths that source ports reach: 1" in said


def test_a_change_that_traffic_suffers_from_is_taken_back(switch: SshSwitch) -> None:
    before = switch.queues()
    assert switch.run("plan", "INTENT", "--out", "PLANS")[0] == 2
    ask = ("apply", "INTENT", "PLANS", "--traffic", "host0", "host1", "10.9.1.2")
    # On the way behind the switch: a rule on the switch itself would make the plan stale.
    nft = inside(switch.hosts[1], "nft", "-f", "-")
    bleach = """table ip theirs {
    chain pre {
        type filter hook prerouting priority mangle;
        iifname "eth0" ip dscp 56 ip dscp set 0
    }
}
"""
    subprocess.run(nft, input=bleach, text=True, check=True)
    code, said = switch.run(*ask)
    assert code == 1
    assert "the traffic test failed: c0 (DSCP 56): tag bleached" in said
    assert "reverted" in said
    subprocess.run(nft, input="delete table ip theirs", text=True, check=True)
    assert switch.queues() == before
    code, said = switch.run(*ask)
    assert code == 0, said
    assert f"{switch.name}: the traffic test passed\n" in said


def test_verify_traffic_finds_a_tag_that_is_bleached_and_one_that_is_rewritten(
    switch: SshSwitch,
) -> None:
    switch.shell("""nft -f - <<'END'
table ip theirs {
    chain post {
        type filter hook postrouting priority mangle;
        oifname "p2" ip dscp 56 ip dscp set 0
        oifname "p2" ip dscp 48 ip dscp set 46
        oifname "p2" ip dscp 40 ip ecn set not-ect
    }
}
END
""")
    code, said = switch.run("verify", "INTENT", "--traffic", "host0", "host1", "10.9.1.2")
    assert code == 2
    rows = {line.split()[1]: line for line in said.splitlines() if line[:1] == "c"}
    assert "bleached" in rows["56"]
    assert "rewritten to 46" in rows["48"]
    assert "cleared" in rows["40"]
    assert all(rows[dscp].endswith("FAIL") for dscp in ("56", "48", "40"))
    assert rows["32"].endswith("pass")


def test_without_queues_of_its_own_the_first_class_is_found_to_lose(switch: SshSwitch) -> None:
    switch.shell("tc qdisc add dev p2 root tbf rate 20mbit burst 4kb limit 40kb")
    ask = ("verify", "INTENT", "--traffic", "host0", "host1", "10.9.1.2")
    code, said = switch.run(*ask, "--load", "39Mbit")
    assert code == 2
    assert "under load: c0 is served first, and only" in said

"""Connection tracking: the row, and that the rules of deploy/nftables end it for data ports."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from dlcpd.doctor.rows import Verdict
from dlcpd.doctor.tracking import Tracking, judge_tracking, look_at_tracking
from tests.pages import ROOT

RULES: Final = ROOT / "deploy" / "nftables" / "dlcpd.nft"
LINES: Final = """\
ipv4 2 udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=40001 dport=7412 src=10.0.0.2 dst=10.0.0.1
ipv4 2 udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=40001 dport=74120 src=10.0.0.2 dst=10.0.0.1
ipv4 2 tcp 6 29 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=40001 dport=7412 [ASSURED]
"""


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (None, Verdict.PASS, "the kernel tracks none"),
        (Tracking(7, 100, None), Verdict.PASS, "7 of at most 100 entries"),
        (Tracking(7, 100, 0), Verdict.PASS, "none for data ports"),
        (Tracking(7, 100, 2), Verdict.WARN, "2 of them for data ports"),
        (Tracking(80, 100, 0), Verdict.WARN, "drops datagrams of new flows"),
    ],
    ids=str,
)
def test_judgements(found: Tracking | None, verdict: Verdict, says: str) -> None:
    row = judge_tracking(found)
    assert row.verdict is verdict and says in row.found
    assert ("deploy/nftables/dlcpd.nft" in row.fix) is (verdict is Verdict.WARN)


def test_entries_of_data_ports_are_counted(tmp_path: Path) -> None:
    entries = tmp_path / "entries"
    assert look_at_tracking([7412], tmp_path, entries) is None
    (tmp_path / "nf_conntrack_count").write_text("3\n")
    (tmp_path / "nf_conntrack_max").write_text("262144\n")
    assert look_at_tracking([7412], tmp_path, entries) == Tracking(3, 262144, None)
    entries.write_text(LINES)
    assert look_at_tracking([7412, 7413], tmp_path, entries) == Tracking(3, 262144, 1)
    assert look_at_tracking([], tmp_path, entries) == Tracking(3, 262144, 0)


# In a network namespace whose firewall asks for the state of connections, as kube-proxy's does: how
# many entries there are after a datagram from each of 16 ports to a port.
STATEFUL: Final = "add table inet t; add chain inet t c { type filter hook output priority 0; }; \
add rule inet t c ct state new accept"
COUNT: Final = "/proc/sys/net/netfilter/nf_conntrack_count"


def entries_after_datagrams(port: int, *, excluded: bool) -> int:
    script = f"""set -e
ip link set lo up; nft '{STATEFUL}'
{f"nft -f {RULES}; nft -f {RULES}" if excluded else ""}
for sport in $(seq 20001 20016); do exec 3<>/dev/udp/127.0.0.1/{port}; echo x >&3; exec 3>&-; done
cat {COUNT}"""
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.netns
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft") is None or not Path(COUNT).exists(),
    reason="needs root, nft and connection tracking",
)
def test_the_rules_keep_datagrams_out() -> None:
    assert entries_after_datagrams(7412, excluded=False) >= 16
    assert entries_after_datagrams(7412, excluded=True) == 0
    assert entries_after_datagrams(7413, excluded=True) >= 16  # of another program

"""Four Linux switches behind real sshds: the order of changes, and one whose links stay down.

`lldpctl` is a script that tells the neighbours of ports with a carrier, in lldpd's form.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.switches.ssh_switch import ip, make_keys, open_door

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not shutil.which("sshd"), reason="sshd is not installed"),
]
LEAVES, SPINES = ("leaf1", "leaf2"), ("spine1", "spine2")
LLDPCTL = """\
#!/bin/sh
here=$(ip netns identify $$)
printf '{"lldp": {"interface": [{}'
while read -r switch port far there; do
    if [ "$switch" = "$here" ] && [ "$(cat /sys/class/net/$port/carrier)" = 1 ]; then
        printf ', {"%s": {"chassis": {"%s": {}}, "port": {"id": {"value": "%s"}}}}' \\
            "$port" "$far" "$there"
    fi
done <FOLDER/links
echo ']}}'
"""
# Where a change reaches the last spine, its links go down, and stay so.
NFT = """\
#!/bin/sh
if [ "$1" = -f ] && [ "$(ip netns identify $$)" = "$(cat FOLDER/bad)" ]; then
    ip link set p1 down
fi
exec REAL "$@"
"""
DEVICE = """\
[[device]]
name = "{name}"
platform = "linux"
[[device.ports]]
names = {ports}
rate = "100Mbit"
"""


class Switches:
    """Leaves and spines in namespaces, each behind a door on this host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = {each: f"swo{os.getpid()}-{each}" for each in (*LEAVES, *SPINES)}
        self.doors: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        (self.folder / "bin").mkdir()
        make_keys(self.folder)
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        rows, text = [], 'schema = 1\n[fabric]\nname = "lab"\n'
        for low, leaf in enumerate(LEAVES, 1):
            for high, spine in enumerate(SPINES, 1):
                one, other = (self.names[leaf], f"p{high}"), (self.names[spine], f"p{low}")
                ip(
                    "link",
                    "add",
                    one[1],
                    "netns",
                    one[0],
                    "type",
                    "veth",
                    "peer",
                    "name",
                    other[1],
                    "netns",
                    other[0],
                )
                rows += [(*one, *other), (*other, *one)]
        for leaf in LEAVES:
            pair = ("type", "veth", "peer", "name", "h1x")  # to a host without LLDP
            ip("-n", self.names[leaf], "link", "add", "h1", *pair)
        for short, name in self.names.items():
            ports = ["p1", "p2", *(["h1"] if short in LEAVES else [])]
            text += DEVICE.format(name=name, ports=json.dumps(ports))
            for port in ports:
                ip("-n", name, "link", "set", port, "up")
            self.doors.append(open_door(self.folder, name, name))
        (self.folder / "links").write_text("".join(f"{' '.join(row)}\n" for row in rows))
        (self.folder / "intent.toml").write_text(text)
        (self.folder / "bad").write_text("")
        for tool, script in (("lldpctl", LLDPCTL), ("nft", NFT)):
            file = self.folder / "bin" / tool
            real = shutil.which(tool) or tool
            file.write_text(script.replace("FOLDER", str(self.folder)).replace("REAL", real))
            file.chmod(0o755)

    def end(self) -> None:
        for door in self.doors:
            door.kill()
            door.wait()
        for name in self.names.values():
            found = subprocess.run(
                ("ip", "netns", "pids", name), capture_output=True, text=True, check=False
            )
            for pid in map(int, found.stdout.split()):
                os.kill(pid, signal.SIGKILL)
            subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)
            shutil.rmtree(f"/run/switchcfg/{name}", ignore_errors=True)

    def run(self, *words: str) -> tuple[int, str]:
        """(exit code, all output with the short names of the switches)."""
        fill = {"INTENT": str(self.folder / "intent.toml"), "PLANS": str(self.folder / "plans")}
        argv = [sys.executable, "-m", "switchcfg", *(fill.get(w, w) for w in words)]
        argv += ["--ssh-config", str(self.folder / "ssh_config")]
        state = {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}
        done = subprocess.run(
            argv, env=state, text=True, capture_output=True, check=False, timeout=120
        )
        said = done.stdout + done.stderr
        for short, name in self.names.items():
            said = said.replace(name, short)
        return done.returncode, said

    def queues(self, switch: str) -> str:
        """The kinds of its root queues."""
        said = subprocess.run(
            ("tc", "-n", self.names[switch], "-j", "qdisc", "show"),
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        return " ".join(row["kind"] for row in json.loads(said) if row.get("root"))


@pytest.fixture
def switches(tmp_path: Path) -> Iterator[Switches]:
    made = Switches(tmp_path)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def test_the_last_spine_does_not_come_back_and_is_reverted(switches: Switches) -> None:
    code, said = switches.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2, said
    assert "fabric:" not in said
    (switches.folder / "bad").write_text(switches.names["spine2"])
    code, said = switches.run("apply", "INTENT", "PLANS", "--revert-after", "20")
    assert code == 1, said
    assert "order: leaf1; then leaf2; then spine1; then spine2\n" in said
    for each in ("leaf1", "leaf2", "spine1"):
        assert f"{each}: has its 2 neighbours of before\n" in said
        assert "htb" in switches.queues(each)
    assert "spine2: 1 of 2 neighbours did not come back: LLDP p1 (leaf1) [commit_failed]" in said
    assert "spine2: reverted\n" in said
    assert "3 done, 1 failed, 0 not started\n" in said
    assert "htb" not in switches.queues("spine2")
    code, said = switches.run("fabric", "INTENT")
    assert code == 2, said
    assert "leaf1 p1 - spine1 p1 (LLDP on leaf1, LLDP on spine1)\n" in said
    assert "leaf2 p2 - spine2 p2: code points: classes of DSCP" in said

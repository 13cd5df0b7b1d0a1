"""An emulated leaf-spine fabric whose switches switchcfg configures, and real daemons on it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from dlcp_lab.emulation.namespaces import command
from dlcp_lab.emulation.topology import directions, is_host, switches
from dlcp_lab.scenarios.job import Job, JobPhase, Operation, on_fabric, run
from dlcpd.cli.output import Output
from tests.lab.scenarios.test_on_fabric import Fabric
from tests.switches.ssh_switch import make_keys, open_door

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not shutil.which("sshd"), reason="sshd is not installed"),
]
PLAN = {"hosts": 2, "leaves": 2, "spines": 2, "bare": True}
FABRIC = """\
schema = 1
[fabric]
name = "lab"
[queues]
buffer = "256KiB"
"""
DEVICE = """\
[[device]]
name = "{device}"
platform = "linux"
side = "{side}"
"""
PORTS = """\
[[device.ports]]
group = "{group}"
names = {names}
rate = "{rate}"
"""
HOST_RATE, SPINE_RATE = "200Mbit", "80Mbit"


def intent(net: Any) -> str:
    """Each spine is a side of its own, and each leaf: who is without one takes its hosts down."""
    text = FABRIC
    for switch in switches(net.plan):
        text += DEVICE.format(device=net.namespace(switch), side=switch)
        for group, rate in (("HOSTS", HOST_RATE), ("SPINES", SPINE_RATE)):
            names = [
                way.source.device
                for way in directions(net.plan).values()
                if way.source.node == switch and is_host(way.target.node) == (group == "HOSTS")
            ]
            if names:
                text += PORTS.format(group=group, names=json.dumps(names), rate=rate)
    return text


@contextmanager
def operated(net: Any, folder: Path) -> Iterator[Any]:
    """Runs switchcfg for the fabric's switches: (exit code, everything it printed)."""
    make_keys(folder)
    file = folder / "intent.toml"
    file.write_text(intent(net))

    def switchcfg(*words: str) -> tuple[int, str]:
        options = ("--ssh-config", str(folder / "ssh_config"))
        argv = (
            sys.executable,
            "-m",
            "switchcfg",
            words[0],
            str(file),
            *words[1:],
            *options,
        )
        state = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        done = subprocess.run(argv, env=state, text=True, capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr

    with ExitStack() as doors:
        for switch in switches(net.plan):
            name = net.namespace(switch)
            child = open_door(folder, name, name)
            doors.callback(child.wait)
            doors.callback(child.kill)
        yield switchcfg


def carried(net: Any, switch: str) -> dict[tuple[str, str], int]:
    """Packets by port and queue of a switch, as its kernel counts them."""
    said = command("tc", "-n", net.namespace(switch), "-s", "-j", "qdisc", "show")
    return {
        (row["dev"], row["parent"]): row["packets"]
        for row in json.loads(said)
        if row["kind"] == "bfifo"
    }


def test_daemons_on_a_fabric_that_switchcfg_configured(tmp_path: Path) -> None:
    fabric = Fabric()
    work = JobPhase("work", (Operation(2 << 20),), rounds=40, warmup=2)
    with on_fabric(PLAN, {"entropy": 8}) as (net, hosts), operated(net, tmp_path) as switchcfg:
        fabric.hosts = hosts
        code, said = switchcfg("plan", "--out", str(tmp_path / "plans"))
        assert code == 2, said
        code, said = switchcfg("apply", str(tmp_path / "plans"))
        assert code == 0, said
        assert "4 done, 0 failed, 0 not started" in said
        run(net, hosts, Job((work,)), seed=1, output=Output(None), at=fabric.at)
        assert switchcfg("verify")[0] == 0  # and traffic has changed nothing
        queues = carried(net, "s0")
    for leaf in ("l0", "l1"):
        sent = fabric.sent(leaf)
        assert max(sent) <= 1.05 * fmean(sent)  # spraying is even
    assert fabric.counters()["ce"] > 0  # queues are where the switches are told to have them
    used = {queue for (_, queue), packets in queues.items() if packets > 100}
    assert len(used) > 1  # data and control are in classes of their own

"""Real daemons: started, asked, stopped."""

import os
import signal
import subprocess
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dlcp_lab.ranks.hosts import HostPlan, apart, on_loopback, running
from dlcp_lab.ranks.processes import Place
from dlcpd import starter
from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.ctl.main import FAILED, INTERRUPTED, main
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import NetworkTable
from dlcpd.inspection.report import query


def test_a_plan_becomes_a_configuration_that_the_daemon_takes(tmp_path: Path) -> None:
    plan = HostPlan(
        "x",
        ("127.0.0.1", "127.0.1.1"),
        loss=0.25,
        seed=7,
        digest_every=1,
        network=NetworkTable(window=1 << 20),
    )
    config = parse(plan.configuration(tmp_path), "plan")
    assert config.daemon.host == "x"
    assert [path.address for path in config.network.paths] == ["127.0.0.1", "127.0.1.1"]
    assert (config.network.window, config.checks.digest_every) == (1 << 20, 1)
    assert (config.inject.loss, config.inject.seed) == (0.25, 7)


def test_hosts_on_loopback_share_no_address_and_no_seed() -> None:
    plans = on_loopback(4, 2, seed=10, loss=0.5)
    addresses = [address for plan in plans for address in plan.addresses]
    assert len(set(addresses)) == 8
    assert [plan.seed for plan in plans] == [10, 11, 12, 13]
    assert {plan.loss for plan in plans} == {0.5}


def test_hosts_apart_share_no_cpu() -> None:
    cpus = os.sched_getaffinity(0)
    plans = apart(on_loopback(len(cpus)))
    assert sorted(cpu for plan in plans for cpu in plan.place.cpus) == sorted(cpus)
    crowd = on_loopback(len(cpus) + 1)
    assert apart(crowd) == crowd  # too few: they share


def test_a_daemon_and_its_children_keep_to_their_cpus() -> None:
    cpu = min(os.sched_getaffinity(0))
    (plan,) = on_loopback(1)
    with running([replace(plan, place=Place(cpus=(cpu,)))]) as hosts:
        control = hosts.members[0].daemon.process.pid
        children = Path(f"/proc/{control}/task/{control}/children").read_text().split()
        assert children  # the engine
        assert all(os.sched_getaffinity(pid) == {cpu} for pid in [control, *map(int, children)])


def test_two_daemons_serve_and_leave_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    with running(on_loopback(2, 2)) as hosts:
        reports = [query(host.socket, 10) for host in hosts.members]
        assert [report["host"] for report in reports] == ["host0", "host1"]
        assert [len(report["endpoints"]["data"]) for report in reports] == [2, 2]
        assert main(["status", "--socket", hosts.members[0].socket]) == 0
        shown = capsys.readouterr().out
        assert "host0: dlcpd" in shown
        assert "0 sessions" in shown
        assert main(["peers", "--socket", hosts.members[1].socket]) == 0
        assert "no sessions" in capsys.readouterr().out
        folder, pids = hosts.folder, [host.daemon.process.pid for host in hosts.members]
    assert not folder.exists()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert main(["status", "--socket", str(folder / "host0" / "session")]) == FAILED


def test_a_daemon_that_cannot_start_is_named_with_its_own_words() -> None:
    plans = [HostPlan("good", ("127.0.0.1",)), HostPlan("bad", ("192.0.2.77",))]
    with pytest.raises(DaemonUnavailable, match=r"bad: ended: .*192\.0\.2\.77"), running(plans):
        pytest.fail("an address of nobody was bound")


def test_a_daemon_that_dies_is_noticed() -> None:
    with running(on_loopback(1)) as hosts:
        hosts.raise_if_ended()
        hosts.members[0].daemon.process.kill()
        hosts.members[0].daemon.process.wait()
        with pytest.raises(DaemonUnavailable, match=r"host0: dlcpd .* was killed by SIGKILL"):
            hosts.raise_if_ended()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_stops_what_it_started(tmp_path: Path, number: int) -> None:
    """Interrupted in the middle of a measurement that would take minutes."""
    line = ["bench", "all-reduce", "--sizes", "64K", "--repeat", "100000", "--against", "none"]
    process = subprocess.Popen(
        starter.command("dlcpd.ctl.main", *line),
        stderr=subprocess.PIPE,
        text=True,
        env=starter.environment() | {"TMPDIR": str(tmp_path)},
        # A shell ignores SIGINT for what it runs in the background, such as these tests.
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),  # noqa: PLW1509  # no threads
    )
    with process:
        assert process.stderr
        assert process.stderr.readline().startswith("# 65536 B")
        started = _descendants(process.pid)
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == INTERRUPTED
    assert rest == "dlcpctl: interrupted; everything it started is stopped\n"
    assert len(started) == 6  # two of each: control, engine, rank
    assert not [pid for pid in started if os.path.exists(f"/proc/{pid}")]
    assert list(tmp_path.iterdir()) == []


def _descendants(pid: int) -> list[int]:
    direct = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(p) for p in direct] + [p for child in direct for p in _descendants(int(child))]


def test_configuration_is_toml(tmp_path: Path) -> None:
    assert tomllib.loads(HostPlan("x", ("127.0.0.1",)).configuration(tmp_path))["daemon"]

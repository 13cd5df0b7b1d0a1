"""What the daemons of a job tell each other of their links, and what their engines get."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon.kit import Daemon, configuration, join_all

TOPOLOGY = """
[hosts]
host-1 = "10gbit"
host-2 = "2500mbit"
host-3 = "10gbit"
"""
WITHOUT = "none: host host-3 told no rate: set [planner] topology there"


def started(folder: Path, number: int, topology: str) -> Daemon:
    file, more = folder / f"topology{number}.toml", ""
    if topology:
        file.write_text(topology)
        more = f'[planner]\ntopology = "{file}"\n'
    return Daemon(configuration(folder, f"host-{number}", f"127.0.0.{number}", more=more))


@pytest.mark.parametrize(
    ("third", "plan"),
    [
        (TOPOLOGY, "forest: gain "),
        (TOPOLOGY.replace("host-3", "host-4"), WITHOUT),
        ("", WITHOUT),
    ],
    ids=["all", "not in its file", "no file"],
)
def test_all_engines_get_one_round_trip_and_the_network_or_none_does(
    tmp_path: Path, third: str, plan: str
) -> None:
    with ExitStack() as stack:
        files = enumerate((TOPOLOGY, TOPOLOGY, third), 1)
        daemons = [stack.enter_context(started(tmp_path, n, text)) for n, text in files]
        clients = [stack.enter_context(daemon.client()) for daemon in daemons]
        join_all(clients, "job")
        commands = [client.command("OpenSession") for client in clients]
        networks = [command["network"] for command in commands]
        round_trips = [command["round_trip"] for command in commands]
        plans = {client.status()["sessions"][0]["plan"] for client in clients}
        events = [[one["event"] for one in daemon.events] for daemon in daemons]
    assert len(set(round_trips)) == 1
    assert 0 < round_trips[0] < 60_000_000
    assert networks[0] == networks[1] == networks[2]
    [said] = plans
    assert said.startswith(plan)
    told = plan != WITHOUT
    assert [name for name, _ in networks[0]] == ["host-1", "host-2", "host-3"] * told
    assert [lines.count("plan") for lines in events] == [told] * 3
    lacking = [0, 0, "host-4" in third]  # the host is not in its own file
    assert [lines.count("no_plan") for lines in events] == [(not told) + own for own in lacking]


def test_a_topology_is_read_again_for_jobs_that_join_later(tmp_path: Path) -> None:
    """A reload with a mistake keeps what was read before."""
    file = tmp_path / "topology1.toml"
    with ExitStack() as stack:
        daemons = [stack.enter_context(started(tmp_path, n, TOPOLOGY)) for n in (1, 2)]
        rates = []
        for number, text in enumerate(("", TOPOLOGY.replace("10gbit", "4gbit"), "[hosts]\n")):
            if text:
                file.write_text(text)
                daemons[0].signal(signal.SIGHUP)
                daemons[0].wait_for("reload_refused" if number == 2 else "reloaded")
            clients = [stack.enter_context(daemon.client()) for daemon in daemons]
            join_all(clients, f"job{number}")
            [(_, told), _] = clients[1].command("OpenSession")["network"]
            rates.append(told[0][0])
    assert rates == [10 * 10**9, 4 * 10**9, 4 * 10**9]

"""What the daemons of a job tell each other of their links, and what their engines get."""

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dlcpd.requests.networks import REST
from dlcpd.schedules.network import TYPICAL
from tests.daemon.kit import Client, Daemon, configuration, join_all, until

G = 10**9

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
        costs = [command["costs"] for command in commands]
        round_trips = [command["round_trip"] for command in commands]
        plans = {client.status()["sessions"][0]["plan"] for client in clients}
        events = [[one["event"] for one in daemon.events] for daemon in daemons]
    assert len(set(round_trips)) == 1
    assert costs == [list(TYPICAL)] * 3  # those of the stand-in engines
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


def reload_all(folder: Path, daemons: list[Daemon], text: str) -> None:
    for number, daemon in enumerate(daemons, 1):
        (folder / f"topology{number}.toml").write_text(text)
        daemon.signal(signal.SIGHUP)


def test_a_running_job_adopts_the_rates_that_its_hosts_tell(tmp_path: Path) -> None:
    """Control's part: the stand-ins promise, as engines do."""
    slower = TOPOLOGY.replace('host-3 = "10gbit"', 'host-3 = "4gbit"')
    with ExitStack() as stack:
        daemons = [stack.enter_context(started(tmp_path, n, TOPOLOGY)) for n in (1, 2, 3)]
        clients = [stack.enter_context(daemon.client()) for daemon in daemons]
        join_all(clients, "job")
        reload_all(tmp_path, daemons, slower)
        offers = [client.command("OfferNetwork") for client in clients]
        for rank, client in enumerate(clients):
            limits = [[0, 20 + rank], [7, 40 - rank]][: 1 + rank]
            client.emit("NetworkPromised", version=2, limits=limits, why="")
        settled = [client.command("SettleNetwork") for client in clients]
        until(lambda: versions(clients) == {2}, "status shows the version")
        plans = [d.wait_for("plan", version=2)["why"].startswith("forest") for d in daemons]
    assert [offer["version"] for offer in offers] == [2, 2, 2]
    assert [offers[rank]["network"] for rank in (1, 2)] == [offers[0]["network"]] * 2
    assert [told[0][0] for _, told in offers[0]["network"]] == [10 * G, 25 * G // 10, 4 * G]
    for each in settled:
        assert sorted(each["firsts"]) == [[0, 23], [7, 40]] and each["rest"] == REST
    assert plans == [True, True, True]


def test_an_engine_that_refuses_leaves_the_old_plan(tmp_path: Path) -> None:
    with ExitStack() as stack:
        daemons = [stack.enter_context(started(tmp_path, n, TOPOLOGY)) for n in (1, 2)]
        clients = [stack.enter_context(daemon.client()) for daemon in daemons]
        join_all(clients, "job")
        reload_all(tmp_path, daemons, TOPOLOGY.replace("2500mbit", "1gbit"))
        for client, why in zip(clients, ("", "full"), strict=True):
            client.command("OfferNetwork")
            client.emit("NetworkPromised", version=2, limits=[], why=why)
        settled = [client.command("SettleNetwork") for client in clients]
        said = daemons[0].wait_for("plan_kept")["why"]
        assert versions(clients) == {1}
    assert said == "rank 1: full"
    assert [(each["rest"], each["firsts"]) for each in settled] == [(0, [])] * 2


def test_a_host_that_tells_no_rate_any_more_leaves_the_old_plan(tmp_path: Path) -> None:
    with ExitStack() as stack:
        daemons = [stack.enter_context(started(tmp_path, n, TOPOLOGY)) for n in (1, 2)]
        clients = [stack.enter_context(daemon.client()) for daemon in daemons]
        join_all(clients, "job")
        (tmp_path / "topology2.toml").write_text(TOPOLOGY.replace("host-2", "host-9"))
        daemons[1].signal(signal.SIGHUP)
        why = "host host-2 told no rate: set [planner] topology there"
        daemons[0].wait_for("no_plan", why=why)
        assert versions(clients) == {1}


def test_a_rank_that_leaves_between_offer_and_adoption_cancels_it_and_the_others_adopt_the_next(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        daemons = [stack.enter_context(started(tmp_path, n, TOPOLOGY)) for n in (1, 2, 3)]
        clients = [stack.enter_context(daemon.client()) for daemon in daemons]
        join_all(clients, "job")
        reload_all(tmp_path, daemons, TOPOLOGY.replace("2500mbit", "1gbit"))
        for client in clients:
            client.command("OfferNetwork")
        clients[2].close()
        settled = [client.command("SettleNetwork") for client in clients[:2]]
        for daemon in daemons[:2]:
            daemon.wait_for("peer_gone")
        why = daemons[0].wait_for("plan_kept")["why"]
        reload_all(tmp_path, daemons, TOPOLOGY.replace("2500mbit", "2gbit"))
        offers = promised(clients[:2])
        until(lambda: versions(clients[:2]) == {offers[0]["version"]}, "status has the version")
    assert why in ("rank 2 has left", "no answer of rank(s) 0, 1, 2 in 3 s")
    assert [(each["version"], each["rest"]) for each in settled] == [(2, 0)] * 2
    assert [told[0][0] for _, told in offers[0]["network"]] == [10 * G, 2 * G, 10 * G]


def test_a_host_that_halves_its_rate_between_offer_and_adoption_is_offered_again(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        daemons = [stack.enter_context(started(tmp_path, n, TOPOLOGY)) for n in (1, 2)]
        clients = [stack.enter_context(daemon.client()) for daemon in daemons]
        join_all(clients, "job")
        reload_all(tmp_path, daemons, TOPOLOGY.replace("2500mbit", "2gbit"))
        offers = [client.command("OfferNetwork") for client in clients]
        reload_all(tmp_path, daemons, TOPOLOGY.replace("2500mbit", "1gbit"))
        for client in clients:  # or the offer has been cancelled by then
            client.emit("NetworkPromised", version=2, limits=[], why="")
        again = promised(clients)
        until(lambda: versions(clients) == {3}, "status has the version")
    assert [offers[0]["network"][1][1][0], again[0]["network"][1][1][0]] == [[2 * G], [G]]


def test_when_rank_0_leaves_the_others_keep_the_old_plan(tmp_path: Path) -> None:
    with ExitStack() as stack:
        daemons = [stack.enter_context(started(tmp_path, n, TOPOLOGY)) for n in (1, 2)]
        clients = [stack.enter_context(daemon.client()) for daemon in daemons]
        join_all(clients, "job")
        reload_all(tmp_path, daemons, TOPOLOGY.replace("2500mbit", "1gbit"))
        clients[1].command("OfferNetwork")  # and its engine is slow to promise
        clients[0].close()
        settled = clients[1].command("SettleNetwork")
    assert (settled["version"], settled["rest"]) == (2, 0)


def promised(clients: list[Client]) -> list[dict[str, Any]]:
    """The next offer at each engine, which promises."""
    offers = [client.command("OfferNetwork") for client in clients]
    for client, offer in zip(clients, offers, strict=True):
        client.emit("NetworkPromised", version=offer["version"], limits=[], why="")
    return offers


def versions(clients: list[Client]) -> set[int]:
    return {client.status()["sessions"][0]["plan_version"] for client in clients}

"""Automatic addresses are those of the default route, also where it comes after the daemon."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.contract.messages import Joined
from dlcpd.daemon import addresses
from dlcpd.daemon.addresses import ALONE, Addresses
from dlcpd.daemon.config.effective import Automatic, resolved
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import Config
from dlcpd.inspection.report import alarms
from tests.daemon.kit import Daemon, configuration, joins, until

RUNNER = Path(__file__).with_name("run_in_own_network.py")
HERE, THERE = "10.88.0.1", "10.88.0.7"
HERE_6 = "2001:db8::1"
MIXED = """
[daemon]
control_address = "10.1.0.1"
[network]
paths = [{ address = "10.1.0.1", port = 5 }, { port = 6 }]
"""


def status(daemon: Daemon) -> dict[str, Any]:
    with daemon.client() as client:
        client.greet()
        return client.status()


def network(daemon: Daemon) -> Callable[..., None]:
    """Runs `ip` where the daemon runs."""

    def ip(*words: str) -> None:
        command = ["nsenter", "--target", str(daemon.process.pid), "--net", "ip", *words]
        subprocess.run(command, check=True, capture_output=True)

    return ip


def engine_paths(daemon: Daemon) -> list[str]:
    """The addresses that the engine was started with; none while one follows another."""
    try:
        environ = Path(f"/proc/{daemon.engine_pid}/environ").read_bytes().split(b"\0")
        [config] = [value for value in environ if value.startswith(b"DLCPD_ENGINE_CONFIG=")]
    except (OSError, ValueError):  # one has ended or not begun, or there are none or two
        return []
    return [address for address, _ in json.loads(config.partition(b"=")[2])["paths"]]


@pytest.mark.netns
def test_a_daemon_that_starts_before_its_network_moves_when_it_is_there(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path, address="auto"), runner=RUNNER) as daemon:
        ip = network(daemon)
        daemon.wait_for("address_alarm", text=ALONE)
        before = status(daemon)
        assert before["unreachable"] == ALONE and f"ADDRESS: {ALONE}" in list(alarms(before))
        with daemon.client() as client:
            assert client.greet().endpoint.startswith("tcp://127.0.0.1:")
            ip("link", "add", "up0", "type", "veth", "peer", "name", "up1")
            ip("address", "add", f"{HERE}/24", "dev", "up0")
            for end in ("up0", "up1"):
                ip("link", "set", end, "up")
            ip("route", "add", "default", "dev", "up0", "src", HERE)
            until(lambda: HERE in client.status()["unreachable"], "a client knows the old address")
            assert "moves when no session is open" in client.status()["unreachable"]
        daemon.wait_for("moved")
        daemon.wait_for("any_key")
        with daemon.client() as client:
            welcome = client.greet()
            assert welcome.endpoint.startswith(f"tcp://{HERE}:")
            until(lambda: client.status()["unreachable"] == "", "the engine has ended")
            after = client.status()
            assert after["config"]["daemon"]["control_address"] == HERE
            assert after["endpoints"]["control"] == welcome.endpoint
            client.send(joins("alone", [welcome])[0])
            client.expect(Joined)
            assert engine_paths(daemon) == [HERE]
            assert client.status()["engines"][0]["restarts"] == 0
            ip("address", "add", f"{THERE}/24", "dev", "up0")
            ip("route", "replace", "default", "dev", "up0", "src", THERE)
            until(lambda: THERE in client.status()["unreachable"], "the session keeps the address")
            assert engine_paths(daemon) == [HERE]
        daemon.wait_for("moved", control=moved_to(daemon, THERE))
        until(lambda: not status(daemon)["unreachable"], "the old engine has ended")
        until(lambda: status(daemon)["engines"][0]["state"] == "up", "the new engine serves")
        assert engine_paths(daemon) == [THERE]
        ip("link", "set", "up0", "down")  # a route that went may come back
        assert status(daemon)["unreachable"] == ""
        assert status(daemon)["endpoints"]["control"].startswith(f"tcp://{THERE}:")


@pytest.mark.netns
def test_a_host_without_ipv4_is_reached_by_ipv6(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path, address="auto"), runner=RUNNER) as daemon:
        ip = network(daemon)
        daemon.wait_for("address_alarm", text=ALONE)
        ip("link", "add", "up0", "type", "veth", "peer", "name", "up1")
        for end in ("up0", "up1"):
            ip("link", "set", end, "up")
        ip("-6", "route", "add", "default", "via", "fe80::1", "dev", "up0")
        assert status(daemon)["unreachable"] == ALONE, (
            "its link-local address is of no use elsewhere"
        )
        ip("address", "add", f"{HERE_6}/64", "dev", "up0", "nodad")
        daemon.wait_for("moved", control=moved_to(daemon, f"[{HERE_6}]"))
        until(lambda: engine_paths(daemon) == [HERE_6], "the new engine serves")
        until(lambda: not status(daemon)["unreachable"], "other hosts reach it")


def moved_to(daemon: Daemon, address: str) -> str:
    """The endpoint there, once the daemon has moved."""
    until(lambda: address in status(daemon)["endpoints"]["control"], "it moves")
    endpoint: str = status(daemon)["endpoints"]["control"]
    return endpoint


def test_addresses_that_were_given_are_no_alarm_and_do_not_move(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        assert status(daemon)["unreachable"] == ""


def test_only_automatic_addresses_move() -> None:
    written = parse(MIXED, "x")
    automatic = Automatic.of(written)
    config = automatic.at("10.9.0.9", resolved(written))
    assert config.daemon.control_address == "10.1.0.1"
    paths = [(path.address, path.port) for path in config.network.paths]
    assert paths == [("10.1.0.1", 5), ("10.9.0.9", 6)]
    assert automatic.address(config) == "10.9.0.9"
    assert Automatic.of(parse(MIXED.replace("{ port = 6 }", '{ address = "::1" }'), "x")) == (
        Automatic()
    )


def test_an_address_that_cannot_be_had_is_an_alarm_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "AGAIN", 0.0)
    config = resolved(Config())
    tried: list[str] = []

    async def scenario() -> str:
        done = asyncio.Event()

        async def move(address: str) -> None:
            tried.append(address)
            if len(tried) == 1:
                raise AddressUnavailable("port 7 is taken")
            alarm.append(follower.problem)
            done.set()

        alarm: list[str] = []
        follower = Addresses(
            Automatic.of(Config()), in_use=lambda: False, move=move, look=lambda: HERE
        )
        follower.start(Automatic.of(Config()).at(THERE, config))
        await done.wait()
        await asyncio.sleep(0)
        follower.close()
        assert follower.problem == ""
        return alarm[0]

    assert "port 7 is taken" in asyncio.run(scenario())
    assert tried == [HERE, HERE]


def test_a_client_that_comes_between_the_look_and_the_move_keeps_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "AGAIN", 0.0)
    asked: list[bool] = []
    moved = asyncio.Event()

    def in_use() -> bool:
        asked.append(len(asked) in (1, 2))  # not at the first look, but then
        return asked[-1]

    async def move(_address: str) -> None:
        moved.set()

    async def scenario() -> None:
        follower = Addresses(Automatic.of(Config()), in_use=in_use, move=move, look=lambda: HERE)
        follower.start(Automatic.of(Config()).at(THERE, resolved(Config())))
        await moved.wait()
        follower.close()

    asyncio.run(scenario())
    assert asked == [False, True, True, False, False]


def test_where_the_kernel_gives_no_news_the_daemon_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    from dlcpd.daemon import address_news  # noqa: PLC0415  # patched

    def refused() -> None:
        raise PermissionError

    monkeypatch.setattr(address_news, "_subscribed", refused)
    monkeypatch.setattr(address_news, "POLL", 0.0)

    async def scenario() -> None:
        looks = asyncio.Semaphore(0)
        news = address_news.AddressNews(asyncio.get_running_loop(), looks.release)
        for _ in range(3):
            await looks.acquire()
        news.close()

    asyncio.run(scenario())

"""Two hosts: what one finds of the other, over loopback and over a network that is spoilt."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from dlcpd import __version__
from dlcpd.daemon.config.effective import resolved
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import Config
from dlcpd.doctor import peer, reach
from dlcpd.doctor.datagrams import TOKEN, ProbeAnswer
from dlcpd.doctor.greeting import End, Greeting
from dlcpd.doctor.listener import ProbeListener
from dlcpd.doctor.prober import Prober, Reply, Wish, ask
from dlcpd.doctor.rows import Row, Verdict
from tests.path_mtu.network import Network, network, run

PATIENCE: Final = 30.0  # seconds until a listener fails; never waited for
DSCP_CLEARED: Final = "ip dscp set 0\n"
CLOSED: Final = "udp dport 7001 drop\n"
HALF_LOST: Final = "udp dport 7001 numgen inc mod 2 == 0 drop\n"


def configuration(address: str, host: str, *, udp: int = 0, tcp: int = 0) -> Config:
    return resolved(
        parse(
            f'[daemon]\nhost = "{host}"\ncontrol_address = "{address}"\ncontrol_port = {tcp}\n'
            f'[network]\npaths = [{{ address = "{address}", port = {udp} }}]',
            "x",
        )
    )


@contextmanager
def serving(listener: ProbeListener) -> Iterator[ProbeListener]:
    """Its sockets are of the namespace in which it was made."""
    over = threading.Event()
    thread = threading.Thread(target=listener.serve, args=(PATIENCE, over.is_set))
    thread.start()
    try:
        yield listener
    finally:
        over.set()
        thread.join()
        listener.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where everything is answered, being patient costs nothing on a quiet machine."""
    monkeypatch.setattr(peer, "FIRST", PATIENCE)
    monkeypatch.setattr(peer, "LEAST_PATIENCE", PATIENCE)


def found(config: Config, listener: ProbeListener) -> dict[str, Row]:
    """Rows about it, by what they are about."""
    return {row.check: row for row in peer.peer_rows(config, *listener.address)}


@pytest.mark.usefixtures("patient")
def test_over_loopback_everything_passes() -> None:
    with serving(ProbeListener(configuration("127.0.0.1", "beta"), 0)) as listener:
        rows = found(configuration("127.0.0.1", "alpha"), listener)
    assert {row.verdict for row in rows.values()} == {Verdict.PASS}, rows
    assert set(rows) == {
        "beta: version",
        "beta: settings",
        "beta: control port",
        "beta, path 0: UDP",
        "beta: clock",
        "beta, path 0: MTU",
        "beta, path 0: DSCP, ECN",
        "beta, path 0: losses",
        "beta, path 0: routes",
    }
    assert "9000 B pass there and back" in rows["beta, path 0: MTU"].found


def test_a_port_that_a_daemon_holds_is_said_to_be() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        config = configuration("127.0.0.1", "beta", udp=port)
        with serving(ProbeListener(config, 0)) as listener:
            [_, data] = listener.ends
    assert data.held and data.port != port


def test_a_token_is_good_while_the_connection_lasts() -> None:
    with serving(ProbeListener(configuration("127.0.0.1", "beta"), 0)) as listener:
        [_, data] = listener.ends
        line = socket.create_connection(listener.address)
        greeting = Greeting.unpack_untrusted(line.recv(1 << 16))
        prober = Prober("127.0.0.1", (data.address, data.port), greeting.token)
        stranger = Prober("127.0.0.1", (data.address, data.port), bytes(TOKEN))
        assert ask([(stranger, Wish())], 0.05, tries=1) == {}
        assert len(ask([(prober, Wish())], PATIENCE, tries=1)) == 1
        line.close()
        until = time.monotonic() + PATIENCE
        while ask([(prober, Wish())], 0.05, tries=1):
            assert time.monotonic() < until, "the listener has not heard the end"
        prober.close()
        stranger.close()


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        config = configuration("127.0.0.1", "alpha", tcp=port)
        first, control = peer.peer_rows(config, "127.0.0.1", port)
    assert first.verdict is Verdict.FAIL and "no process listens" in first.found
    assert f"dlcpctl doctor --listen --port {port}" in first.fix
    assert control.verdict is Verdict.FAIL and f"TCP port {port}" in control.found


def test_another_program_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak() -> None:
            line, _ = other.accept()
            with line:
                line.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        rows = peer.peer_rows(configuration("127.0.0.1", "a"), *other.getsockname())
        [row] = rows
        thread.join()
    assert row.verdict is Verdict.FAIL and "not from `dlcpctl doctor --listen`" in row.found


def test_hosts_that_differ_are_told_apart() -> None:
    end = End(-1, "10.0.0.2", 7000, held=False)
    greeting = Greeting("0.0.9", "beta", bytes(TOKEN), {"chunk_bytes": 1, "checksum": 1}, end, ())
    version, settings = reach.judge_greeting(greeting, "b", {"chunk_bytes": 2, "checksum": 1})
    assert version.verdict is Verdict.WARN and f"0.0.9 there, {__version__} here" in version.found
    assert settings.verdict is Verdict.FAIL
    assert settings.found == "chunk_bytes is 1 there and 2 here"
    assert reach.judge_control(greeting, "Connection refused").verdict is Verdict.FAIL
    assert reach.judge_control(greeting, "").verdict is Verdict.PASS


def test_ports_of_a_path_share_a_row() -> None:
    ends = [End(0, "10.0.0.2", port, held=port == 7101) for port in (7100, 7101, 7102, 7105)]
    fine = [reach.Tried(end, answered=True, refused=False) for end in ends]
    row = reach.judge_reach("beta", 0, fine)
    assert row.verdict is Verdict.PASS
    assert row.found.startswith("UDP 10.0.0.2 ports 7100-7102,7105 answer (a daemon has")
    row = reach.judge_reach("beta", 0, [*fine[:3], fine[3]._replace(answered=False)])
    assert row.verdict is Verdict.FAIL
    assert row.found == "UDP 10.0.0.2 port 7105: no answer to 3 datagrams"
    assert "udp dport { 7105 } accept" in row.fix


@pytest.mark.parametrize(
    ("wall", "verdict"), [(100.0, Verdict.PASS), (101.2, Verdict.PASS), (103.0, Verdict.WARN)]
)
def test_clocks(wall: float, verdict: Verdict) -> None:
    """Asked at 99.5 and answered at 100.5 of our own clock."""
    answer = ProbeAnswer(bytes(TOKEN), 1, 0, 40, 1, int(wall * 1e6))
    reply = Reply(answer, 0, sent_at=9.5, arrived_at=10.5)
    assert reach.judge_offset("beta", reply, wall_at_zero=90.0).verdict is verdict


@contextmanager
def spoilt(net: Network, rule: str) -> Iterator[None]:
    """A rule for what the router forwards."""
    if rule:
        text = f"table inet t {{ chain f {{ type filter hook forward priority 0;\n{rule}}}\n}}\n"
        run(*net.inside("r", "nft", "-f", "-"), stdin=text)
    yield
    if rule:
        run(*net.inside("r", "nft", "delete", "table", "inet", "t"))


def between(net: Network, rule: str = "") -> dict[str, Row]:
    """What host a finds of host b."""
    with net.entered("b"):
        listener = ProbeListener(configuration(net.addresses["b"], "beta", udp=7001, tcp=7000), 0)
    with serving(listener), spoilt(net, rule), net.entered("a"):
        return found(configuration(net.addresses["a"], "alpha"), listener)


@pytest.mark.netns
@pytest.mark.usefixtures("patient")
def test_a_good_network_passes_and_cleared_marks_are_named() -> None:
    with network(1500, 1500) as net:
        clean = between(net)
        assert {row.verdict for row in clean.values()} == {Verdict.PASS}, clean
        assert "1500 B pass there and back" in clean["beta, path 0: MTU"].found
        assert "take one route (10.9.0.2)" in clean["beta, path 0: routes"].found

        marks = between(net, DSCP_CLEARED)["beta, path 0: DSCP, ECN"]
        assert marks.verdict is Verdict.WARN
        assert "DSCP is cleared on the way there" in marks.found and "ECN" not in marks.found


@pytest.mark.netns
def test_what_does_not_pass_is_named() -> None:
    with network(1500, 1500) as net:
        closed = between(net, CLOSED)
        assert closed["beta, path 0: UDP"].verdict is Verdict.FAIL
        assert "UDP 10.9.1.1 port 7001: no answer" in closed["beta, path 0: UDP"].found
        assert closed["beta: control port"].verdict is Verdict.PASS
        assert "beta, path 0: MTU" not in closed

        net.set_router_mtu(1400)
        narrow = between(net)["beta, path 0: MTU"]
        assert narrow.verdict is Verdict.WARN
        assert narrow.found.startswith("1400 B pass, and this host's interface has 1500")

        lossy = between(net, HALF_LOST)["beta, path 0: losses"]
        assert lossy.verdict is Verdict.FAIL


@pytest.mark.netns
@pytest.mark.usefixtures("patient")
def test_ipv6() -> None:
    with network(1400, 1400, v6=True) as net:
        rows = between(net)
    assert {row.verdict for row in rows.values()} == {Verdict.PASS}, rows
    assert "1400 B pass there and back" in rows["beta, path 0: MTU"].found

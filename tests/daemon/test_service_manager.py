"""What a service manager and a daemon tell each other; systemd itself is in tests/deploy."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.activation import FIRST, activated
from dlcpd.daemon.config.reload import LIVE, reloaded
from dlcpd.daemon.config.tables import Config, DaemonTable, NetworkTable, PlannerTable
from dlcpd.daemon.notify import for_children, watchdog_limit
from dlcpd.daemon.process_usage import runs
from tests.attack.resources import without_descriptors
from tests.daemon.kit import PATIENCE, Client, Daemon, configuration, join_all, until

# --- signs of life ---------------------------------------------------------------------------


class Manager:
    """The receiving end of sd_notify."""

    def __init__(self, folder: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(folder / "notify"))
        self.sock.settimeout(PATIENCE)
        self.environ = {"NOTIFY_SOCKET": str(folder / "notify")}

    def hears(self) -> str:
        """The first line of the next message."""
        return self.sock.recv(200).decode().partition("\n")[0]

    def heard(self) -> list[str]:
        """All that is there already."""
        found = []
        self.sock.setblocking(False)
        try:
            while True:
                found.append(self.hears())
        except BlockingIOError:
            self.sock.settimeout(PATIENCE)
            return found


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path)
    yield made
    made.sock.close()


def test_a_manager_hears_of_start_and_stop(tmp_path: Path, manager: Manager) -> None:
    with Daemon(configuration(tmp_path), environ=manager.environ) as daemon:
        assert manager.hears() == "READY=1"
        daemon.signal(signal.SIGTERM)
        stop = manager.sock.recv(200).decode()
        assert stop == "STOPPING=1\nEXTEND_TIMEOUT_USEC=10000000", "no session: nothing to drain"
        assert daemon.wait() == 0


def test_a_watchdog_hears_signs_of_life(tmp_path: Path, manager: Manager) -> None:
    environ = manager.environ | {"WATCHDOG_USEC": "2000000"}
    with Daemon(configuration(tmp_path), environ=environ):
        assert [manager.hears() for _ in range(3)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]


def test_a_watchdog_hears_nothing_of_an_engine_that_does_not_answer(
    tmp_path: Path, manager: Manager
) -> None:
    environ = manager.environ | {"WATCHDOG_USEC": "2000000"}
    with Daemon(configuration(tmp_path), mode="deaf", environ=environ) as daemon:
        until(lambda: daemon.text.count("engine_silent") >= 4, "the limit is over")
        assert manager.heard() == ["READY=1"]
        with daemon.client() as client:
            until(lambda: not client.health().healthy, "the daemon is not healthy")
            assert "answered for" in client.health().text


def test_a_watchdog_hears_a_daemon_that_has_no_descriptor_left(
    tmp_path: Path, manager: Manager
) -> None:
    environ = manager.environ | {"WATCHDOG_USEC": "2000000"}
    with Daemon(configuration(tmp_path), environ=environ) as daemon:
        assert manager.hears() == "READY=1"
        with without_descriptors(daemon.process.pid):
            manager.heard()
            assert [manager.hears() for _ in range(3)] == ["WATCHDOG=1"] * 3


def test_an_engine_that_sleeps_is_not_woken_and_one_that_is_stopped_is_found(
    tmp_path: Path, manager: Manager
) -> None:
    environ = manager.environ | {"WATCHDOG_USEC": "2000000"}
    with Daemon(configuration(tmp_path), mode="", environ=environ) as daemon:
        engine, asleep = daemon.engine_pid, 0
        while asleep < 4:  # signs of life in a row, which it did not wake up for
            before = runs(engine)
            assert before and manager.hears() in ("READY=1", "WATCHDOG=1")
            asleep = asleep + 1 if runs(engine) == before else 0
        os.kill(engine, signal.SIGSTOP)
        try:
            until(lambda: daemon.text.count("engine_silent") >= 4, "the limit is over")
            with daemon.client() as client:
                until(lambda: not client.health().healthy, "the daemon is not healthy")
        finally:
            os.kill(engine, signal.SIGCONT)


@pytest.mark.parametrize("handed", [False, True], ids=["own", "of_the_manager"])
def test_a_daemon_whose_socket_was_removed_is_healthy_and_not_ready(
    handed: bool, tmp_path: Path, manager: Manager
) -> None:
    """As by a mount over /run: no client can connect, and running jobs go on."""
    environ = manager.environ | {"WATCHDOG_USEC": "2000000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        fds: tuple[int, ...] = ()
        if handed:
            listener.bind(str(tmp_path / "host-a.sock"))
            listener.listen()
            fds = (listener.fileno(),)
            environ |= {"HAND_OVER": str(listener.fileno())}
        with Daemon(configuration(tmp_path), environ=environ, pass_fds=fds) as daemon:
            with daemon.client() as client:
                assert client.health().ready
                daemon.socket.rename(tmp_path / "away")
                assert daemon.wait_for("socket_gone")["level"] == "error"
                health = client.health()
                assert health.healthy and not health.ready
                assert f"{daemon.socket} was removed or replaced" in health.text
                (tmp_path / "away").rename(daemon.socket)
                until(lambda: client.health().ready, "it is back")
            assert daemon.text.count("socket_gone") == 1


@pytest.mark.parametrize(
    ("environ", "limit"),
    [({"WATCHDOG_USEC": "30000000"}, 30.0),
     ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
     ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, 0.0),
     ({"WATCHDOG_USEC": "soon"}, 0.0), ({}, 0.0)],
    ids=["any", "this", "another", "no_number", "none"],
)  # fmt: skip
def test_a_watchdog_is_of_one_process(environ: dict[str, str], limit: float) -> None:
    assert watchdog_limit(environ, pid=7) == limit


def test_engines_do_not_know_of_the_manager() -> None:
    told = dict.fromkeys(
        ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"), "1"
    )
    assert for_children(told | {"PATH": "/bin"}) == {"PATH": "/bin"}


# --- socket activation -----------------------------------------------------------------------


@pytest.fixture
def door(tmp_path: Path) -> Iterator[socket.socket]:
    """A session socket that listens, as a manager makes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(tmp_path / "host-a.sock"))
        sock.listen()
        yield sock


def start(folder: Path, door: socket.socket, daemon: str = "") -> Daemon:
    number = door.fileno()
    return Daemon(
        configuration(folder, daemon=daemon), environ={"HAND_OVER": str(number)}, pass_fds=(number,)
    )


def test_who_connects_between_two_daemons_is_served_by_the_second(
    tmp_path: Path, door: socket.socket
) -> None:
    with start(tmp_path, door) as first:
        with first.client() as client:
            client.greet()
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
    assert first.socket.exists(), "the file is the manager's"
    with Client.connect(first.socket) as waiting, start(tmp_path, door):
        waiting.greet()


def test_who_connects_while_a_daemon_drains_waits_for_the_next(
    tmp_path: Path, door: socket.socket
) -> None:
    first = start(tmp_path, door, daemon="drain_timeout = 3600.0")
    with first, first.client() as a, first.client() as b:
        join_all([a, b], "job")
        first.signal(signal.SIGTERM)
        assert a.command("Stop")["drain"] == 3600.0
        waiting = Client.connect(first.socket)
        a.emit("Finish")
        assert first.wait() == 0
    with waiting, start(tmp_path, door):
        waiting.greet()


def test_the_log_names_the_socket_that_was_handed_over(tmp_path: Path, door: socket.socket) -> None:
    with start(tmp_path, door) as daemon:
        assert daemon.wait_for("ready")["session"] == door.getsockname()


def take(descriptor: int) -> socket.socket:
    raise AssertionError(descriptor)


@pytest.mark.parametrize(
    "environ",
    [{}, {"LISTEN_FDS": "1"}, {"LISTEN_FDS": "1", "LISTEN_PID": "8"}, {"LISTEN_PID": "7"}],
    ids=["nothing", "no_process", "another", "no_socket"],
)
def test_what_was_handed_to_another_process_is_not_taken(environ: dict[str, str]) -> None:
    assert activated(environ, 7, take) is None


def test_the_first_descriptor_is_taken_and_several_are_refused() -> None:
    asked: list[int] = []

    def note(descriptor: int) -> socket.socket:
        asked.append(descriptor)
        return socket.socket()

    handed = activated({"LISTEN_FDS": "1", "LISTEN_PID": "7"}, 7, note)
    assert handed and asked == [FIRST]
    handed.close()
    with pytest.raises(BadConfig, match="LISTEN_FDS=2: a daemon has one session socket"):
        activated({"LISTEN_FDS": "2", "LISTEN_PID": "7"}, 7, take)


# --- another configuration -------------------------------------------------------------------


def test_what_is_live_changes_and_all_else_waits_by_name() -> None:
    old = Config(network=NetworkTable(engines=1))
    new = Config(
        daemon=DaemonTable(log_level="debug", drain_timeout=1.0, max_sessions=5),
        network=NetworkTable(engines=2),
        planner=PlannerTable("/etc/dlcpd/topology.toml"),
    )
    found = reloaded(old, new)
    assert found.changed == ("daemon.drain_timeout", "daemon.log_level", "planner.topology")
    assert found.waiting == ("daemon.max_sessions", "network.engines")
    expected = replace(old.daemon, log_level="debug", drain_timeout=1.0)
    assert found.config == replace(old, daemon=expected, planner=new.planner)
    assert set(LIVE) <= {name for name in DaemonTable.__slots__}


@pytest.fixture
def rewrite(tmp_path: Path) -> Callable[[str], None]:
    def rewrite(daemon: str) -> None:
        configuration(tmp_path, daemon=daemon)

    return rewrite


def test_a_reload_admits_other_users_and_says_what_waits(
    tmp_path: Path, manager: Manager, rewrite: Callable[[str], None]
) -> None:
    with Daemon(configuration(tmp_path), environ=manager.environ) as daemon:
        assert daemon.socket.stat().st_mode & 0o777 == 0o660
        assert manager.hears() == "READY=1"
        rewrite('allowed_users = ["*"]\nmax_sessions = 3')
        daemon.signal(signal.SIGHUP)
        assert daemon.wait_for("reloaded")["changed"] == "daemon.allowed_users"
        assert daemon.wait_for("reload_incomplete")["keys"] == "daemon.max_sessions"
        assert [manager.hears(), manager.hears()] == ["RELOADING=1", "READY=1"]
        rewrite("allowed_users = [12345]\nmax_sessions = 3")
        daemon.signal(signal.SIGHUP)
        until(lambda: daemon.text.count('"reloaded"') == 2, "the second reload")
        assert daemon.socket.stat().st_mode & 0o777 == 0o666, "the list decides, not the mode"


def test_a_signal_to_a_daemon_that_starts_is_carried_out_once_it_is_ready(
    tmp_path: Path, manager: Manager
) -> None:
    daemon = Daemon(configuration(tmp_path), environ=manager.environ)
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
    until(children.read_text, "the engine is starting, and the signal has a handler")
    for _ in range(3):
        daemon.signal(signal.SIGHUP)
    with daemon:  # which looks for bugs at its end
        daemon.wait_for("reloaded")
        assert [manager.hears() for _ in range(3)] == ["READY=1", "RELOADING=1", "READY=1"]


def test_a_signal_before_an_engine_is_ready_is_no_bug(tmp_path: Path, manager: Manager) -> None:
    daemon = Daemon(configuration(tmp_path), mode="silent", environ=manager.environ)
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
    until(children.read_text, "the engine is starting, and the signal has a handler")
    daemon.signal(signal.SIGHUP)
    daemon.signal(signal.SIGTERM)
    daemon.wait_for("signal")
    assert manager.heard() == []
    daemon.__exit__()  # looks for bugs


def test_a_signal_to_a_daemon_that_ends_changes_nothing(
    tmp_path: Path, manager: Manager, rewrite: Callable[[str], None]
) -> None:
    drain = "drain_timeout = 3600.0"
    with (
        Daemon(configuration(tmp_path, daemon=drain), environ=manager.environ) as daemon,
        daemon.client() as one,
        daemon.client() as two,
    ):
        join_all([one, two], "train")
        daemon.signal(signal.SIGTERM)
        one.command("Stop")
        rewrite("max_sessions = 3")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("reload_ignored")
        assert manager.heard() == ["READY=1", "STOPPING=1"]
        assert one.status()["pending"] == []
        one.emit("Finish")
        assert daemon.wait() == 0


def test_a_reload_with_a_mistake_changes_nothing(
    tmp_path: Path, manager: Manager, rewrite: Callable[[str], None]
) -> None:
    with Daemon(configuration(tmp_path), environ=manager.environ) as daemon:
        assert manager.hears() == "READY=1"
        rewrite('allowed_users = ["nobody-at-all"]\nlog_level = "error"')
        daemon.signal(signal.SIGHUP)
        refused = daemon.wait_for("reload_refused")
        assert refused["code"] == "bad_config"
        with daemon.client() as client:
            client.greet()
        assert [manager.hears(), manager.hears()] == ["RELOADING=1", "READY=1"]

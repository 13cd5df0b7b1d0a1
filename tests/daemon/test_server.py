"""Who may listen on the session socket's path, and who may connect."""

import os
import resource
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from dlcpd.contract.errors import AddressUnavailable, BadConfig
from dlcpd.contract.messages import VERSION, Hello
from dlcpd.daemon.clients.access import Access
from dlcpd.daemon.clients.server import HELLO_TIMEOUT, MAX_SILENT, SPARE_CONNECTIONS, listen
from tests.daemon.kit import PATIENCE, Client, Daemon, configuration, environment, until

NOBODY = 65534
GROUP = 12345  # of which nobody is a member
OWN = Access.configured(())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.sock"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Where strangers get through: pytest keeps its own folders closed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def listening(path: Path) -> Iterator[socket.socket]:
    with listen(path, OWN) as sock:
        yield sock


def test_the_socket_is_for_owner_and_group(listening: socket.socket, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_the_umask_is_left_as_it_was(listening: socket.socket) -> None:
    before = os.umask(0o022)
    os.umask(before)
    assert before != 0o117


def test_a_stale_socket_is_replaced(path: Path) -> None:
    listen(path, OWN).close()
    assert path.exists()
    listen(path, OWN).close()


def test_a_socket_that_answers_is_left_alone(listening: socket.socket, path: Path) -> None:
    with pytest.raises(AddressUnavailable, match="another daemon answers"):
        listen(path, OWN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(path))


def test_a_socket_of_another_kind_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(AddressUnavailable, match="in use"):
            listen(path, OWN)
        assert path.exists()


def test_a_file_in_the_way_is_left_alone(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(AddressUnavailable, match="a file is in the way"):
        listen(path, OWN)
    assert path.read_text() == "precious"


@pytest.mark.parametrize("name", ["", "folder"])
def test_a_directory_is_not_to_be_removed_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(AddressUnavailable, match="is a directory; give the path of a file in it"):
        listen(Path(name), OWN)
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]


def test_a_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    """As /run/dlcpd is after each start of the host."""
    listen(tmp_path / "missing" / "s.sock", OWN).close()
    assert stat.S_IMODE((tmp_path / "missing").stat().st_mode) == 0o755


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        AddressUnavailable, match=r"its directory is not there .*install -d -o .*deep.*socket="
    ):
        listen(tmp_path / "missing" / "deep" / "s.sock", OWN)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_who_may_not_make_the_directory_is_told(open_folder: Path) -> None:
    os.seteuid(NOBODY)
    try:
        with pytest.raises(AddressUnavailable, match=r"Permission denied; make it for user id"):
            listen(open_folder / "missing" / "s.sock", OWN)
    finally:
        os.seteuid(0)


def test_a_path_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(AddressUnavailable, match="too long"):
        listen(tmp_path / ("x" * 120), OWN)


def test_users_are_ids_names_or_anyone() -> None:
    assert Access.configured(()) == Access(frozenset({0, os.getuid()}), -1, 0o660)
    assert Access.configured((1234,)) == Access(frozenset({0, 1234}), -1, 0o666)
    assert Access.configured(("root", "nobody")).users == frozenset({0, NOBODY})
    assert Access.configured(("root", "*")) == Access(None, -1, 0o660)
    with pytest.raises(BadConfig, match="no user 'nobody-at-all'"):
        Access.configured(("nobody-at-all",))


def test_a_group_admits_its_members_or_those_listed() -> None:
    assert Access.configured((), "root") == Access(None, 0, 0o660)
    assert Access.configured((), 77) == Access(None, 77, 0o660)
    assert Access.configured((5,), 77) == Access(frozenset({0, 5}), 77, 0o660)
    with pytest.raises(BadConfig, match="no group 'nobody-at-all'"):
        Access.configured((), "nobody-at-all")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_group_that_may_not_be_given_is_named(open_folder: Path) -> None:
    path = open_folder / "s.sock"
    open_folder.chmod(0o1777)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(BadConfig, match=r"socket_group: user id .* may not give"):
            listen(path, Access.configured((), GROUP))
    finally:
        os.seteuid(0)
    assert not path.exists()


STRANGERS = """
import os, sys
from pathlib import Path
from dlcpd.contract.messages import VERSION, Hello
from tests.daemon.kit import Client
os.setgroups([int(g) for g in sys.argv[2].split(",") if g])
os.setgid(65534)
os.setuid(65534)
try:
    client = Client.connect(Path(sys.argv[1]))
except PermissionError:
    print("PermissionError")
else:
    client.send(Hello(VERSION, "stranger"))
    print(type(client.receive()).__name__)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(
    ("settings", "groups", "outcome"),
    [
        ("", "", "PermissionError"),
        ("allowed_users = ['nobody']", "", "Welcome"),
        ("allowed_users = [1234]", "", "Refused"),
        ("allowed_users = ['*']", "", "PermissionError"),
        (f"socket_group = {GROUP}", "", "PermissionError"),
        (f"socket_group = {GROUP}", str(GROUP), "Welcome"),
        (f"socket_group = {GROUP}\nallowed_users = [1234]", str(GROUP), "Refused"),
    ],
)
def test_another_user_is_admitted_by_configuration_only(
    open_folder: Path, settings: str, groups: str, outcome: str
) -> None:
    """A daemon of root, and a process of `nobody` with these groups beside its own."""
    with Daemon(configuration(open_folder, daemon=settings)) as daemon:
        stranger = subprocess.run(
            [sys.executable, "-c", STRANGERS, str(daemon.socket), groups],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert stranger.stdout.split() == [outcome], stranger.stderr
        wanted = 0o666 if "[" in settings and "*" not in settings and not groups else 0o660
        assert stat.S_IMODE(daemon.socket.stat().st_mode) == wanted


def test_a_client_beyond_the_limit_is_told_and_the_next_place_is_free(tmp_path: Path) -> None:
    most = 1 + SPARE_CONNECTIONS
    with Daemon(configuration(tmp_path, daemon="max_sessions = 1")) as daemon:
        clients = [daemon.client() for _ in range(most)]
        for client in clients:
            client.greet()
        with daemon.client() as late:
            assert str(most) in late.refused("too_many")
            assert late.receive() is None
        clients.pop().close()

        def admitted() -> bool:
            with daemon.client() as again, suppress(ConnectionError):  # turned away meanwhile
                again.sock.send(b"\xc0")
                message = again.receive()
                return getattr(message, "code", "") == "bad_message"
            return False

        until(admitted, "a free place is given away")
        for client in clients:
            client.close()


def test_however_many_are_turned_away_at_once_each_reads_why(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path, daemon="max_sessions = 1")) as daemon, ExitStack() as open_:
        for _ in range(1 + SPARE_CONNECTIONS):
            open_.enter_context(daemon.client()).greet()
        late = []
        for _ in range(SPARE_CONNECTIONS + 8):
            late.append(open_.enter_context(daemon.client()))
            late[-1].send(Hello(VERSION, "late"))
        for client in late:
            client.refused("too_many")


def test_who_says_nothing_makes_room_for_the_next_and_is_told(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        silent = [daemon.client() for _ in range(MAX_SILENT)]
        with daemon.client() as client:
            client.greet()
            silent[0].refused("too_many")
            assert silent[0].receive() is None
            for other in silent:
                other.close()
            assert client.counters() == {"refused_too_many": 1}


def test_who_says_nothing_for_long_is_hung_up_on(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon, daemon.client() as client:
        client.greet()
        with daemon.client() as silent:
            assert f"{HELLO_TIMEOUT:g} s" in silent.refused("session_closed")
            assert silent.receive() is None
        assert client.status()["sessions"] == [], "who has greeted may wait"


NOBODY_GREETS = """
import os, sys
from pathlib import Path
from tests.daemon.kit import Client
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
clients = [Client.connect(Path(sys.argv[1])) for _ in range(int(sys.argv[2]))]
for client in clients:
    client.greet()
print("greeted", flush=True)
clients[0].refused("too_many")
assert clients[0].receive() is None
for client in clients[1:]:
    client.status()
print("served", flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_user_who_takes_every_place_makes_room_for_another_user(open_folder: Path) -> None:
    settings = "allowed_users = ['nobody']\nmax_sessions = 1"
    places = 1 + SPARE_CONNECTIONS
    with Daemon(configuration(open_folder, daemon=settings)) as daemon:
        command = [sys.executable, "-c", NOBODY_GREETS, str(daemon.socket), str(places)]
        with subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE, text=True
        ) as nobody:
            assert nobody.stdout
            assert nobody.stdout.readline() == "greeted\n"
            with daemon.client() as client:
                client.greet()
                assert nobody.stdout.read() == "served\n"


def test_out_of_descriptors_clients_wait_and_the_daemon_does_not_spin(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        low = (daemon.descriptors, hard)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, low)
        with daemon.client() as client:
            daemon.wait_for("accept_failed")
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
            client.greet()
        failures = [event for event in daemon.events if event["event"] == "accept_failed"]
        assert len(failures) <= 2


def test_out_of_descriptors_peers_wait_and_the_daemon_does_not_spin(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        address, _, port = daemon.wait_for("ready")["control"].removeprefix("tcp://").partition(":")
        _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        low = (daemon.descriptors, hard)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, low)
        with socket.create_connection((address, int(port)), PATIENCE) as peer:
            daemon.wait_for("peer_accept_failed")
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
            assert peer.recv(1) == b"\xff"
        failures = [event for event in daemon.events if event["event"] == "peer_accept_failed"]
        assert len(failures) <= 2


def test_a_client_that_does_not_read_is_cut_off_and_others_go_on(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon, daemon.client() as other:
        other.greet()
        with daemon.client() as deaf:
            deaf.greet()
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                flood(deaf)
        left = daemon.wait_for("client_left")
        assert "does not read" in left["text"] or "cannot be written" in left["text"]
        assert other.status()["sessions"] == []


def flood(client: Client) -> None:
    while True:
        client.sock.send(b"\xc0")


def test_a_connection_that_says_nothing_costs_nothing(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        Client.connect(daemon.socket).close()
        daemon.wait_for("client_left", code="session_closed")

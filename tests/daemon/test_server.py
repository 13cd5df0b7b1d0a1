"""Who may listen on the session socket's path, and who may connect."""

import os
import resource
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcpd.contract.errors import AddressUnavailable, BadConfig
from dlcpd.contract.messages import VERSION, Hello, Message, Refused, Welcome
from dlcpd.daemon.server import SPARE_CONNECTIONS, allowed_ids, listen
from tests.daemon.kit import Client, Daemon, configuration, until

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.sock"


@pytest.fixture
def listening(path: Path) -> Iterator[socket.socket]:
    with listen(path) as sock:
        yield sock


def test_the_socket_is_for_owner_and_group(listening: socket.socket, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_the_umask_is_left_as_it_was(listening: socket.socket) -> None:
    before = os.umask(0o022)
    os.umask(before)
    assert before != 0o117


def test_a_stale_socket_is_replaced(path: Path) -> None:
    listen(path).close()
    assert path.exists()
    listen(path).close()


def test_a_socket_that_answers_is_left_alone(listening: socket.socket, path: Path) -> None:
    with pytest.raises(AddressUnavailable, match="another daemon answers"):
        listen(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(path))


def test_a_socket_of_another_kind_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(AddressUnavailable, match="in use"):
            listen(path)
        assert path.exists()


def test_a_file_in_the_way_is_left_alone(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(AddressUnavailable, match="a file is in the way"):
        listen(path)
    assert path.read_text() == "precious"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(AddressUnavailable, match="directory must exist"):
        listen(tmp_path / "missing" / "s.sock")


def test_a_path_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(AddressUnavailable, match="too long"):
        listen(tmp_path / ("x" * 120))


def test_users_are_ids_names_or_anyone() -> None:
    assert allowed_ids(()) == frozenset({0, os.getuid()})
    assert allowed_ids((1234,)) == frozenset({0, 1234})
    assert allowed_ids(("root", "nobody")) == frozenset({0, NOBODY})
    assert allowed_ids(("root", "*")) is None
    with pytest.raises(BadConfig, match="no user 'nobody-at-all'"):
        allowed_ids(("nobody-at-all",))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(
    ("allowed", "answer"),
    [("", Refused), ("allowed_users = ['nobody']", Welcome), ("allowed_users = ['*']", Welcome)],
)
def test_another_user_is_admitted_by_configuration_only(
    tmp_path: Path, allowed: str, answer: type[Message]
) -> None:
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o011)  # the stranger may reach the socket ...
    with Daemon(configuration(tmp_path, daemon=allowed)) as daemon:
        daemon.socket.chmod(0o666)  # ... and the file mode does not stop it
        os.seteuid(NOBODY)
        try:
            client = daemon.client()
        finally:
            os.seteuid(0)
        with client:
            client.send(Hello(VERSION, "stranger"))
            assert isinstance(client.receive(), answer)
            if answer is Refused:
                assert client.receive() is None


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
            with daemon.client() as again:
                again.sock.send(b"\xc0")
                message = again.receive()
                return getattr(message, "code", "") == "bad_message"

        until(admitted, "a free place is given away")
        for client in clients:
            client.close()


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

"""Ranks of one machine share a private daemon; what they exchange stays in its memory."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from dlcp_client import connect, exact
from dlcp_client.ipc.embedded import start
from dlcp_client.ipc.private_socket import PrivateSocket
from dlcp_client.job.host_peers import HostPeers, machine
from dlcpd.contract.errors import (
    BadMessage,
    DaemonLost,
    DaemonUnavailable,
    DlcpError,
    PeerLost,
)
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import VERSION, Hello, Refused
from tests.client import ddp_ranks, group_ranks
from tests.client.ddp_ranks import group
from tests.client.real import TIMEOUT, WORLD, connected, each_rank, kill, reduce_all
from tests.client.test_ddp import on_each_rank
from tests.client.test_engines import paths_of


@pytest.fixture(autouse=True)
def sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "1")


def ends(pid: int | None) -> bool:
    """Whether a process ends by itself."""
    assert pid is not None
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return True
    gone, _ = psutil.wait_procs([process], timeout=30)
    return bool(gone)


# --- who shares with whom ------------------------------------------------------------------


def told(*machines: str) -> list[dict[str, Any]]:
    return [{"machine": m, "socket_path": f"socket {rank}"} for rank, m in enumerate(machines)]


def test_the_first_rank_of_each_machine_starts_its_daemon() -> None:
    said = told("a", "b", "a", "b", "")
    found = [HostPeers.among(rank, said) for rank in range(5)]
    assert [each.ranks for each in found] == [(0, 2), (1, 3), (0, 2), (1, 3), (4,)]
    assert [each.first for each in found] == [True, True, False, False, True]
    assert [each.socket_path for each in found] == [
        "socket 0",
        "socket 1",
        "socket 0",
        "socket 1",
        "socket 4",
    ]


def test_ranks_that_share_nothing_are_alone() -> None:
    assert [HostPeers.among(rank, told("", "")).ranks for rank in range(2)] == [(0,), (1,)]


def test_a_rank_stays_with_its_running_daemon_and_takes_others_in() -> None:
    said = told("a", "a", "b", "a", "")
    for rank in (1, 3, 4):
        said[rank]["running"] = True
    found = [HostPeers.among(rank, said) for rank in range(5)]
    assert [each.owner for each in found] == [1, 1, 2, 3, 4]
    assert [each.first for each in found] == [False, False, True, False, False]
    assert [each.running for each in found] == [True, True, False, True, True]


def test_an_older_rank_is_told_apart() -> None:
    with pytest.raises(BadMessage, match="run the same version"):
        HostPeers.among(0, [{"peer": []}, {"peer": []}])


def test_a_machine_is_a_kernel_a_network_a_user_and_a_configuration(tmp_path: Path) -> None:
    one, alike, other = (tmp_path / name for name in ("one", "alike", "other"))
    one.write_text("[network]\n")
    alike.write_text("[network]\n")
    other.write_text("[network]\nengines = 2\n")
    assert machine(None) == machine(None) != ""
    assert machine(one) == machine(alike)
    assert len({machine(None), machine(one), machine(other)}) == 3
    assert machine(tmp_path / "missing") == "", "its own daemon says what is wrong with it"


# --- one daemon ------------------------------------------------------------------------------


def test_neighbours_share_a_daemon_and_send_nothing() -> None:
    sessions = connected()
    first, second = sessions
    assert first.daemon_pid is not None and second.daemon_pid is None
    assert all((tensor == 3).all() for tensor in reduce_all(sessions))
    large = [torch.full((3_000_000,), rank + 1.0) for rank in range(WORLD)]
    works = [s.all_reduce(t) for s, t in zip(sessions, large, strict=True)]
    for work in works:
        work.wait()
    assert all((tensor == 3).all() for tensor in large)
    assert [path["sent"] for path in paths_of(first)] == [0] * len(paths_of(first))
    daemon = first.daemon_pid
    each_rank(lambda rank: sessions[rank].close())
    assert ends(daemon)


def test_with_configurations_of_their_own_they_do_not(tmp_path: Path) -> None:
    files = [tmp_path / f"{rank}.toml" for rank in range(WORLD)]
    for rank, file in enumerate(files):
        file.write_text(
            f'[daemon]\ncontrol_address = "127.0.0.1"\nmax_sessions = {rank + 1}\n'
            '[network]\npaths = [{ address = "127.0.0.1" }]\n'
        )
    sessions = connected(files)
    assert all(session.daemon_pid for session in sessions)
    assert all((tensor == 3).all() for tensor in reduce_all(sessions))
    for session in sessions:
        session.close()


def test_the_daemon_outlives_the_rank_that_started_it() -> None:
    first, second = sessions = connected()
    reduce_all(sessions)
    daemon = first.daemon_pid
    first.close()
    with pytest.raises(PeerLost, match="rank 0"):
        second.all_reduce(torch.ones(10), policy=exact(deadline=60.0)).wait()
    assert daemon is not None and psutil.pid_exists(daemon)
    second.close()
    assert ends(daemon)


def test_a_daemon_that_is_killed_is_told_to_each_of_its_ranks() -> None:
    sessions = connected()
    reduce_all(sessions)
    engines = psutil.Process(sessions[0].daemon_pid).children()
    kill(sessions[0].daemon_pid)
    assert all(ends(engine.pid) for engine in engines)
    found = each_rank(
        lambda rank: sessions[rank].all_reduce(torch.ones(10), policy=exact(deadline=60)).wait()
    )
    assert all(isinstance(error, DaemonLost) for error in found)
    assert "killed by SIGKILL" in str(found[0])
    assert "the daemon that rank 0 started for this machine ended" in str(found[1])
    for session in sessions:
        session.close()


def test_a_daemon_that_cannot_start_is_told_to_each_of_its_ranks(tmp_path: Path) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text("[daemon]\nhots = 'a'\n")
    with pytest.raises(DlcpError) as caught:
        connected(config=file, timeout=20.0)
    assert isinstance(caught.value, DaemonUnavailable)
    assert "hots" in str(caught.value)


def killed_leader(rank: int, store: str) -> list[str]:
    """Rank 0 starts the daemon and is killed; what rank 1 hears, and whether the daemon ends."""
    with group(rank, store, WORLD):
        session = connect(timeout=TIMEOUT)
        daemon = torch.tensor([session.daemon_pid or 0])
        dist.broadcast(daemon, 0)
        session.all_reduce(torch.ones(10)).wait()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            session.all_reduce(torch.ones(10), policy=exact(deadline=60)).wait()
        except PeerLost as exc:
            heard = str(exc)
        session.close()
        return [heard, str(ends(int(daemon)))]


def test_a_leader_that_is_killed_is_lost_to_the_others_by_name(tmp_path: Path) -> None:
    script = (
        "import sys; from tests.client.test_sharing import killed_leader\n"
        "print(killed_leader(int(sys.argv[1]), sys.argv[2]))"
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    out, _ = ranks[1].communicate(timeout=120)
    assert ranks[0].wait(30) == -signal.SIGKILL
    if ranks[0].stdout:
        ranks[0].stdout.close()
    assert "rank 0" in out and out.rstrip().endswith("'True']")


def test_training_equals_the_frameworks(tmp_path: Path) -> None:
    ranks = on_each_rank(ddp_ranks.exact_training, tmp_path, False)
    assert all(rank["apart"] < 1e-5 for rank in ranks)


def test_every_method_gives_what_gloo_gives(tmp_path: Path) -> None:
    assert on_each_rank(group_ranks.few_types, tmp_path, 3, False, world=3) == [[]] * 3


# --- the private socket ------------------------------------------------------------------------


def run_daemon(*arguments: str, pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dlcpd", *arguments]
    return subprocess.run(
        command, pass_fds=pass_fds, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_door_without_a_session_is_a_mistake() -> None:
    done = run_daemon("--listen-fd", "9")
    assert done.returncode == 2 and "--listen-fd needs --embedded" in done.stderr


def test_a_door_that_nobody_listens_on_is_a_mistake() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as deaf:
        fds = theirs.fileno(), deaf.fileno()
        arguments = ["--embedded", "--session-fd", str(fds[0]), "--listen-fd", str(fds[1])]
        done = run_daemon(*arguments, pass_fds=fds)
    assert done.returncode == 2 and f"--listen-fd {fds[1]}: Invalid argument" in done.stderr


def test_a_shared_daemon_without_clients_ends() -> None:
    with PrivateSocket() as private_socket:
        daemon, control = start(None, "localhost", private_socket, ranks=2)
        neighbour = HostPeers(1, (0, 1), 0, private_socket.name).connect(30.0)
    pid = daemon.pid
    control.hello(30.0)
    neighbour.hello(30.0)
    control.close()
    neighbour.close()
    daemon.close()
    assert ends(pid)


def hello_as(user: int, private_socket: str) -> bytes:
    """The answer to a Hello of a process of another user, or why it got none."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.setuid(user)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(30.0)
            try:
                sock.connect(private_socket)
                sock.send(encode(Hello(VERSION, "stranger")))
                os.write(theirs, sock.recv(1 << 16))
            except OSError as exc:
                os.write(theirs, repr(exc).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_nobody_else_comes_through_the_door(tmp_path: Path) -> None:
    """Though the configuration leaves it to the socket file's group. Other users do not reach the
    socket; where its folder lets them in, the daemon does not."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        f'[daemon]\ncontrol_address = "127.0.0.1"\nsocket_group = {os.getgid()}\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n'
    )
    with PrivateSocket() as private_socket:
        daemon, control = start(file, "", private_socket, ranks=2)
    control.hello(30.0)
    assert b"PermissionError" in hello_as(65534, private_socket.name)
    for file in (Path(private_socket.name), Path(private_socket.name).parent):
        file.chmod(0o777)
    answer = decode_untrusted(hello_as(65534, private_socket.name))
    assert isinstance(answer, Refused) and answer.code == "not_permitted"
    control.close()
    daemon.close()

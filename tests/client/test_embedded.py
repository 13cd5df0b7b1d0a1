"""The private daemon: where it binds, how it starts, and what is known when it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import connect, exact
from dlcp_client.environment import Environment
from dlcp_client.ipc.embedded import Embedded, default_config, local_address, start
from dlcp_client.job.host_peers import machine
from dlcpd.contract.errors import BadConfig, DaemonUnavailable, DlcpError
from dlcpd.ipc.socket_folder import SocketFolder
from tests.client.real import connected, reduce_all
from tests.descriptors import open_descriptors

pytestmark = pytest.mark.processes


def fake_names(monkeypatch: pytest.MonkeyPatch, table: dict[str, str]) -> None:
    real = socket.getaddrinfo

    def lookup(host: str, *args: int, **more: int) -> object:
        return real(table.get(host, host), *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.mark.parametrize(
    ("master", "address"),
    [
        ("", "auto"),
        ("localhost", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("no-such-host.invalid", "auto"),
        ("trainer-0", "auto"),  # this host's own name, on loopback: other hosts cannot use that
    ],
)
def test_the_address_towards_the_master(
    monkeypatch: pytest.MonkeyPatch, master: str, address: str
) -> None:
    fake_names(monkeypatch, {"trainer-0": "127.0.1.1"})
    assert local_address(master) == address


def test_an_address_of_this_host_is_itself() -> None:
    own = [
        each.address
        for entries in psutil.net_if_addrs().values()
        for each in entries
        if each.family == socket.AF_INET
    ]
    for address in own:
        assert local_address(address) == address


@pytest.mark.parametrize("address", ["auto", "192.0.2.7", "2001:db8::1"])
def test_the_default_configuration_is_toml(address: str) -> None:
    text = tomllib.loads(default_config(address))
    assert text["daemon"]["control_address"] == address
    assert text["network"]["paths"] == [{"address": address, "port": 0}]


def test_the_environment_is_read_once_for_all() -> None:
    assert Environment.read({}) == Environment()
    full = {
        "DLCPD_SOCKET": "/s",
        "DLCPD_CONFIG": "/c",
        "MASTER_ADDR": "m",
        "TORCHELASTIC_RUN_ID": "r",
        "DLCPD_SHARE": "0",
        "DLCPD_END_WITH_LAUNCHER": "1",
        "DLCPD_WARN_AFTER": "2.5",
    }
    assert Environment.read(full) == Environment(
        "/s",
        Path("/c"),
        "m",
        launch="r:m",
        run="r",
        warn_after=2.5,
        share=False,
        end_with_launcher=True,
    )


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ("", ""),
        ("TORCHELASTIC_RUN_ID=none", ""),
        ("TORCHELASTIC_RUN_ID=0b2d9f52-6b1f-4a5c-9c52-1f2ad6c0a0e7", ""),
        ("TORCHELASTIC_RUN_ID=none SLURM_JOB_NAME=bert SLURM_JOB_ID=7 JOB_NAME=pod", "bert-7"),
        ("TORCHELASTIC_RUN_ID=slurm-7 SLURM_JOB_NAME=bert SLURM_JOB_ID=7", "slurm-7"),
        ("SLURM_JOB_ID=7", "7"),
        ("JOB_NAME=pod", "pod"),
        ("PBS_JOBNAME=bert PBS_JOBID=7.head", "bert-7.head"),
        ("LSB_JOBNAME=bert LSB_JOBID=7", "bert-7"),
        ("DLCPD_JOB=mine TORCHELASTIC_RUN_ID=slurm-7 SLURM_JOB_NAME=bert JOB_NAME=pod", "mine"),
    ],
)
def test_a_job_is_called_what_user_or_scheduler_calls_it(variables: str, name: str) -> None:
    pairs = (pair.split("=") for pair in variables.split())
    assert Environment.read({key: value for key, value in pairs}).run == name


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_to_warn_after_is_seconds(text: str) -> None:
    with pytest.raises(BadConfig, match="DLCPD_WARN_AFTER"):
        Environment.read({"DLCPD_WARN_AFTER": text})


def test_a_daemon_starts_greets_and_ends_with_its_socket() -> None:
    daemon, control = start(None, "localhost")
    welcome = control.hello(30.0)
    assert welcome.endpoint.startswith("tcp://127.0.0.1:")
    process = psutil.Process(daemon.pid)
    assert os.getpgid(process.pid) != os.getpgid(0)  # a terminal's Ctrl-C is not for it
    family = [process, *process.children(recursive=True)]
    control.close()
    daemon.close()
    assert daemon.pid is None
    assert not any(each.is_running() for each in family)
    daemon.close()  # twice is fine


def test_a_bad_configuration_ends_it_with_its_last_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text("[daemon]\nhots = 'a'\n")
    daemon, control = start(file, "")
    with pytest.raises(DaemonUnavailable, match=r"exited with status 2; its last line: .*hots"):
        control.hello(30.0)
    control.close()
    daemon.close()
    assert "hots" in capfd.readouterr().err  # passed on as well


def test_its_last_line_is_known_though_the_disk_of_our_stderr_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text("[daemon]\nhots = 'a'\n")
    with suppress(OSError), open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr("sys.stderr", full)
        daemon, control = start(file, "")
        with pytest.raises(DaemonUnavailable, match=r"its last line: .*hots"):
            control.hello(30.0)
        monkeypatch.undo()
        control.close()
        daemon.close()


def test_a_killed_daemon_is_said_to_be_killed() -> None:
    daemon, control = start(None, "localhost")
    control.hello(30.0)
    assert daemon.pid is not None
    os.kill(daemon.pid, signal.SIGKILL)
    with pytest.raises(DaemonUnavailable, match="was killed by SIGKILL"):
        control.hello(30.0)
    control.close()
    daemon.close()


# Its first thread has ended: the kernel is ending the process, its descriptors are still open.
ENDING = """
import ctypes, os, threading, time
threading.Thread(target=lambda: (time.sleep(0.5), os._exit(0))).start()
print("ends", flush=True)
ctypes.CDLL(None).syscall(60, 0)  # exit, of one thread
"""


def test_an_exit_waits_for_a_daemon_that_is_ending_and_removes_its_folder(tmp_path: Path) -> None:
    place = SocketFolder.make(str(tmp_path))
    claimed = place.folder.descriptor
    process = subprocess.Popen(
        [sys.executable, "-c", ENDING], pass_fds=[claimed], stdout=subprocess.PIPE, text=True
    )
    place.let_go()
    assert process.stdout is not None
    with process.stdout as lines:
        lines.readline()
        await_ending(process.pid)
        assert process.poll() is None and list(tmp_path.iterdir())
        Embedded(process, sockets=[tmp_path])._sweep_at_exit(process)  # noqa: SLF001
    assert not list(tmp_path.iterdir())


def await_ending(pid: int) -> None:
    while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.001)


@pytest.mark.executed
def test_a_daemon_that_cannot_be_started_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    before = open_descriptors()
    with pytest.raises(
        DaemonUnavailable, match=r"cannot start /no/such/python -P \S+/dlcpd/starter.py"
    ):
        start(None, "localhost")
    assert open_descriptors() == before


def test_a_stopped_daemon_is_made_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp_client.ipc.embedded.STOP_TIMEOUT", 0.05)
    monkeypatch.setattr("dlcp_client.ipc.embedded.DELIVERY", 0.0)
    daemon, control = start(None, "localhost")
    control.hello(30.0)
    assert daemon.pid is not None
    process = psutil.Process(daemon.pid)
    engines = process.children(recursive=True)
    process.suspend()
    control.close()
    daemon.close()
    assert not process.is_running()
    psutil.wait_procs(engines, timeout=30)
    assert not any(engine.is_running() for engine in engines)


def test_a_rank_that_leaves_an_idle_one_behind_is_no_news(
    capfd: pytest.CaptureFixture[str],
) -> None:
    first, second = sessions = connected()
    reduce_all(sessions)
    first.close()
    with pytest.raises(DlcpError, match="rank 0"):
        second.all_reduce(torch.ones(10), policy=exact(deadline=10.0)).wait()
    second.close()
    shown = capfd.readouterr().err
    assert "session_broken" not in shown
    assert "peer_gone" not in shown


def test_a_ledger_is_asked_for_on_the_command_line_of_a_private_daemon(tmp_path: Path) -> None:
    asked = {"DLCPD_LEDGER": str(tmp_path), "DLCPD_LEDGER_INPUTS": "1"}
    options = Environment.read(asked).daemon_options()
    assert options == ["--ledger", str(tmp_path), "--ledger-inputs"]
    assert Environment.read({"DLCPD_LEDGER_INPUTS": "1"}).daemon_options() == []
    assert machine(None) != machine(None, options)  # ranks that ask for another share no daemon


def test_a_ledger_of_the_hosts_daemon_is_not_asked_for_by_its_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DLCPD_LEDGER", "/nowhere")
    with pytest.raises(BadConfig, match=r"the daemon of the host: set \[ledger\] directory"):
        connect(HashStore(), 0, 1, socket="/run/dlcpd/dlcpd.sock")

"""From start to end: command line, signals, the engine's fate, embedded mode, idleness."""

import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dlcpd.daemon.main import LEAST_DESCRIPTORS
from dlcpd.daemon.versions import text
from tests.daemon.kit import (
    PATIENCE,
    ROOT,
    Client,
    Daemon,
    configuration,
    environment,
    join_all,
    joins,
    until,
)


def command(
    *arguments: str, before: Sequence[str] = (), pass_fds: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Run dlcpd. `before`: words of a command that executes it."""
    return subprocess.run(
        [*before, sys.executable, "-m", "dlcpd", *arguments],
        pass_fds=pass_fds,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        cwd=ROOT,
        check=False,
    )


# --- command line ------------------------------------------------------------------------


def test_without_uvloop_the_standard_loop_serves(tmp_path: Path) -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'uvloop'\", name='uvloop')"
    (tmp_path / "uvloop.py").write_text(missing)
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    with Daemon(configuration(tmp_path), environ={"PYTHONPATH": path}) as daemon:
        with daemon.client() as client:
            client.greet()
            assert client.status()["sessions"] == []
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0


def test_version() -> None:
    done = command("--version")
    assert (done.returncode, done.stdout) == (0, f"{text('dlcpd')}\n")


@pytest.mark.parametrize("level", ["error", "loud"])
def test_the_environment_says_what_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv("DLCPD_LOG", level)
    done = command("--check-config", str(configuration(tmp_path)))
    if level == "loud":
        said = "dlcpd: DLCPD_LOG=loud: use one of debug, info, warning, error\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    else:
        assert tomllib.loads(done.stdout)["daemon"]["log_level"] == level


def test_check_config_prints_what_is_in_force(tmp_path: Path) -> None:
    done = command("--check-config", str(configuration(tmp_path)))
    assert (done.returncode, done.stderr) == (0, "")
    printed = tomllib.loads(done.stdout)
    assert printed["daemon"]["host"] == "host-a"
    assert printed["network"]["segment_size"] == "auto"


@pytest.mark.parametrize("option", ["--config", "--check-config"])
def test_a_mistake_in_the_file_is_one_line_and_code_2(tmp_path: Path, option: str) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text("[daemon]\nhosts = 1\n")
    done = command(option, str(file))
    assert done.returncode == 2
    line = f"dlcpd: {file}: unknown key hosts in [daemon]; did you mean host?\n"
    assert done.stderr == line


@pytest.mark.parametrize(
    "arguments",
    [["--nonsense"], ["--embedded"], ["--session-fd", "3"], ["--embedded", "--session-fd", "x"],
     ["--config", "a", "--check-config", "b"]],
    ids=" ".join,
)  # fmt: skip
def test_bad_usage_is_code_2(arguments: list[str]) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert "usage: dlcpd" in done.stderr


@pytest.mark.parametrize("number", ["99", "0"], ids=["closed", "not_a_socket"])
def test_a_session_descriptor_that_is_none_is_code_2(number: str) -> None:
    done = command("--embedded", "--session-fd", number)
    assert done.returncode == 2
    assert done.stderr.startswith(f"dlcpd: --session-fd {number}: ")
    assert done.stderr.count("\n") == 1


def test_a_session_descriptor_of_another_kind_is_code_2() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        done = subprocess.run(
            [sys.executable, "-m", "dlcpd", "--embedded", "--session-fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=PATIENCE,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 2
    assert "SOCK_SEQPACKET" in done.stderr


@pytest.mark.parametrize(
    ("daemon", "part"),
    [('control_address = "192.0.2.1"', "[daemon] control_address 192.0.2.1"),
     ('socket = "/nowhere/at/all.sock"', "[daemon] socket /nowhere/at/all.sock"),
     ('allowed_users = ["nobody-at-all"]', "no user 'nobody-at-all'")],
    ids=["address", "socket", "user"],
)  # fmt: skip
def test_what_cannot_be_had_is_one_line(tmp_path: Path, daemon: str, part: str) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        f'[daemon]\ncontrol_port = 0\n{daemon}\n[network]\npaths = [{{ address = "127.0.0.1" }}]'
    )
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests/daemon/run_with_stand_in.py"),
            "obedient",
            "--config",
            str(file),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        check=False,
    )
    assert done.returncode == (2 if "users" in daemon else 1)
    assert done.stderr.startswith("dlcpd: ") and part in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_second_daemon_on_one_socket_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    """Also where both have the same ports: one error, of the socket, before an engine starts."""
    config = configuration(tmp_path, more='[metrics]\nlisten = "127.0.0.1:9464"\n')
    with Daemon(config) as first:
        file, before = first.socket.stat(), sorted(tmp_path.iterdir())
        second = Daemon(config, mode="die")
        assert second.wait() == 1
        assert "another daemon answers" in second.text and second.text.count("\n") == 1
        assert second.process.stderr
        second.process.stderr.close()
        assert sorted(tmp_path.iterdir()) == before and first.socket.stat() == file
        with first.client() as client:
            client.greet()


def test_a_socket_that_a_daemon_cannot_bind_is_free_for_the_next(tmp_path: Path) -> None:
    """The lock is left by one that ends for another reason."""
    config = configuration(tmp_path)
    failed = Daemon(config, mode="die")
    assert failed.wait() == 1
    assert failed.process.stderr
    failed.process.stderr.close()
    assert sorted(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize("held", [0, 40])
def test_too_few_descriptors_are_one_line(tmp_path: Path, held: int) -> None:
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(held)]
    limited = ["prlimit", f"--nofile={LEAST_DESCRIPTORS + held}"]
    done = command("--config", str(configuration(tmp_path)), before=limited, pass_fds=files)
    for file in files:
        os.close(file)
    assert done.returncode == 2
    assert done.stderr.startswith("dlcpd: this process may open ") and "ulimit" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_engine_that_the_kernel_does_not_start_is_one_line(tmp_path: Path) -> None:
    start = ["--config", str(configuration(tmp_path))]
    code = f"from dlcpd.daemon.main import main; exit(main({start}, engine_command=['/none']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "dlcpd: cannot start: No such file or directory\n")


# --- the engine's fate -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("fail", "path 0: 192.0.2.1 is not here"),
        ("die", "the engine ended with exit code 4 before it was ready"),
    ],
)
def test_an_engine_that_cannot_start_is_one_line_and_code_1(
    tmp_path: Path, mode: str, text: str
) -> None:
    daemon = Daemon(configuration(tmp_path), mode=mode)
    assert daemon.wait() == 1
    assert daemon.text.startswith(f"dlcpd: {text}")
    assert daemon.text.count("\n") == 1
    assert daemon.process.stderr
    daemon.process.stderr.close()


def test_an_engine_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path), mode="stubborn") as daemon:
        engine = daemon.engine_pid
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        daemon.wait_for("engine_killed")
        assert not Path(f"/proc/{engine}").exists()


def test_an_engine_does_not_outlive_a_killed_daemon(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        engine = daemon.engine_pid
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        until(lambda: not is_running(engine), "the engine sees its command socket end")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_an_engine_that_does_not_report_is_in_the_status(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path), mode="deaf") as daemon, daemon.client() as client:
        client.greet()
        assert "did not answer" in client.status()["engine"]["error"]
        assert client.status()["host"] == "host-a"


# --- signals ---------------------------------------------------------------------------------


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[tuple[Daemon, list[Client]]]:
    config = configuration(tmp_path, daemon="drain_timeout = 3600.0")
    with Daemon(config) as daemon:
        clients = [daemon.client(), daemon.client()]
        join_all(clients, "job")
        yield daemon, clients
        for client in clients:
            client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_daemon_ends_clean_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        daemon.signal(number)
        assert daemon.wait() == 0
        assert not daemon.socket.exists()
        assert daemon.events[-1]["event"] == "stopped"


def test_draining_refuses_joins_waits_for_the_engine_and_says_goodbye(
    joined: tuple[Daemon, list[Client]],
) -> None:
    daemon, [a, b] = joined
    with daemon.client() as late, daemon.client() as waiting:
        welcomes = [late.greet(), waiting.greet()]
        waiting.send(joins("half", welcomes)[1])
        until(lambda: len(late.status()["sessions"]) == 3, "one session is joining")
        daemon.signal(signal.SIGTERM)
        assert a.command("Stop")["drain"] == 3600.0
        assert "stopping" in waiting.refused("daemon_unavailable")
        late.send(joins("late", welcomes)[0])
        assert "stopping" in late.refused("daemon_unavailable")
        assert late.status()["draining"] is True
        assert {s["state"] for s in late.status()["sessions"]} == {"open"}
        a.emit("Finish")
        for client in (a, b, late, waiting):
            assert "was stopped" in client.refused("daemon_lost")
    assert daemon.wait() == 0


def test_a_second_signal_ends_at_once(joined: tuple[Daemon, list[Client]]) -> None:
    daemon, [a, _] = joined
    daemon.signal(signal.SIGTERM)
    a.command("Stop")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_a_terminals_interrupt_reaches_control_alone(joined: tuple[Daemon, list[Client]]) -> None:
    daemon, [a, _] = joined
    os.killpg(daemon.process.pid, signal.SIGINT)
    assert a.command("Stop")["drain"] == 3600.0, "the engine lives, and is asked to drain"
    a.emit("Finish")
    assert daemon.wait() == 0


def test_peers_elsewhere_hear_of_a_stop(tmp_path: Path) -> None:
    a = configuration(tmp_path, "host-a", "127.0.0.1", daemon="drain_timeout = 0.0")
    b = configuration(tmp_path, "host-b", "127.0.0.2")
    with Daemon(a) as first, Daemon(b) as second:
        with first.client() as here, second.client() as there:
            join_all([here, there], "job")
            first.signal(signal.SIGTERM)
            gone = there.command("PeerGone")
        assert "host-a was stopped" in gone["text"]
        assert first.wait() == 0


# --- a client's process ------------------------------------------------------------------------


def test_a_killed_client_is_gone_though_its_child_holds_everything_open(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        trainer = subprocess.Popen(
            [sys.executable, "-c", FORKING_CLIENT, str(daemon.socket)],
            stdout=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
        )
        assert trainer.stdout
        with trainer, trainer.stdout:
            worker = int(trainer.stdout.readline())
            trainer.kill()
            trainer.wait()
            assert is_running(worker)
            daemon.wait_for("client_left", text="the client's process ended")
            os.kill(worker, signal.SIGKILL)


FORKING_CLIENT = """
import os, sys, time
from pathlib import Path
from dlcpd.daemon.versions import text
from tests.daemon.kit import Client
client = Client.connect(Path(sys.argv[1]))
client.greet()
worker = os.fork()
if worker:
    print(worker, flush=True)
time.sleep(600)
"""


# --- embedded -----------------------------------------------------------------------------------


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[tuple[Daemon, Client]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        daemon = Daemon(
            configuration(tmp_path),
            options=("--embedded", "--session-fd", str(theirs.fileno())),
            pass_fds=(theirs.fileno(),),
        )
    with daemon, Client(ours) as client:
        yield daemon, client


def test_an_embedded_daemon_serves_its_one_session_and_ends_with_it(
    embedded: tuple[Daemon, Client], tmp_path: Path
) -> None:
    daemon, client = embedded
    assert not daemon.socket.exists(), "it listens nowhere"
    with Daemon(configuration(tmp_path, "host-b", "127.0.0.2")) as other, other.client() as peer:
        join_all([client, peer], "job")
        client.close()
        assert daemon.wait() == 0
        assert peer.command("PeerGone")["rank"] == 0


def test_an_embedded_daemon_leaves_the_terminals_interrupt_to_its_trainer(
    embedded: tuple[Daemon, Client],
) -> None:
    daemon, client = embedded
    daemon.signal(signal.SIGINT)
    client.greet()
    assert client.status()["draining"] is False
    client.close()
    assert daemon.wait() == 0


TRAINER = """
import os, socket, subprocess, sys, time
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
daemon = subprocess.Popen(
    [sys.executable, sys.argv[1], "obedient", "--config", sys.argv[2],
     "--embedded", "--session-fd", str(theirs.fileno())], pass_fds=[theirs.fileno()])
theirs.close()
worker = os.fork()  # holds the session socket open
if worker:
    print(daemon.pid, worker, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("pidfd", [True, False], ids=["pidfd", "parent_poll"])
def test_an_embedded_daemon_ends_with_its_trainer_though_a_worker_lives(
    tmp_path: Path, pidfd: bool
) -> None:
    runner = ROOT / "tests/daemon/run_with_stand_in.py"
    if not pidfd:  # as on a kernel that has none
        runner = tmp_path / "run.py"
        runner.write_text(
            f"import os, runpy\n"
            f"def refuse(pid, flags=0): raise OSError('not here')\n"
            f"os.pidfd_open = refuse\n"
            f"runpy.run_path({str(ROOT / 'tests/daemon/run_with_stand_in.py')!r}, "
            f"run_name='__main__')\n"
        )
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(runner), str(configuration(tmp_path))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    assert trainer.stdout and trainer.stderr
    daemon, worker = map(int, trainer.stdout.readline().split())
    assert '"event": "ready"' in trainer.stderr.readline()
    trainer.kill()
    trainer.wait()
    try:
        assert is_running(worker)
        until(lambda: not is_running(daemon), "the daemon ends")
    finally:
        os.kill(worker, signal.SIGKILL)
        trainer.stdout.close()
        trainer.stderr.close()


@pytest.mark.executed
def test_an_engine_does_not_inherit_a_jobs_secret(tmp_path: Path) -> None:
    secret = {"DLCPD_JOB_SECRET": "x" * 64, "DLCPD_JOB_SECRET_FILE": "/x"}
    with Daemon(configuration(tmp_path), environ=secret) as daemon:
        environ = Path(f"/proc/{daemon.engine_pid}/environ").read_bytes()
        assert b"DLCPD_ENGINE_CONFIG" in environ and b"DLCPD_JOB_SECRET" not in environ


# --- idleness ------------------------------------------------------------------------------------


def test_an_idle_daemon_sleeps(tmp_path: Path) -> None:
    """Counted in wake-ups, not in time: each is one voluntary switch of the main thread."""
    with Daemon(configuration(tmp_path)) as daemon, daemon.client() as a, daemon.client() as b:
        join_all([a, b], "job")
        a.status()
        before = wake_ups(daemon.process.pid)
        time.sleep(1.0)
        assert wake_ups(daemon.process.pid) - before < 20


def wake_ups(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("voluntary_ctxt")]
    return int(line.split()[1])

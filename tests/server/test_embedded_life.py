"""What ends an embedded server: the end of its last trainer, whatever ends that, and SIGKILL."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dlcp_client.numpy.file_store import FileStore
from dlcp_client.ps.calls import WorkerCall
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.join_request import JoinRequest, PushAgreement, policy_values
from dlcp_client.server.config import parse
from dlcp_client.server.embedded import ShardLifetime, ShardStart
from dlcp_client.server.hosting import HostedShards
from dlcpd.contract.policy import EXACT
from tests.server.kit import text_of

WORLD = 2
PATIENCE = 200.0  # seconds until a test fails; cores are shared
MARK = "DLCPD_TEST_OF_LIFE"  # in the environment of all that a training starts
SIGNALS = sorted(set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP})
pytestmark = pytest.mark.timeout(400)  # seconds


# --- when a shard counts as unused -----------------------------------------------------------


class Trainer:
    """What a shard sees of the process that started it."""

    gone = False


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[HostedShards]:
    config = parse(text_of(tmp_path), "test")
    directory = Directory(FileStore(config.store), config.name)
    host_daemon = HostDaemon("/no/daemon")
    with HostedShards(config, directory, host_daemon, launch=WORLD) as made:
        yield made


def join_request(worker: int) -> JoinRequest:
    policy = policy_values(EXACT)
    return JoinRequest(PushAgreement("job", "model", "sgd", 3, 1, 1), worker, WORLD, policy, policy)


def test_a_shard_ends_when_its_launch_has_come_and_gone(hosting: HostedShards) -> None:
    trainer = Trainer()
    life = ShardLifetime(hosting, trainer)  # type: ignore[arg-type]  # of which it asks for `gone` alone
    assert not life.wait(0.0), "it has not begun"
    hosting._take(standby=False)  # noqa: SLF001  # as `run` does
    [hosted] = hosting._hosted.values()  # noqa: SLF001
    shard = hosted.shard
    assert not life.wait(0.0)
    shard.attach(join_request(0))
    shard.leave(0)
    assert not life.wait(0.0), "the other has not come yet"
    shard.attach(join_request(1))
    assert not life.wait(0.0)
    trainer.gone = True
    assert not life.wait(0.0), "worker 1 is there, and may be another trainer's"
    trainer.gone = False
    shard.lost(1, "test")
    assert not life.wait(0.0), "worker 1 may come back"
    trainer.gone = True
    assert life.wait(0.0), "but not without its store"


def test_a_shard_whose_trainer_ends_before_anybody_came_ends_too(hosting: HostedShards) -> None:
    trainer = Trainer()
    trainer.gone = True
    assert ShardLifetime(hosting, trainer).wait(0.0)  # type: ignore[arg-type]
    hosting._take(standby=False)  # noqa: SLF001
    assert ShardLifetime(hosting, trainer).wait(0.0)  # type: ignore[arg-type]


def test_nobody_is_looked_for_once_the_launch_is_there(hosting: HostedShards) -> None:
    hosting._take(standby=False)  # noqa: SLF001
    [hosted] = hosting._hosted.values()  # noqa: SLF001
    asked = list[str]()
    directory, host_daemon = hosting._directory, hosting._host_daemon  # noqa: SLF001

    def new() -> list[WorkerCall]:
        asked.append("new")
        return []

    hosted._calls.new = new  # type: ignore[union-attr,method-assign]  # noqa: SLF001
    for came, looks in ((0, True), (1, False)):
        hosted.shard.attach(join_request(came))
        asked.clear()
        hosted.let_in(directory, host_daemon)
        assert bool(asked) == looks
    hosted.shard.lost(0, "test")
    hosted.let_in(directory, host_daemon)
    assert asked, "it may come back"


def test_what_a_shard_is_told_and_what_it_keeps() -> None:
    part = ShardStart("name", 1, 3, 5, "/a/socket", "")
    assert ShardStart.of(part.text()) == part
    config = part.config()
    assert config.own == (1,) and config.shards == 3 and not config.snapshots
    with pytest.raises(TypeError):
        ShardStart.of('{"name": "x"}')


# --- processes -------------------------------------------------------------------------------


class Training:
    """Two ranks of this machine, with one daemon and one shard."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, f"{MARK}={folder}"
        self.sockets = folder / "run"
        self.sockets.mkdir(mode=0o700)
        more = {MARK: str(folder), "DLCPD_SHARE": "1", "XDG_RUNTIME_DIR": str(self.sockets)}
        environ = {**os.environ, **more, "OMP_NUM_THREADS": "1"}
        environ.pop("DLCPD_STORE", None)
        self.ranks = [self._start(rank, environ) for rank in range(WORLD)]

    def _start(self, rank: int, environ: dict[str, str]) -> "subprocess.Popen[bytes]":
        script = Path(__file__).with_name("embedded_ranks.py")
        command = [sys.executable, str(script), str(self.folder), str(rank), str(WORLD)]
        with (self.folder / f"stderr-{rank}").open("wb") as errors:
            return subprocess.Popen(command, env=environ, stderr=errors, start_new_session=True)

    def said(self, rank: int) -> str:
        file = self.folder / f"rank-{rank}"
        return file.read_text() if file.exists() else ""

    def until(self, rank: int, pattern: str) -> str:
        """Wait until a rank has said it; all that it said."""
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, said := self.said(rank)):
            assert time.monotonic() < end, f"{said}\n{self.errors()}"
            time.sleep(0.02)
        return said

    def progress(self, rank: int) -> None:
        """Wait for five more steps."""
        steps = self.said(rank).count("step ")
        self.until(rank, f"step {steps + 5}\n")

    def errors(self) -> str:
        return "".join(file.read_text() for file in self.folder.glob("stderr-*"))

    def all(self) -> list[psutil.Process]:
        """The ranks, and what they have started, as far as it is there still."""
        return [one for one in psutil.process_iter() if self.mark in _environment(one)]

    def shard(self) -> psutil.Process:
        [found] = [one for one in self.all() if "dlcp_client.server.embedded" in one.cmdline()]
        return found

    def daemon(self) -> psutil.Process:
        [found] = [one for one in self.all() if "dlcpd.daemon.main" in one.cmdline()]
        return found

    def nothing_is_left(self) -> None:
        self.no_process_is_left()
        assert not list(self.sockets.iterdir())

    def no_process_is_left(self) -> None:
        _, alive = psutil.wait_procs(self.all(), timeout=PATIENCE)
        assert not alive and not self.all()
        for one in self.ranks:
            one.wait(PATIENCE)


def _environment(process: psutil.Process) -> set[str]:
    try:
        raw = Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return set()
    return set(raw.decode(errors="replace").split("\0"))


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    made = Training(tmp_path)
    try:
        for rank in range(WORLD):
            made.until(rank, "step 3\n")
        yield made
    finally:
        for one in made.all():
            one.kill()
        for process in made.ranks:
            process.wait()


def test_no_signal_but_sigkill_ends_a_shard_and_that_is_named_by_all(training: Training) -> None:
    shard = training.shard()
    for number in SIGNALS:
        os.kill(shard.pid, number)
    for rank in range(WORLD):
        training.progress(rank)
    assert shard.status() not in ("stopped", "zombie") and "lost" not in training.errors()
    shard.kill()
    for rank in range(WORLD):
        said = training.until(rank, "failed: ")
        assert re.search(
            r"failed: ServerLost: shard 0 of the embedded server, with the daemon of rank 0 on "
            r"\S+, has ended \(its process was killed by SIGKILL",
            said,
        )
    training.nothing_is_left()


def test_who_started_the_shard_is_killed_and_the_others_go_on(training: Training) -> None:
    training.ranks[0].kill()
    said = training.until(1, "warned: the server lost worker 0")
    assert "failed" not in said
    training.progress(1)
    (training.folder / "stop").touch()
    training.until(1, "closed")
    training.nothing_is_left()


def test_all_ranks_name_the_end_of_the_daemon_under_a_shard(training: Training) -> None:
    training.daemon().kill()
    for rank in range(WORLD):
        assert re.search(
            r"failed: DaemonLost: dlcpd ended while the session", training.until(rank, "failed: ")
        )
    training.nothing_is_left()


@pytest.mark.parametrize("first", range(WORLD))
def test_ranks_that_exit_without_close_leave_nothing_behind(training: Training, first: int) -> None:
    """The first one to leave may have started daemon and shard: the other one goes on."""
    (training.folder / f"leave-{first}").touch()
    training.until(first, "left")
    training.ranks[first].wait(PATIENCE)
    training.progress(1 - first)
    assert "failed" not in training.said(1 - first)
    (training.folder / f"leave-{1 - first}").touch()
    training.nothing_is_left()
    assert [one.returncode for one in training.ranks] == [0] * WORLD, training.errors()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_all_trainers_ends_all(training: Training, number: signal.Signals) -> None:
    """SIGTERM goes to every process of the job, as schedulers send it."""
    others = [one for one in training.all() if one.pid not in {r.pid for r in training.ranks}]
    assert len(others) >= 3, "a daemon, an engine and a shard"
    targets = training.all() if number == signal.SIGTERM else training.ranks
    for one in targets:
        one.send_signal(number)
    training.nothing_is_left()


def test_a_shard_that_is_given_no_work_ends_by_itself() -> None:
    """Its trainer is gone before it said what to serve."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "dlcp_client.server.embedded", "--fd", str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    ours.close()
    assert process.wait(PATIENCE) == 1

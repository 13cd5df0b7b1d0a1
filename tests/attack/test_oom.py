"""Where memory is short, an engine of a host's daemon is not the first that the kernel kills."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcpd.io.config import EngineConfig
from tests.attack.cgroups import memory_group
from tests.attack.test_engine_survives import works
from tests.checks import Measured
from tests.daemon.kit import Daemon, configuration
from tests.io.engines import PATIENCE, ROOT, Job

pytestmark = pytest.mark.executed  # their memory is measured

UNIT = ROOT / "deploy" / "systemd" / "dlcpd.service"
LIMIT = 400 << 20  # bytes of the group of engine, trainer and leak
PIECE = 384 << 20  # bytes of an operation: a rank's arena is that of its engine as well
HOLDS = "import sys; held = bytearray(64 << 20); print(flush=True); sys.stdin.read()"
LEAKS = "import sys; sys.stdin.read(1)\nheld = []\nwhile True: held.append(b'x' * (1 << 20))"


def adjustment() -> int:
    """What the unit gives the daemon."""
    lines = UNIT.read_text().splitlines()
    [line] = [line for line in lines if line.startswith("OOMScoreAdjust=")]
    return int(line.partition("=")[2])


def score_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/oom_score_adj")


def adjust(pid: int, others: list[int]) -> None:
    """Do to `pid` what the unit does; where no score may be lowered (CAP_SYS_RESOURCE), raise
    those of the others by as much."""
    try:
        score_of(pid).write_text(str(adjustment()))
    except OSError:
        for other in others:
            score_of(other).write_text(str(-adjustment()))


@contextlib.contextmanager
def given(score: str) -> Iterator[None]:
    """What is started meanwhile has it."""
    own = Path("/proc/self/oom_score_adj")
    before = own.read_text()
    own.write_text(score)
    yield
    own.write_text(before)


@pytest.mark.check(121, "an engine inherits the OOM score that its daemon was given")
def test_engines_inherit_it(tmp_path: Path) -> None:
    """One that anybody may set: only root may lower it."""
    with given("120"):
        daemon = Daemon(configuration(tmp_path), mode="")
    with daemon as started:
        started.ready()
        for pid in (started.process.pid, started.engine_pid):
            assert int(score_of(pid).read_text()) == 120


@pytest.mark.check(121, "a leak beside engine and trainers is killed first; the job goes on")
def test_the_leak_is_killed_first(measured: Measured) -> None:
    def configure(rank: int) -> EngineConfig:
        return EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),))

    with memory_group(LIMIT) as group:
        job = Job(2, configure)
        trainer, leak = python(HOLDS), python(LEAKS)
        try:
            engine = job.engines[0].process.pid
            ranks = [job.open(rank, 2, PIECE) for rank in range(2)]
            adjust(engine, [trainer.pid, leak.pid])
            for pid in (engine, trainer.pid, leak.pid):
                group.add(pid)
            for rank in ranks:
                rank.submit(1, count=PIECE // 4, deadline=60.0)
            for rank in ranks:
                rank.outcome(1)
            assert leak.stdin
            leak.stdin.write(b"x")
            leak.stdin.flush()
            assert leak.wait(PATIENCE) == -9
            assert trainer.poll() is None and group.killed == 1
            works(job.ranks, 1)
            resident = int(Path(f"/proc/{engine}/statm").read_text().split()[1]) * 4096
            measured(f"the engine has {resident >> 20} MiB, of which {PIECE >> 20} are an arena")
        finally:
            for process in (trainer, leak):
                process.kill()
                process.communicate()
            job.close()


def python(script: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )

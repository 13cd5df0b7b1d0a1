"""What clients that misbehave cost another job of the same engines: p99 of its operations.

    python -m tests.attack.neighbours [ROUNDS]

Phases go by turns, each in a process of its own, so that only engines and cores are shared.
Figures are in docs/performance.md; nothing here is a test.
"""

import contextlib
import mmap
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgpack

from dlcpd.io.config import EngineConfig
from tests.attack.test_starvation import JUNK, Neighbours
from tests.io import engines
from tests.io.engines import Job

PHASE: Final = 5.0  # seconds
LEFT: Final = 64 << 20  # bytes of every arena

Phase = Callable[[Job, Iterator[int], float], None]  # engines, numbers of sessions, when to end


def nothing(_job: Job, _sessions: Iterator[int], end: float) -> None:
    time.sleep(end - time.monotonic())


def coming_and_going(job: Job, sessions: Iterator[int], end: float) -> None:
    while time.monotonic() < end:
        client = job.open(0, session=next(sessions))
        time.sleep(0.02)
        client.lane.close()
        time.sleep(0.08)


def junk(job: Job, sessions: Iterator[int], end: float) -> None:
    frame = msgpack.packb([1, list(range(JUNK // 5))])[:JUNK]
    while time.monotonic() < end:
        client = job.open(0, session=next(sessions))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < end:
                client.lane.send(frame)
        time.sleep(0.1)


def dying(job: Job, sessions: Iterator[int], end: float) -> None:
    while time.monotonic() < end:
        client = job.open(0, session=next(sessions))
        client.memory[:: mmap.PAGESIZE] = 1
        job.die(client)
        time.sleep(0.5)


def memory_of_its_own(_job: Job, _sessions: Iterator[int], end: float) -> None:
    while time.monotonic() < end:
        with mmap.mmap(-1, LEFT) as mapped:
            mapped[:: mmap.PAGESIZE] = b"\1" * (LEFT // mmap.PAGESIZE)
        time.sleep(0.5)


PHASES: Final[tuple[Phase, ...]] = (nothing, coming_and_going, junk, dying, memory_of_its_own)


def main(rounds: int) -> None:
    engines.ARENA = LEFT
    job = Job(2, lambda rank: EngineConfig(host=f"host{rank}"))
    neighbours = Neighbours(job)
    neighbours.start()
    seen: dict[str, list[float]] = {phase.__name__: [] for phase in PHASES}
    fork = multiprocessing.get_context("fork")  # which has the engines' sockets
    for number in range(rounds * len(PHASES)):
        phase = PHASES[number % len(PHASES)]
        sessions = iter(range(1000 * (number + 1), 1000 * (number + 2)))
        before = len(neighbours.times)
        process = fork.Process(target=phase, args=(job, sessions, time.monotonic() + PHASE))
        process.start()
        process.join()
        times = neighbours.times[before:]
        seen[phase.__name__].append(1e3 * statistics.quantiles(times, n=100)[-1])
    for name, worst in seen.items():
        spread = ", ".join(f"{each:.1f}" for each in worst)
        sys.stdout.write(f"{name:18} p99 {statistics.median(worst):.1f} ms of {spread}\n")
    neighbours.stop()
    job.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)

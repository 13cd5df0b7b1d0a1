"""The CPU costs of an engine's work, measured by a process of its own.

Two engines exchange data over loopback, in one thread: many small transfers, a large one, and
transfers that wait for one another. Their counters and the CPU time give the costs. Run as a
module, with the file to keep them in and its key; configuration in DLCPD_ENGINE_CONFIG.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from dlcpd.collectives.execution import Execution
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.order import Group, Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.errors import DlcpError
from dlcpd.core.endpoint import PeerSpec
from dlcpd.core.session.session import Session
from dlcpd.core.transfer.layers import Layers
from dlcpd.io.commands import EnginePeer
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_link import ControlGone
from dlcpd.io.cost_fit import WorkWindow, fitted
from dlcpd.io.engine import Engine
from dlcpd.io.kept_costs import write
from dlcpd.io.poll import EngineBroken
from dlcpd.schedules.draft import Draft, Steps, of_input, of_output
from dlcpd.schedules.layout import SEGMENT
from dlcpd.schedules.model import Program, Receive, Send
from dlcpd.schedules.network import MAX_COST, TYPICAL, Costs

MakeEngine = Callable[[EngineConfig, socket.socket], Engine]

PAIR: Final = 2  # engines
SESSION: Final = 1
SMALL: Final = 1024  # bytes of a transfer: one datagram
LARGE: Final = 1 << 20  # bytes: 745 datagrams, in bursts as an engine sends them
MANY: Final = 32  # transfers, each way
TURNS: Final = 32  # transfers, each of which waits for the one before
LOOK: Final = 0.01  # seconds after which the limits are checked though nothing happens
CLASS: Final = 4  # traffic class
ROUNDS: Final = 3  # of all programs; the first one warms caches up, and does not count
MOST_CPU: Final = 0.04  # seconds, after which no round begins
MOST_TIME: Final = 20.0  # seconds on the clock: other processes have the CPU, or loopback is down
LOOPBACK: Final = "127.0.0.1"
NICE: Final = 10  # jobs go first
FAILURES: Final = (DlcpError, OSError, ValueError, ControlGone, EngineBroken)


def measured(make: MakeEngine, config: EngineConfig) -> Costs:
    """The costs of an engine of `config`. Takes 50 ms of CPU time, and MOST_TIME on the clock at
    most. Raises: one of FAILURES if they cannot be measured here."""
    alone = replace(config, paths=((LOOPBACK, 0),), segment_size=SEGMENT, ledger="", relays=())
    with pair(make, alone) as engines:
        costs = fitted(list(windows(engines)), TYPICAL.latency_ns)
    return Costs(*(min(cost, MAX_COST) for cost in costs))


@contextmanager
def pair(make: MakeEngine, config: EngineConfig) -> Iterator[list[Engine]]:
    """Two engines with a session. Raises: DlcpError, OSError."""
    with ExitStack() as stack:
        engines = []
        for _ in range(PAIR):
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in ends:
                stack.callback(end.close)
            engines.append(make(config, ends[0]))
            stack.callback(engines[-1].close)
        for rank, engine in enumerate(engines):
            peer = 1 - rank
            tokens, ends_of_peer = (1 + rank, 1 + peer), engines[peer].network.endpoints
            spec = PeerSpec(peer, LOOPBACK, *tokens, 1)
            session = engine.endpoint.open_session(SESSION, rank, [spec], peer_timeout=MOST_TIME)
            engine.network.admit()
            secrets = b"", b""
            to = EnginePeer(peer, LOOPBACK, *tokens, ends_of_peer, *secrets)
            engine.network.add(SESSION, session.flows[peer], to)
        yield engines


def windows(engines: Sequence[Engine]) -> Iterator[WorkWindow]:
    """The least CPU time of each kind of program, with what was done in it. Raises: ValueError if
    they take too long."""
    until, begun, ticket = time.monotonic() + MOST_TIME, time.thread_time(), 0
    best: dict[int, WorkWindow] = {}
    for turn in range(ROUNDS):
        if turn > 1 and time.thread_time() - begun > MOST_CPU * turn / (turn + 1):
            break
        for kind, programs in enumerate(KINDS):
            ticket += 1
            window = _window(engines, programs, ticket, until)
            if turn and (kind not in best or window.cpu < best[kind].cpu):
                best[kind] = window
    yield from best.values()


def _window(
    engines: Sequence[Engine], programs: Sequence[Program], ticket: int, until: float
) -> WorkWindow:
    """Run one program of each rank to its end. Raises: ValueError if it takes too long."""
    before, begun = _counts(engines), time.thread_time()
    sessions = [engine.endpoint.sessions[SESSION] for engine in engines]
    for rank, session in enumerate(sessions):
        _submit(session, rank, programs[rank], ticket, until)
    while any(session.operations for session in sessions):
        if time.monotonic() > until:
            raise ValueError("the engines do not end in time")
        _turn(engines)
    cpu = time.thread_time() - begun
    datagrams, wakes = (now - was for now, was in zip(_counts(engines), before, strict=True))
    steps = [s for program in programs for s in program.steps if isinstance(s, Send | Receive)]
    return WorkWindow(cpu, len(steps), PAIR * datagrams, wakes)  # sent by one, received by another


def _turn(engines: Sequence[Engine]) -> None:
    """One wake-up of each engine that has something to do; if none has, wait for that."""
    now = time.monotonic()
    due = [wait for engine in engines if (wait := engine.timeout(now)) >= 0.0]
    readable, _, _ = select.select(engines, [], [], min(LOOK, *due))
    for engine in engines:
        if engine in readable or engine.timeout(time.monotonic()) == 0.0:
            engine.step()


def _counts(engines: Sequence[Engine]) -> tuple[int, int]:
    """Datagrams of data sent, and wake-ups, so far."""
    efforts = [engine.endpoint.effort for engine in engines]
    return sum(e["data_out"] for e in efforts), sum(e["wakes"] for e in efforts)


def _submit(session: Session, rank: int, program: Program, ticket: int, until: float) -> None:
    ends = [
        step.span.start + step.span.size
        for step in program.steps
        if isinstance(step, Send | Receive)
    ]
    memory = np.zeros(max(ends), np.uint8), np.zeros(max(ends), np.uint8)
    group, layers = Group(0, (0, 1), rank), Layers.new([], CLASS, 0.0)
    order = Order(ticket, group, "costs", 0, until, "uint8", "sum", layers)
    made = Execution(order, program, memory, ScratchPool(LARGE), Accounts())
    session.submit(made, group.number, time.monotonic())


def _both_ways(sizes: Sequence[int]) -> list[Program]:
    """Transfers of each rank to the other, all at once."""
    made = []
    for rank in range(PAIR):
        draft, start = Draft(rank, PAIR), 0
        for size in sizes:
            draft.send(1 - rank, of_input(start, size))
            draft.receive(1 - rank, of_output(start, size))
            start += size
        made.append(draft.program())
    return made


def _in_turns() -> list[Program]:
    """Transfers from rank to rank, each after the one before."""
    made = []
    for rank in range(PAIR):
        draft = Draft(rank, PAIR)
        before: Steps = ()
        for turn in range(TURNS):
            if turn % PAIR == rank:
                draft.send(1 - rank, of_input(turn * SMALL, SMALL), after=before)
            else:
                before = draft.receive(1 - rank, of_output(turn * SMALL, SMALL))
        made.append(draft.program())
    return made


KINDS: Final = (_both_ways([SMALL] * MANY), _both_ways([LARGE]), _in_turns())


def main() -> int:
    """Measure and keep. Exit code 1, with the reason, if that is not possible."""
    file, key = sys.argv[1:]
    config = EngineConfig.from_json(os.environ["DLCPD_ENGINE_CONFIG"])
    os.nice(NICE)
    try:
        write(Path(file), key, measured(Engine, config))
    except FAILURES as exc:
        sys.stderr.write(f"dlcpd: CPU costs are not measured: {exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

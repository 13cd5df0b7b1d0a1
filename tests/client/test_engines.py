"""Several engines per host: what they share, what each has alone, and how they end."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from dlcp_client import Session, bounded, exact
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.numpy.arrays import ARRAYS
from dlcp_client.operations.engines import LEAST_RANGE, LEAST_TRANSFER, Engines
from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.parts import Parts
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import DaemonLost, DeadlineExceeded, DlcpError, PeerLost
from dlcpd.contract.frames import encode
from dlcpd.contract.inquiries import Status, StatusRequest
from dlcpd.contract.messages import Counts, Failed, Message, Released, Submit
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.ipc.seqpacket import send_now
from tests.client import group_ranks
from tests.client.real import WORLD, connected, each_rank, kill
from tests.client.stand_in import completed, nothing
from tests.client.test_ddp import on_each_rank

RANGE = 3 * LEAST_RANGE // 4  # elements of float32: worth dividing among three engines
PART = 3 * LEAST_TRANSFER // 4  # likewise, of what one rank sends another


def asks(collective: str, given: int = 0, got: int = 0, **more: Any) -> Submit:
    fields: dict[str, Any] = {
        "operation": 0,
        "group": 0,
        "schedule": "",
        "peer": -1,
        "tag": 0,
        "input": 0,
        "output": 0,
        "sizes": [],
        "dtype": "float32",
        "reduce": "sum",
        "max_loss": 0.0,
        "fill": "residual",
        "traffic_class": 0,
        "deadline": 1.0,
        "in_place": True,
        "name": "",
        "exempt": [],
        "layers": [],
    } | more
    return Submit(collective=collective, input_count=given, output_count=got, **fields)


# --- who runs what -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "given", "got"),
    [
        ("all_reduce", RANGE, RANGE), ("broadcast", RANGE, RANGE), ("reduce", RANGE, 0),
        ("all_gather", PART, 2 * PART), ("gather", PART, 0), ("scatter", 0, PART),
        ("reduce_scatter", 2 * PART, PART),
    ],
)  # fmt: skip
def test_what_is_large_goes_to_all_engines(collective: str, given: int, got: int) -> None:
    engines = Engines(3)
    assert engines.of(asks(collective, given, got), 4) == range(3)
    smaller = asks(collective, max(given - 1, 0), max(got - 1, 0))
    assert len(engines.of(smaller, 4)) == 1
    uneven = asks(collective, given, got, sizes=[Counts(1, 1)])
    assert len(engines.of(uneven, 4)) == 1, "both ends of a transfer would not find the same part"
    assert Engines(1).of(asks(collective, given, got), 4) == range(1)


@pytest.mark.parametrize("collective", ["barrier", "all_to_all", "send", "receive"])
def test_some_collectives_are_never_divided(collective: str) -> None:
    assert len(Engines(2).of(asks(collective, 10 * PART, 10 * PART), 4)) == 1


def test_small_operations_go_by_turns_and_equally_on_every_rank() -> None:
    seen = []
    for _rank in range(2):
        engines = Engines(3)
        chosen: list[int] = []
        for number in range(12):
            ask = asks("all_reduce", 1, 1, group=number % 2)
            chosen += engines.of(ask, 4)
            engines.submitted(ask)
        seen.append(chosen)
    assert seen[0] == seen[1]
    assert set(seen[0][::2]) == set(seen[0][1::2]) == {0, 1, 2}


def test_what_did_not_leave_keeps_its_turn() -> None:
    engines = Engines(2)
    assert engines.of(asks("barrier"), 1) == engines.of(asks("barrier"), 1)


def test_a_name_stays_with_its_engine() -> None:
    engines, first = Engines(2), set()
    for _ in range(3):
        for other in range(2):
            engines.submitted(asks("all_reduce", 1, 1, name=str(other)))
        ask = asks("all_reduce", 1, 1, name="layer.1")
        first.add(engines.of(ask, 4))
        engines.submitted(ask)
    assert len(first) == 1


def test_messages_of_a_group_stay_with_an_engine() -> None:
    """A receiver from any rank does not know who will send."""
    engines = Engines(2)
    for group in range(4):
        for _ in range(3):
            send, receive = asks("send", 9, group=group), asks("receive", got=9, group=group)
            assert engines.of(send, 4) == engines.of(receive, 4) == range(group % 2, group % 2 + 1)
            engines.submitted(send)


# --- their answers ------------------------------------------------------------------------


def test_counts_of_parts_are_added() -> None:
    parts = Parts.of(range(2))
    one = completed(1, released=True, sent=5, retransmitted=1, waived=2, energy=0.25)
    assert parts.answer(1, one) is None
    assert parts.answer(1, one) is None, "a frame that is taken in twice"
    whole = parts.answer(0, completed(1, released=False, sent=7, lost=3, reapplied=1, energy=0.5))
    assert whole is not None
    assert (whole.sent, whole.retransmitted, whole.waived) == (12, 1, 2)
    assert (whole.reapplied, whole.lost, whole.energy) == (1, 3, 0.5)
    assert parts.answer(0, one) == whole


def begun(engines: int) -> tuple[Operations, Work[Any]]:
    table: Any = Operations(lambda _work: None)
    table.library = ARRAYS  # as the session that works wait with
    work = nothing(table)
    table.begin(work, (), range(engines))
    return table, work


def say(table: Operations, message: Message, engine: int) -> None:
    with table.changed:
        table.handle_locked(message, engine)


def test_an_operation_ends_with_its_last_part() -> None:
    table, work = begun(2)
    say(table, completed(1, released=True), 1)
    assert not work.ended and len(table.memory) == 1
    say(table, completed(1, released=False), 0)
    assert work.stats is not None and len(table.memory) == 1
    say(table, Released(1), 1)  # once more, of the same engine
    assert len(table.memory) == 1
    say(table, Released(1), 0)
    assert len(table.memory) == 0 and table.memory.releases == 1


def test_the_first_part_that_fails_fails_the_operation_and_the_others_keep_its_memory() -> None:
    table, work = begun(2)
    say(table, Failed(1, "deadline_exceeded", "late"), 0)
    with pytest.raises(DeadlineExceeded, match="late"):
        work.wait()
    assert len(table.memory) == 1, "the other engine may still write"
    say(table, completed(1, released=True), 1)
    with pytest.raises(DeadlineExceeded, match="late"):
        work.wait()
    assert len(table.memory) == 0


def test_what_only_some_engines_were_told_ends_the_session() -> None:
    control, far_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    table = Operations(lambda _work: None)
    lanes = Lanes([near for near, _ in pairs], ControlConnection(control, lambda: "ended"), table)
    while send_now(pairs[1][0], b"x" * 1000):  # engine 1 does not read
        pass
    with pytest.raises(DeadlineExceeded):
        lanes.send(encode(Released(1)), time.monotonic(), [1])
    assert table.error is None, "nothing was sent, and the session goes on"
    with pytest.raises(DeadlineExceeded):
        lanes.send(encode(Released(1)), time.monotonic(), [0, 1])
    assert isinstance(table.error, DeadlineExceeded)
    lanes.close()
    for sock in (far_control, *(far for _, far in pairs)):
        sock.close()


# --- real daemons ---------------------------------------------------------------------------


@contextmanager
def sessions_of(folder: Path, *engines: int, more: str = "") -> Iterator[list[Session]]:
    """A session per rank, whose daemon has so many engines."""
    files = [folder / f"{rank}.toml" for rank in range(WORLD)]
    for file, count in zip(files, engines, strict=True):
        file.write_text(
            '[daemon]\ncontrol_address = "127.0.0.1"\n[network]\npaths = [{ address = '
            f'"127.0.0.1" }}]\npeer_timeout = 10.0\nengines = {count}\n{more}'
        )
    with ExitStack() as stack:
        sessions = connected(files, arena_bytes=256 << 20)
        for session in sessions:
            stack.callback(session.close)
        yield sessions


def report(session: Session) -> dict[str, Any]:
    """What the session's daemon says."""
    answer, _ = session._connection.lanes._control._ask(StatusRequest(0), 10.0)  # noqa: SLF001
    assert isinstance(answer, Status)
    return answer.read()


def paths_of(session: Session) -> list[dict[str, Any]]:
    """Those towards the other rank, of all engines."""
    number = session._connection.lanes._control.session  # noqa: SLF001
    [peer] = report(session)["engine"]["sessions"][str(number)]["peers"]
    found: list[dict[str, Any]] = peer["paths"]
    return found


def sums(sessions: list[Session], count: int, **more: Any) -> list[bool]:
    """An all-reduce of `count` ones and twos; whether each rank has threes."""

    def run(rank: int) -> bool:
        tensor = torch.full((count,), rank + 1.0)
        sessions[rank].all_reduce(tensor, **more).wait()
        return bool((tensor == 3).all())

    return each_rank(run)


def test_a_session_uses_as_many_engines_as_every_rank_has(tmp_path: Path) -> None:
    with sessions_of(tmp_path, 3, 2) as sessions:
        assert sums(sessions, RANGE) == [True] * WORLD
        for _ in range(4):
            assert sums(sessions, 10) == [True] * WORLD
        for session, engines in zip(sessions, (3, 2), strict=True):
            paths = paths_of(session)
            assert [path["sent"] > 0 for path in paths] == [True, True]
            said = report(session)
            assert said["features"]["engines"] == engines
            assert len(said["endpoints"]["data"]) == engines
            children = psutil.Process(session.daemon_pid).children()
            assert len(children) == engines


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "broadcast"])
def test_large_parts_are_divided_and_whole_again(tmp_path: Path, collective: str) -> None:
    with sessions_of(tmp_path, 2, 2) as sessions:

        def run(rank: int) -> bool:
            world, mine = sessions[rank].world, torch.arange(PART, dtype=torch.float32) + rank
            if collective == "all_gather":
                got = torch.empty(WORLD * PART)
                world.all_gather(got, mine).wait()
                wanted = torch.cat([torch.arange(PART) + r for r in range(WORLD)])
            elif collective == "reduce_scatter":
                got, wanted = torch.empty(PART), 2 * torch.arange(PART) + 1
                world.reduce_scatter(got, mine.repeat(WORLD)).wait()
            else:
                got, wanted = mine, torch.arange(PART) + 1
                world.broadcast(mine, 1).wait()
            return torch.equal(got, wanted.float())

        assert each_rank(run) == [True] * WORLD
        totals = [sum(path["sent"] for path in paths_of(session)) for session in sessions]
        busiest = paths_of(sessions[totals.index(max(totals))])
        least = (
            PART * 4 // MAX_SEGMENT // 4
        )  # a quarter of them; retransmissions may come on top of either
        assert min(path["sent"] for path in busiest) >= least


def test_a_bounded_operation_brings_home_what_each_engine_kept(tmp_path: Path) -> None:
    """Whole numbers: nothing is lost or added twice, whichever engine gave it up."""
    steps, lossy = 4, "[inject]\nloss = 0.03\nseed = 5\n"
    with sessions_of(tmp_path, 2, 2, more=lossy) as sessions:

        def run(rank: int) -> tuple[torch.Tensor, int, int]:
            total = torch.zeros(2 * RANGE)
            generator = torch.Generator().manual_seed(rank)
            given = torch.zeros(2 * RANGE)
            for step in range(steps + 1):
                policy = bounded(0.1) if step < steps else exact()
                tensor = torch.randint(-8, 9, (2 * RANGE,), generator=generator).float()
                given += tensor
                sessions[rank].all_reduce(tensor, policy=policy, name="layer").wait()
                total += tensor
            ledger = sessions[rank].ledger
            return total - given, ledger.waived, ledger.reapplied

        (first, *one), (second, *two) = each_rank(run)
    # sum of results - own contributions, added over ranks: 2 * everything - everything
    assert one[0] + two[0] > 0, "something was waived"
    assert one[0] == one[1] and two[0] == two[1], "and all of it came back"
    totals = [torch.zeros(2 * RANGE), torch.zeros(2 * RANGE)]
    for rank in range(WORLD):
        generator = torch.Generator().manual_seed(rank)
        for _ in range(steps + 1):
            totals[rank] += torch.randint(-8, 9, (2 * RANGE,), generator=generator).float()
    assert torch.equal(first, totals[1]) and torch.equal(second, totals[0])


def test_one_engine_that_dies_ends_the_daemon_and_is_told_everywhere(tmp_path: Path) -> None:
    with sessions_of(tmp_path, 2, 2) as sessions:
        assert sums(sessions, RANGE) == [True] * WORLD
        engines = psutil.Process(sessions[1].daemon_pid).children()
        kill(engines[1].pid)
        found = each_rank(
            lambda rank: (
                sessions[rank].all_reduce(torch.ones(RANGE), policy=exact(deadline=60)).wait()
            )
        )
        assert isinstance(found[1], DaemonLost)
        assert isinstance(found[0], PeerLost)
        psutil.wait_procs(engines, timeout=30)
        assert not any(engine.is_running() for engine in engines)


def test_a_rank_that_leaves_fails_every_part_of_what_is_open(tmp_path: Path) -> None:
    with sessions_of(tmp_path, 2, 2) as sessions:
        work = sessions[0].all_reduce(torch.ones(RANGE), policy=exact(deadline=60))
        sessions[1].close()
        with pytest.raises(PeerLost, match="rank 1"):
            work.wait()


def test_a_divided_operation_that_is_late_is_aborted_by_all_ranks(tmp_path: Path) -> None:
    with sessions_of(tmp_path, 2, 2) as sessions:
        with pytest.raises(DlcpError) as caught:
            sessions[0].all_reduce(torch.ones(RANGE), policy=exact(deadline=0.5)).wait()
        assert caught.value.code == "deadline_exceeded"
        with pytest.raises(DlcpError) as caught:
            sessions[1].all_reduce(torch.ones(RANGE)).wait()
        assert caught.value.code == "operation_aborted"
        assert sums(sessions, RANGE) == [True] * WORLD, "the session goes on"


def test_engines_run_where_they_are_told_to(tmp_path: Path) -> None:
    cpu = min(psutil.Process().cpu_affinity())
    more = f'engine_cpus = ["{cpu}", "{cpu}"]\n'
    with sessions_of(tmp_path, 2, 2, more=more) as sessions:
        engines = psutil.Process(sessions[0].daemon_pid).children()
        assert [engine.cpu_affinity() for engine in engines] == [[cpu], [cpu]]


def test_a_cpu_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(DlcpError, match="this process may not run on CPU 8190"),
        sessions_of(tmp_path, 2, 2, more='engine_cpus = ["8190", "0"]\n'),
    ):
        pass


@pytest.mark.parametrize("world", [2, 3])
def test_every_method_gives_what_gloo_gives(tmp_path: Path, world: int) -> None:
    found = on_each_rank(group_ranks.few_types, tmp_path, world, False, 2, world=world)
    assert found == [[]] * world


def test_groups_messages_and_threads_with_several_engines(tmp_path: Path) -> None:
    assert on_each_rank(group_ranks.subgroups, tmp_path, 2, world=3) == [[]] * 3
    for function in (group_ranks.in_flight, group_ranks.send_first, group_ranks.any_source):
        assert on_each_rank(function, tmp_path, 2, 2) == [[]] * 2

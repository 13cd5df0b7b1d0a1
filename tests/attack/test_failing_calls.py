"""Every system call of an engine's loop fails once with every error that there is."""

import errno
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dlcpd.contract.frames import decode_untrusted
from dlcpd.contract.messages import Completed, Message
from dlcpd.io import commands, control_events
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_frames import MAX_COMMAND, unpack
from dlcpd.ipc import kernel_errors
from tests.attack.failing_calls import FOR_EVER, FailingCalls, Kind, label
from tests.attack.test_engine_survives import works
from tests.checks import Measured
from tests.io.engines import ENGINE, PATIENCE, Job, Rank, failure

ALL = sorted(errno.errorcode)
GONE = frozenset(each for each in ALL if kernel_errors.is_gone(OSError(each, "")))


def configure(rank: int, paths: int = 1) -> EngineConfig:
    return EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),) * paths)


class Scene:
    """Two engines, the first with failing calls, and two jobs: a bystander, and a victim that is
    made again where it has ended."""

    def __init__(self, calls: FailingCalls) -> None:
        self.calls = calls
        self.job = Job(2, configure, calls.before(ENGINE))
        self.engine = self.job.engines[0]
        self._done, self._session, self._victim, self._submitted = 0, 1, 0, 0
        self.victims: list[Rank] = []
        self.renew()

    def submit(self) -> int:
        """The victim's next operation, of several segments: one alone would leave with control."""
        self._submitted += 1
        for rank in self.victims:
            rank.submit(self._submitted, count=20_000)
        return self._submitted

    def solo(self, beyond: int = 0) -> tuple[Rank, int]:
        """One more session, of one rank that waits for the other, and its number."""
        self._session += 1
        number = self._session + beyond
        return self.job.open(0, number), number

    def renew(self) -> None:
        """Another victim in the place of the one that there was."""
        for rank, victim in enumerate(self.victims):
            over = commands.CloseSession(self._victim, "session_closed", "over")
            self.job.engines[rank].send(over)
            self.job.die(victim)
        self._session, self._submitted = self._session + 1, 0
        self._victim = self._session
        self.victims = [self.job.open(rank, self._session) for rank in range(2)]
        for engine in self.job.engines:
            engine.report()

    @property
    def descriptors(self) -> int:
        """How many the engine has."""
        return len(os.listdir(f"/proc/{self.engine.process.pid}/fd"))

    def others_go_on(self, what: str) -> None:
        """Those that have nothing to do with the call that failed."""
        self.calls.await_fired()
        assert self.engine.process.poll() is None, what
        self._done += 1
        works(self.job.ranks, self._done)

    def close(self) -> None:
        self.calls.disarm()
        self.job.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(FailingCalls(tmp_path_factory.mktemp("calls")))
    yield made
    made.close()


def said(rank: Rank, number: int) -> Message | None:
    """The outcome of an operation; None: the lane has ended."""
    while True:
        try:
            frame = rank.lane.recv(1 << 18)
        except ConnectionError:
            return None
        if not frame:
            return None
        message = decode_untrusted(frame)
        if getattr(message, "operation", number) in (number, 0):
            return message


def exchange(scene: Scene) -> bool:
    """Whether an operation of the victim completes; where rank 0 has it, rank 1 has it too."""
    number = scene.submit()
    if not isinstance(said(scene.victims[0], number), Completed):
        return False
    assert isinstance(said(scene.victims[1], number), Completed)
    return True


@dataclass(frozen=True)
class Call:
    """What fails, with which errors the victim's session may end, and when it is to fail."""

    name: str
    kind: Kind
    ends: frozenset[int] = frozenset()
    at: str = ""
    codes: tuple[str, ...] = ("",)  # of a new session or its operation; "": it goes on

    def __str__(self) -> str:
        return "-".join(filter(None, [self.name.split()[0], self.kind.name, self.at]))


IN_OPERATIONS = [
    Call("recvmmsg", Kind.UDP),
    Call("sendmmsg", Kind.UDP),
    Call("sendmsg", Kind.UDP),
    Call("recv", Kind.LANE, GONE),
    Call("send", Kind.LANE, kernel_errors.OURS),
    Call("epoll_wait", Kind.ANY),
]
IN_REPORTS = [
    Call("recvmsg", Kind.COMMAND),
    Call("send", Kind.COMMAND),
    Call("getsockopt", Kind.UDP),
]
NO_ROOM = ("arena_full",)
FOR_SESSIONS = [
    Call("socket", Kind.ANY),
    Call("bind", Kind.UDP),
    Call("connect", Kind.UDP),
    Call("getsockopt", Kind.UDP),
    Call("getsockopt", Kind.LANE, codes=NO_ROOM),
    Call("getsockname", Kind.LANE, codes=NO_ROOM),
    Call("ioctl", Kind.LANE, codes=NO_ROOM),
    Call("epoll_ctl", Kind.ANY, codes=("too_many",)),
    Call("mmap mmap64", Kind.ANY, codes=NO_ROOM),
    Call("madvise", Kind.ANY),
    Call("fcntl fcntl64", Kind.ANY, codes=NO_ROOM),
    Call("fcntl fcntl64", Kind.ANY, at="submit", codes=("", "bad_message", *NO_ROOM)),
    Call("mincore", Kind.ANY, at="submit"),
    Call("madvise", Kind.ANY, at="close"),
    Call("shutdown", Kind.LANE, at="close"),
    Call("close", Kind.LANE, at="close"),
]


@pytest.mark.check(102, "each errno, once, at each call of an operation: it completes all the same")
@pytest.mark.parametrize("call", IN_OPERATIONS, ids=str)
def test_a_call_of_an_operation_fails(scene: Scene, call: Call, measured: Measured) -> None:
    began, ended = time.monotonic(), 0
    for number in ALL:
        lost = call.name == "send" and number in GONE - kernel_errors.OURS
        lane = scene.victims[0].inode if call.kind is Kind.LANE else 0
        scene.calls.arm(call.name, number, kind=call.kind, inode=lane)
        if lost:  # the kernel says so of a client that has gone, and of no other
            scene.submit()
            scene.calls.await_fired()
            scene.renew()
        elif not exchange(scene):
            assert number in call.ends, label(number)
            ended += 1
            scene.renew()
        scene.others_go_on(label(number))
    took = time.monotonic() - began
    measured(f"{call}: {len(ALL)} errors, {ended} ended the session that they met, {took:.0f} s")


@pytest.mark.check(102, "each errno, once, at each call of a report: it is told all the same")
@pytest.mark.parametrize("call", IN_REPORTS, ids=str)
def test_a_call_of_a_report_fails(scene: Scene, call: Call) -> None:
    for number in ALL:
        if call.kind is Kind.COMMAND and (number in GONE or number == errno.EMSGSIZE):
            continue  # control is gone, or an event too long: see test_kernel_errors.py
        scene.calls.arm(call.name, number, kind=call.kind)
        assert "counters" in scene.engine.report(), label(number)
        scene.others_go_on(label(number))


def opened(scene: Scene, session: int) -> str:
    """The code with which a session is refused; "" where it opens."""
    while True:
        event = unpack(scene.engine.control.recv(MAX_COMMAND))
        if isinstance(event, control_events.SessionOpened) and event.session == session:
            return ""
        if isinstance(event, control_events.SessionEnded) and event.session == session:
            return event.code


def taken(scene: Scene, rank: Rank, session: int) -> str:
    """The code with which the session's operation 1 is refused; "" where it is open."""
    while True:
        if select.select([rank.lane], [], [], 0)[0]:
            return failure(rank.outcome(1))[1]
        if scene.engine.report()["sessions"][str(session)]["open"]:
            return ""


@pytest.mark.check(102, "each errno, once, at each call that a session needs: it opens, or a name")
@pytest.mark.parametrize("call", FOR_SESSIONS, ids=str)
def test_a_call_for_a_session_fails(scene: Scene, call: Call, measured: Measured) -> None:
    codes: dict[str, int] = {}
    held = scene.descriptors

    def arm(call: Call, at: str, number: int) -> None:
        if call.at == at:
            scene.calls.arm(call.name, number, kind=call.kind)

    internal = scene.engine.counters().get("internal", 0)
    for number in ALL:
        scene.calls.disarm()
        arm(call, "", number)
        rank, session = scene.solo()
        code = opened(scene, session)
        if not code:
            arm(call, "submit", number)
            rank.submit(1, count=1000)
            code = taken(scene, rank, session)
            arm(call, "close", number)
            scene.engine.send(commands.CloseSession(session, "session_closed", "over"))
        assert code in call.codes, label(number)
        codes[code] = codes.get(code, 0) + 1
        while said(rank, 1) is not None:
            pass
        scene.job.die(rank)
        scene.others_go_on(label(number))
    report = scene.engine.report()
    assert len(report["sessions"]) == 2
    assert report["counters"].get("internal", 0) == internal, "taken for a bug"
    until = time.monotonic() + PATIENCE
    while scene.descriptors > held:
        assert time.monotonic() < until, "a descriptor is left"
        time.sleep(0.01)
    measured(f"{call}: " + ", ".join(f"{code or 'opens'} {n}" for code, n in codes.items()))


@pytest.mark.check(102, "no memory for a socket filter: all is let in, or a session is refused")
@pytest.mark.parametrize(("times", "code"), [(1, ""), (2, "too_many")])
def test_a_filter_that_cannot_be_set(scene: Scene, times: int, code: str) -> None:
    """Peers of a session whose tokens begin otherwise would not be heard."""
    scene.calls.arm("setsockopt", errno.ENOMEM, kind=Kind.UDP, times=times)
    rank, session = scene.solo(beyond=1 << 16)
    assert opened(scene, session) == code
    scene.engine.send(commands.CloseSession(session, "session_closed", "over"))
    scene.job.die(rank)
    scene.others_go_on(f"{times} times")
    assert scene.engine.counters()["filter_ENOMEM"] >= times


@pytest.mark.check(102, "a lane on which every call fails ends, and its session with it")
@pytest.mark.parametrize("name", ["recv", "send"])
def test_a_lane_that_always_fails(scene: Scene, name: str) -> None:
    scene.renew()
    scene.calls.arm(
        name, errno.ENOMEM, kind=Kind.LANE, times=kernel_errors.TRIES, inode=scene.victims[0].inode
    )
    assert not exchange(scene)
    scene.others_go_on(name)
    assert scene.engine.counters()["lane_ENOMEM"] >= kernel_errors.TRIES
    scene.renew()


@dataclass
class Wide:
    """Two engines with two paths each."""

    calls: FailingCalls
    job: Job


@pytest.fixture
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wide]:
    calls = FailingCalls(tmp_path_factory.mktemp("wide"))
    made = Wide(calls, Job(2, lambda rank: configure(rank, paths=2), calls.before(ENGINE)))
    yield made
    calls.disarm()
    made.job.close()


@pytest.mark.check(102, "a path whose send buffer stays full stops no other path and no other job")
def test_a_full_path_stops_no_other(wide: Wide, measured: Measured) -> None:
    job, took = wide.job, list[float]()
    other = [job.open(rank, session=2) for rank in range(2)]
    works(job.ranks, 1)
    works(other, 1)
    port = job.endpoints[0][0].port
    wide.calls.arm("sendmmsg sendmsg", errno.EAGAIN, kind=Kind.UDP, port=port, times=FOR_EVER)
    for number in range(2, 12):
        for ranks in (job.ranks, other):
            began = time.monotonic()
            for rank in ranks:
                rank.submit(number, count=250_000)
            for rank in ranks:
                outcome = rank.outcome(number)
                assert isinstance(outcome, Completed), outcome
            took.append(time.monotonic() - began)
    assert wide.calls.fired
    assert max(took) < PATIENCE / 4
    paths = job.engines[0].report()
    assert paths["counters"].get("internal", 0) == 0
    measured(f"20 operations of 1 MB, the slowest {max(took):.2f} s, {wide.calls.fired} times full")
    wide.calls.disarm()
    works(job.ranks, 12)


@pytest.mark.check(102, "a path whose socket has gone: the others take what it would carry")
def test_a_path_without_a_socket(wide: Wide) -> None:
    job = wide.job
    port = job.endpoints[0][0].port
    wide.calls.arm("recvmmsg", errno.EBADF, kind=Kind.UDP, port=port, times=FOR_EVER)
    number, until = 0, time.monotonic() + PATIENCE
    while wide.calls.fired < kernel_errors.TRIES:
        assert time.monotonic() < until, "it is not read"
        number += 1
        works(job.ranks, number)
    for following in range(number + 1, number + 6):
        works(job.ranks, following)
    assert wide.calls.fired == kernel_errors.TRIES, "the call is no longer repeated"
    assert job.engines[0].counters()["internal"] == wide.calls.fired, "and each failure told"


@pytest.mark.check(102, "no path is left: the engine ends, and control starts another one")
def test_no_path_is_left(wide: Wide) -> None:
    job = wide.job
    wide.calls.arm("recvmmsg", errno.EBADF, kind=Kind.UDP, times=FOR_EVER)
    for rank in job.ranks:
        rank.submit(1, count=1000)
    assert job.engines[0].process.wait(PATIENCE) == 1

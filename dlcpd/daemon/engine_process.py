"""The engine as a child process, controlled over one SEQPACKET socket."""

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dlcpd import starter
from dlcpd.contract.errors import DaemonLost, DlcpError, error_for
from dlcpd.daemon import log
from dlcpd.daemon.child import Child
from dlcpd.daemon.clients.channel import PacketChannel
from dlcpd.daemon.engine_reports import add_part
from dlcpd.daemon.process_usage import runs
from dlcpd.io.commands import AliveRequest, Command, ReportRequest, Stop, TraceOperations
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_events import Alive, EngineFailed, EngineReady, Event, Report, TraceReport
from dlcpd.io.control_frames import pack, unpack

ENGINE: Final = tuple(starter.command("dlcpd.io.engine"))
START_TIMEOUT: Final = 30.0  # seconds; importing numpy takes 10 s on a cold, loaded machine
# Seconds without any part of a report; then the report says that the engine did not answer. A
# client waits longer (inspection.conversation).
REPORT_TIMEOUT: Final = 3.0
STOP_GRACE: Final = 2.0  # seconds beyond the drain before the engine is killed
# Queued commands, beyond about 50 in the socket's buffer. An engine may be busy for seconds with
# one operation: that is no reason to end it and all its sessions.
BEHIND: Final = 64  # from here on, commands that can be deferred or merged are
BUSY: Final = 1024  # from here on, no session is opened; open ones add a few commands each
MAX_REPORTS: Final = 16  # requests the engine has not answered
# Seconds from an answer until an engine without work sleeps again; it takes 1 ms on idle CPUs.
SETTLE: Final = 0.1
END_WAIT: Final = 0.2  # seconds from an engine's closed socket to its exit; 1 ms on idle CPUs


class EngineProcess:
    """Owns the child. `on_event` gets its events, `on_exit` a text if it ends unexpectedly."""

    def __init__(
        self,
        *,
        on_event: Callable[[Event], None],
        on_exit: Callable[[str], None],
        command: Sequence[str] = ENGINE,
    ) -> None:
        self._on_event, self._on_exit, self._command = on_event, on_exit, command
        # by kind of answer: unanswered requests, oldest first
        self._asked: dict[type, deque[asyncio.Future[dict[str, Any]]]] = {
            Report: deque(),
            TraceReport: deque(),
            Alive: deque(),
        }
        self._parts: dict[str, Any] = {}  # of the report that is arriving
        self._heard = 0  # answers, and parts of answers
        self._asleep = b""  # what `runs` said once it had answered; empty: not known
        self._serving = False  # between EngineReady and `stop` or `kill`
        self._process: Child
        self._channel: PacketChannel
        self._ready: asyncio.Future[EngineReady]

    async def start(self, config: EngineConfig, environ: Mapping[str, str]) -> EngineReady:
        """Start the child and wait for its sockets.

        Raises: DlcpError with the engine's own code and text; DaemonLost; OSError.
        """
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = self._child(theirs, config, environ)
        except BaseException:
            ours.close()
            raise
        self._channel = PacketChannel(
            loop, ours, on_packet=self._packet, on_end=self._ended, max_outbox=None
        )
        try:
            return await asyncio.wait_for(self._ready, START_TIMEOUT)
        except TimeoutError:
            await self.stop(0.0)
            raise DaemonLost(f"the engine was not ready after {START_TIMEOUT:g} s") from None
        except DlcpError:
            await self.stop(0.0)
            raise
        except asyncio.CancelledError:  # the daemon ends
            self.kill()
            self._channel.close()
            raise

    def _child(
        self, theirs: socket.socket, config: EngineConfig, environ: Mapping[str, str]
    ) -> Child:
        """Raises: OSError."""
        with theirs:
            number = theirs.fileno()
            command = [*self._command, "--fd", str(number)]
            variables = starter.environment(environ) | {"DLCPD_ENGINE_CONFIG": config.to_json()}
            return Child(command, variables, [number])

    def send(self, command: Command, descriptors: Sequence[int] = ()) -> None:
        """Queue a command. Takes over the descriptors."""
        self._channel.send(pack(command), descriptors)

    def listen(self) -> None:
        """Handle the engine's packets that have already arrived."""
        self._channel.read_waiting()

    @property
    def waiting(self) -> int:
        """Number of queued commands that the engine has not taken."""
        return self._channel.waiting

    async def report(self, ledger: int) -> dict[str, Any]:
        """The engine's report; {"error": ...} if nothing of it comes for REPORT_TIMEOUT seconds."""
        return await self._ask(ReportRequest(ledger), Report)

    async def answers(self, within: float) -> bool:
        """Whether the engine answers `within` seconds."""
        if "error" in await self._ask(AliveRequest(), Alive, within):
            return False
        asyncio.get_running_loop().call_later(SETTLE, self._note_sleep)
        return True

    @property
    def asleep(self) -> bool:
        """Whether the engine answered, and has not run since: it waits for work, and would answer
        again. One that hangs has run for the work in which it hangs; one that was stopped has run
        to be stopped."""
        return bool(self._asleep) and not self.waiting and runs(self.pid) == self._asleep

    def _note_sleep(self) -> None:
        self._asleep = runs(self.pid)

    async def trace(self, what: str) -> dict[str, Any]:
        """State of the recording; {"error": ...} if the engine does not answer in time."""
        return await self._ask(TraceOperations(what), TraceReport)

    async def _ask(
        self, request: Command, kind: type, within: float = REPORT_TIMEOUT
    ) -> dict[str, Any]:
        asked = self._asked[kind]
        if len(asked) >= MAX_REPORTS:
            return {"error": f"the engine owes {MAX_REPORTS} reports already"}
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        asked.append(answer)  # stays there when late: answers come in order
        self.send(request)
        heard = -1
        while not answer.done() and heard != self._heard:  # large reports come in many parts
            heard = self._heard
            await asyncio.wait((answer,), timeout=within)
        if answer.done():
            return answer.result()
        answer.cancel()
        return {"error": f"the engine did not answer within {within:g} s"}

    async def stop(self, drain: float) -> None:
        """End the child: open operations may finish for `drain` seconds. Then it is killed."""
        self._serving = False
        self.send(Stop(drain))
        try:
            await asyncio.wait_for(self._process.wait(), drain + STOP_GRACE)
        except TimeoutError:
            log.error("engine_killed", after=drain + STOP_GRACE)
        finally:
            self.kill()
            self._channel.close()
        await self._process.wait()

    def kill(self) -> None:
        """End the child at once."""
        self._serving = False
        self._process.kill()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def _packet(self, data: bytes) -> None:
        match event := unpack(data):
            case EngineReady() as ready if not self._ready.done():
                self._serving = True
                self._ready.set_result(ready)
            case EngineFailed(code, text) if not self._ready.done():
                self._ready.set_exception(error_for(code, text))
            case Report(part, last) if self._asked[Report]:
                self._heard += 1
                add_part(self._parts, part)
                if last:
                    whole, self._parts = self._parts, {}
                    self._answered(Report, whole)
            case TraceReport(report) if self._asked[TraceReport]:
                self._answered(TraceReport, report)
            case Alive() if self._asked[Alive]:
                self._answered(Alive, {})
            case _:
                self._on_event(event)  # type: ignore[arg-type]  # the engine sends events only

    def _answered(self, kind: type, report: dict[str, Any]) -> None:
        self._heard += 1
        answer = self._asked[kind].popleft()
        if not answer.done():
            answer.set_result(report)

    def _ended(self, why: str) -> None:
        how = _how_it_ended(self._process) or why
        for answers in self._asked.values():
            while answers:
                if not (answer := answers.popleft()).done():
                    answer.set_result({"error": f"the engine {how}"})
        if not self._ready.done():
            self._ready.set_exception(
                DaemonLost(f"the engine {how} before it was ready; see above")
            )
        elif self._serving:
            self.kill()  # without its socket it does nothing more, and may hang
            self._on_exit(f"the engine (process {self.pid}) {how}")


def _how_it_ended(process: Child) -> str:
    """How a child ended, in words; "" if unknown."""
    code = process.returncode
    if code is None:  # not reaped yet: the event loop does that
        code = _exit_code(process.pid)
    if code is None:
        return ""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _exit_code(pid: int) -> int | None:
    """Exit status of a child, without reaping it; as `Child.returncode`. None: runs, or is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(END_WAIT * 1000)
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return None
    finally:
        os.close(pidfd)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

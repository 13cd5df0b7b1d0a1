"""IPC messages of operators, on the session socket: the daemon's state, whether it takes new jobs,
and probes. Source: docs/ipc.md.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias

from msgspec import DecodeError, json

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.forms import MAX_TEXT, IpcMessage, between, most, plain
from dlcpd.contract.limits import MAX_ENGINES

STATUS_PART: Final = 128 * 1024  # bytes of a status in one message
MAX_PARTS: Final = 1024  # of a status: 128 MiB
TRACE: Final = ("start", "look", "stop", "take", "forget")  # requests to a recording of events

if TYPE_CHECKING:
    TraceCommand: TypeAlias = str
else:  # the type checker cannot read tables
    TraceCommand = Literal[TRACE]


class _Reporting(IpcMessage, frozen=True):
    """A message with a map in JSON: other encodings let the sender choose how much memory a reader
    reserves."""

    report: bytes  # JSON

    @classmethod
    def of(cls, report: dict[str, Any]) -> Self:
        """The message that has this report."""
        return cls(json.encode(report, enc_hook=plain))

    def read(self, before: bytes = b"") -> dict[str, Any]:
        """The report, of which `before` is the part that came earlier. Raises: BadMessage."""
        try:
            return json.decode(before + self.report, type=dict[str, Any])
        except (DecodeError, UnicodeDecodeError, RecursionError) as exc:
            name = type(self).__name__
            raise BadMessage(f"{name}.report: no JSON map: {type(exc).__name__}") from exc


class StatusRequest(IpcMessage, frozen=True, tag=4):
    """Ask for the daemon's state; allowed before and after Join."""

    ledger: Annotated[int, between(0, 10_000)]  # newest ledger rows wanted


class Status(_Reporting, frozen=True, tag=5):
    """The daemon's state as a JSON-like map; keys in docs/ipc.md. A long one comes in several
    messages, each with the next bytes of the JSON."""

    left: Annotated[int, between(0, MAX_PARTS - 1)] = 0  # messages that follow

    @classmethod
    def parts(cls, report: dict[str, Any]) -> "list[Status]":
        """The messages of a report. One of more than MAX_PARTS is cut, and cannot be read."""
        data = json.encode(report, enc_hook=plain)
        starts = range(0, len(data), STATUS_PART)[:MAX_PARTS]
        return [
            cls(data[start : start + STATUS_PART], len(starts) - number)
            for number, start in enumerate(starts, 1)
        ]


class TraceRequest(IpcMessage, frozen=True, tag=15):
    """Record events of the operations of an engine, or return them; allowed after Hello.

    One connection at a time records; its recording ends with it.
    """

    engine: Annotated[int, between(0, MAX_ENGINES - 1)]
    what: TraceCommand


class Traced(_Reporting, frozen=True, tag=16):
    """State of a recording, with events if they were requested; keys in docs/ipc.md."""


class HealthRequest(IpcMessage, frozen=True, tag=17):
    """Ask whether the daemon lives and takes new jobs; allowed after Hello. Engines are not
    asked."""


class Health(IpcMessage, frozen=True, tag=18):
    """Answer to HealthRequest and CordonRequest."""

    healthy: bool  # a restart would not help
    ready: bool  # new jobs are taken
    text: Annotated[str, most(16 * MAX_TEXT)] = ""  # why one of them is false


class CordonRequest(IpcMessage, frozen=True, tag=19):
    """Take no new jobs, or take them again; allowed after Hello to root and the daemon's user.
    Answered with Health."""

    on: bool
    kept: bool  # also for later daemons at this socket, until a request with `on` false
    why: Annotated[str, most(MAX_TEXT)]  # for the jobs that are refused; "" = no reason


class ProbeRequest(IpcMessage, frozen=True, tag=22):
    """Measure the links of a job whose rank 0 this daemon has; allowed after Hello to root and the
    daemon's user."""

    job: Annotated[str, most(128)]  # "" = the only one
    adopt: bool  # offer the result to the job


class Probed(_Reporting, frozen=True, tag=23):
    """Answer to ProbeRequest; keys in docs/ipc.md."""

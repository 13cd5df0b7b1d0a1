"""Metrics and summary, common to all registrations."""

from typing import Any, Final
from weakref import ref

from dlcp_client.group import Group
from dlcp_client.meeting import await_ranks
from dlcp_client.operations.ledger import Ledger
from dlcp_client.report import lines
from dlcp_client.report.account import Account
from dlcp_client.report.ranks import DEADLINE, RankTotals
from dlcp_client.report.text import summary
from dlcp_client.report.totals import Totals
from dlcp_client.report.windows import ReportWindows
from dlcp_client.reporting import JsonLines, Log
from dlcp_client.session import Session
from dlcpd.contract.errors import DeadlineExceeded, PeerLost, SessionClosed
from dlcpd.contract.policy import LossPolicy

# Seconds for the daemon to report its paths. It gives its engine one; a training that asks every
# 100 steps waits at most 0.01 s per step on average.
PATHS_TIMEOUT: Final = 1.0


class Registered:
    """One model's registration; `session` is None if another transport is in use.

    A copy, as of a copied or pickled model, is closed: only the original has a session.
    """

    copied = False
    _meetings: Group[Any] | None = None

    session: Session | None
    account: Account
    _how = ""  # the call that registered, until the last line is logged

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (type(self),)

    def __getattr__(self, name: str) -> Any:
        """An attribute that a copy lacks. Raises: SessionClosed."""
        if self.copied and not name.startswith("__"):
            raise SessionClosed(
                f"this registration belongs to a copy of a model, and is closed: {name} works "
                "on the original. Register the copied model to train it through dlcpd"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def policy(self) -> LossPolicy:
        """The present policy."""
        raise NotImplementedError

    @property
    def ledger(self) -> Ledger:
        """Totals of the session: segments sent, retransmitted, waived, reapplied and lost."""
        return self.session.ledger if self.session else Ledger()

    @property
    def totals(self) -> Totals:
        """Totals since `register`. For an interval, use `later.since(earlier)`."""
        return self.account.totals(self.session)

    def begun(self, how: str) -> None:
        """Log the configuration, and, at the end of the registration or session, the totals."""
        if self.session is None:
            return
        self._how = how
        lines.start(self.session, self.policy, how)
        mine = ref(self)  # a session may outlive the model

        def over() -> None:
            if (registration := mine()) is not None:
                registration.over()

        self.session.at_close(over)

    def over(self) -> None:
        """Log the totals, once."""
        how, self._how = self._how, ""
        if how and self.session is not None:
            lines.end(self.session, self.totals, self.policy, how, waits=self.account.waits)

    def metrics(self, since: Totals | None = None) -> dict[str, Any]:
        """Plain numbers for a logger, of this rank, since `register`, or since earlier `totals`.

        `steps`; `bytes` handed to dlcpd, `bounded_bytes` of them under a bounded policy; of the
        session `operations`, `segments` sent, `retransmitted` and `reapplied`; of this model's
        bounded operations `waived`, `loss` (a fraction of their segments; `bound` is the present
        limit) and `energy_lost` (of a contribution's sum of squares, on average);
        `exchange_saved`: the fraction of the exchange time that bounded mode saved in the last
        steps compared, below 0 if it took longer; `exposed_s`: seconds that a step waited for
        gradients, and `step_s`: seconds from one step to the next, both on average; `paths`, and
        `paths_in_alarm`: down, or gray.

        Unknown values are omitted: waits of a model on a device, numbers of the network without a
        session, those of paths if the daemon does not answer within a second, `exchange_saved`
        without a guard or `transport="auto"`, and before five exact steps were compared.
        """
        totals = self.totals if since is None else self.totals.since(since)
        found = totals.scalars(waits=self.account.waits, network=self.session is not None)
        if self.session is None:
            return found
        return found | {"bound": self.policy.max_loss} | paths_of(self.session)

    def report_to(self, log: Log | None = None, *, every: int = 100, prefix: str = "dlcp/") -> None:
        """Every `every` steps, call log(scalars, step) with the `metrics` of those steps, their
        names after `prefix`, on each rank that calls this; rank 0 also logs a line, at level INFO.

        The call takes place when the next step begins, in the training's backward pass. A logger
        that raises is not called again. `dlcp_client.reporting.each` adapts a logger of single
        scalars.

        Raises: BadConfig.
        """
        if isinstance(log, JsonLines) and self.session is not None:
            log.run = run_of(self.session)
        speaks = self.session is not None and self.session.rank == 0
        windows = ReportWindows(
            log, every, prefix, speaks=speaks, totals=lambda: self.totals, measure=self.metrics
        )
        self.account.on_step.append(windows.ended)

    def meet(self, session: Session, call: str) -> None:
        """Wait until all ranks make this call, at the same point. If one does not, the training's
        operations are unaffected.

        Raises: DeadlineExceeded, naming the call.
        """
        if self._meetings is None:
            ranks = range(session.world_size)
            self._meetings = session.group(ranks, "calls of all ranks", timeout=DEADLINE)
        try:
            await_ranks(self._meetings, DEADLINE, what=call, tag=self.totals.steps, every=True)
        except (PeerLost, DeadlineExceeded) as exc:
            if session.failure() is not None:
                raise
            raise DeadlineExceeded(
                f"all ranks must call {call} at the same point; the training can continue: {exc}"
            ) from exc

    def summary(self, *, all_ranks: bool = False) -> str:
        """A summary of a few lines: losses against the bound, by layer, the exchange time that
        bounded mode saved if it was compared with exact steps, and the time spent waiting.

        `all_ranks`: every rank calls it at the same point, between two steps, and gets a line on
        all of them; it costs a small all-gather, within 30 s.

        Raises: with `all_ranks`, the error of the all-gather, such as DeadlineExceeded if a
            rank does not call it. The training can continue.
        """
        totals, account = self.totals, self.account
        said = summary(totals, self.policy, account.labels, waits=account.waits)
        if all_ranks and self.session is not None:
            self.meet(self.session, "summary(all_ranks=True)")
            said.append(RankTotals.gather(self.session.world, totals).text(waits=account.waits))
        return "\n".join(said)


def _copy(kind: type[Registered]) -> Registered:
    made = kind.__new__(kind)
    made.copied = True
    return made


def run_of(session: Session) -> dict[str, Any]:
    """Host, build, settings, job and hosts of peers, in the form of the daemon's report; {}
    without an answer."""
    report = session.status(PATHS_TIMEOUT)
    for row in report.get("sessions", []):
        if row["session"] == session.number:
            hosts = sorted({peer["host"] for peer in row["peers"]})
            mine = {key: row[key] for key in ("job", "rank", "world_size")}
            about = {key: report.get(key) for key in ("host", "version", "commit", "config")}
            return about | {"sessions": [mine | {"peers": [{"host": host} for host in hosts]}]}
    return {}


def paths_of(session: Session) -> dict[str, Any]:
    """The number of paths to peers, and of those that are down or gray."""
    engine = session.status(PATHS_TIMEOUT).get("engine", {})
    mine = engine.get("sessions", {}).get(str(session.number))
    if mine is None:
        return {}
    paths = [path for peer in mine.get("peers", []) for path in peer.get("paths", [])]
    alarms = [path for path in paths if path.get("gray") or not path.get("up", True)]
    return {"paths": len(paths), "paths_in_alarm": len(alarms)}

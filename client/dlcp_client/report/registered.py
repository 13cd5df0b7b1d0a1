"""What every registration says of itself: metrics, and a summary."""

from typing import Any, Final
from weakref import ref

from dlcp_client.group import Group
from dlcp_client.operations.ledger import Ledger
from dlcp_client.report import lines
from dlcp_client.report.account import Account
from dlcp_client.report.ranks import DEADLINE, Ranks
from dlcp_client.report.text import summary
from dlcp_client.report.totals import Totals
from dlcp_client.report.windows import Windows
from dlcp_client.reporting import Log
from dlcp_client.session import Session
from dlcp_client.torch.meeting import await_ranks
from dlcpd.contract.errors import DeadlineExceeded, PeerLost, SessionClosed
from dlcpd.contract.policy import LossPolicy

# Seconds for the daemon to say how its paths are. It gives its engine one; a training that asks
# every hundred steps waits for a hundredth of that at most.
PATHS_TIMEOUT: Final = 1.0


class Registered:
    """One model's registration, `session` None where another transport is in use.

    A copy, as with a copied or pickled model, is closed: only the original has a session.
    """

    copied = False
    _meetings: Group[Any] | None = None

    session: Session | None
    account: Account
    _how = ""  # who registered what, until the line at the end is written

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (type(self),)

    def __getattr__(self, name: str) -> Any:
        """Of what a copy lacks. Raises: SessionClosed."""
        if self.copied and not name.startswith("__"):
            raise SessionClosed(
                f"this registration is a copy, and closed: {name} is the original's. Register the "
                f"copied model to train it through dlcpd"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def policy(self) -> LossPolicy:
        """What may be lost, at present."""
        raise NotImplementedError

    @property
    def ledger(self) -> Ledger:
        """Totals of the session: what was sent, retransmitted, waived, reapplied and lost."""
        return self.session.ledger if self.session else Ledger()

    @property
    def totals(self) -> Totals:
        """Since `register`. What came in between is the difference: `later.since(earlier)`."""
        return self.account.totals(self.session)

    def begun(self, how: str) -> None:
        """Say what was found, and at the end of registration or session, how it went."""
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
        """Say how it went, once."""
        how, self._how = self._how, ""
        if how and self.session is not None:
            lines.end(self.session, self.totals, self.policy, how, waits=self.account.waits)

    def metrics(self, since: Totals | None = None) -> dict[str, Any]:
        """Plain numbers for a logger, of this rank, since `register`, or since earlier `totals`.

        `steps`; `bytes` handed to dlcpd, `bounded_bytes` of them under a bounded policy;
        of the session `operations`, `segments` sent, `retransmitted` and `reapplied`; of this
        model's bounded operations `waived`, `loss` (a fraction of their segments; `bound` is what
        the policy allows now) and `energy_lost` (of a contribution's sum of squares, on average);
        `exposed_s`: seconds that a step stood still for gradients, and `step_s`: from one step to
        the next, both on average; `paths`, and `paths_in_alarm`: down, or losing too much.

        What is not known is left out: waits of a model on a device, numbers of the network where
        there is no session, those of paths when the daemon does not answer within a second.
        """
        totals = self.totals if since is None else self.totals.since(since)
        found = totals.scalars(waits=self.account.waits, network=self.session is not None)
        if self.session is None:
            return found
        return found | {"bound": self.policy.max_loss} | paths_of(self.session)

    def report_to(self, log: Log | None = None, *, every: int = 100, prefix: str = "dlcp/") -> None:
        """Every so many steps, call log(scalars, step) with the `metrics` of those steps, their
        names after `prefix`, on each rank that asks; rank 0 also writes a line, at level INFO.

        Called when the next step begins, in the training's backward pass. A logger that raises is
        not called again. `dlcp_client.reporting` has `each`, for one that takes scalar by scalar.

        Raises: BadConfig.
        """
        speaks = self.session is not None and self.session.rank == 0
        windows = Windows(
            log, every, prefix, speaks=speaks, totals=lambda: self.totals, measure=self.metrics
        )
        self.account.on_step.append(windows.ended)

    def meet(self, session: Session, call: str) -> None:
        """Wait for all ranks: each makes this call at the same point. Where one does not, none of
        the training's operations fails.

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
                f"{call} is for all ranks at the same point; the training can go on: {exc}"
            ) from exc

    def summary(self, *, all_ranks: bool = False) -> str:
        """A few lines for people: what was lost against the bound, by layer, and what waiting cost.

        `all_ranks`: every rank calls it at the same point, between two steps, and gets a line on
        all of them; it costs a small all-gather, which has 30 s.

        Raises: with `all_ranks`, what ended that, such as DeadlineExceeded where not every rank
            calls it. The training can go on.
        """
        totals, account = self.totals, self.account
        said = summary(totals, self.policy, account.labels, waits=account.waits)
        if all_ranks and self.session is not None:
            self.meet(self.session, "summary(all_ranks=True)")
            said.append(Ranks.gather(self.session.world, totals).text(waits=account.waits))
        return "\n".join(said)


def _copy(kind: type[Registered]) -> Registered:
    made = kind.__new__(kind)
    made.copied = True
    return made


def paths_of(session: Session) -> dict[str, Any]:
    """How many paths to peers there are, and how many of them are down or lose too much."""
    engine = session.status(PATHS_TIMEOUT).get("engine", {})
    mine = engine.get("sessions", {}).get(str(session.number))
    if mine is None:
        return {}
    paths = [path for peer in mine.get("peers", []) for path in peer.get("paths", [])]
    alarms = [path for path in paths if path.get("gray") or not path.get("up", True)]
    return {"paths": len(paths), "paths_in_alarm": len(alarms)}

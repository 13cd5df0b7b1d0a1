"""The requests of one group: each is checked, planned once, and made into an operation."""

from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from dlcpd.collectives.execution import Execution
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.loss.recording import Recording
from dlcpd.collectives.order import Group, Loss, Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.collectives import COLLECTIVES, WHOLE, Shape, Share
from dlcpd.contract.messages import Submit
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import EVERYBODY
from dlcpd.core.transfer.layers import Layers
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.numerics.elements import STORAGE
from dlcpd.requests.checks import check, check_apart, check_transfers, memory_of
from dlcpd.requests.networks import Networks
from dlcpd.requests.plan import Plans, RequestPlan, charge, most_left_over
from dlcpd.requests.rules import Rules
from dlcpd.requests.signature import fingerprint, signature
from dlcpd.requests.task import NOTHING, by_sender, choice_of, place, task_of
from dlcpd.schedules.catalog import Place, Task
from dlcpd.schedules.choose import Choice
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import JobNetwork

MOST_QUEUED: Final = 60.0  # seconds that a request may have lain in the lane
_BASIS: Final = {"none": "none", "shuffled": "chance"}  # of drop precedences, by setting


class LossRecorder(Protocol):
    """Records the losses of operations on disk (`dlcpd.ledger.recorder`)."""

    def plan(  # noqa: PLR0917  # everything that a replay needs
        self, ask: Submit, group: Group, task: Task, choice: Choice, place: Place, share: Share
    ) -> Any:
        """The ledger's plan, for operations of equal requests."""

    def recording(self, order: Order, plan: Any, program: Program) -> Recording:
        """Recording of an operation that is about to begin; `plan` is a result of `plan`."""


@dataclass(slots=True, eq=False)
class GroupRequests:
    """Makes the operations of one group of one session."""

    rules: Rules
    scratch: ScratchPool  # of the engine
    session: Session
    group: Group
    share: Share = WHOLE  # of operations divided among the engines of this host
    plans: Plans = field(default_factory=Plans)
    ledger: LossRecorder | None = None  # of the session
    networks: Networks = field(default_factory=Networks)  # of the session
    round_trip: int = 0  # microseconds, the longest between two hosts of the session
    _network: JobNetwork | None = field(init=False)  # of the last operation
    _place: Place = field(init=False)  # in that network

    def __post_init__(self) -> None:
        self._enter(self.networks.first)

    def waits(self, ask: Submit) -> bool:
        """Whether the operation that `ask` describes may not begin before an offered network is
        settled."""
        message = COLLECTIVES[ask.collective].message
        return not message and self.networks.waits(self.group.number, self._next_number)

    def make(self, ask: Submit, arena: Bytes, accounts: Accounts, now: float) -> Execution:
        """The operation that `ask` describes; its memory is part of `arena`.

        Raises: BadMessage, BadPolicy; ArenaFull if it needs more memory than the engine may hold.
        """
        network = self.networks.at(self.group.number, self._next_number)
        if network is not self._network:
            self._enter(network)
        memory = memory_of(ask, arena, "input"), memory_of(ask, arena, "output")
        check_apart(ask, memory)
        plan = self._plan(ask)
        accounts.holdings.check(plan.charge + _left_over(ask, plan, accounts), plan.terms)
        loss = plan.loss if plan.loss.scale == ask.scale else replace(plan.loss, scale=ask.scale)
        order = Order(
            ask.operation,
            self.group,
            plan.terms,
            plan.fingerprint,
            deadline_of(ask, now),
            ask.dtype,
            ask.reduce,
            plan.layers,
            loss,
            ask.tag,
            ask.in_place,
            COLLECTIVES[ask.collective].shape is Shape.SENT,
            self.rules.digest_every,
            seed=self.session.number,
            codec=plan.codec,
            computes=ask.computes,
        )
        recording = None
        if self.ledger is not None and plan.recorded is not None:
            recording = self.ledger.recording(order, plan.recorded, plan.program)
        return Execution(
            order,
            plan.program,
            memory,
            self.scratch,
            accounts,
            plan.receiving,
            recording,
            plan.charge,
        )

    def _enter(self, network: JobNetwork | None) -> None:
        self._network = network
        chunk_bytes = self.rules.chunk_bytes
        self._place = place(self.group, self.session, chunk_bytes, network, self.round_trip)

    @property
    def _next_number(self) -> int:
        """Number of the collective that begins next; it is the next that is made."""
        stream = self.session.streams.get((self.group.number, EVERYBODY))
        return 1 if stream is None else stream.next_number()

    def _plan(self, ask: Submit) -> RequestPlan:
        """The plan of an earlier equal request, or a new one. All loss scales but 1 are alike."""
        key = (
            ask.collective,
            ask.schedule,
            ask.peer,
            ask.input_count,
            ask.output_count,
            ask.dtype,
            ask.reduce,
            ask.max_loss,
            ask.fill,
            ask.traffic_class,
            ask.name,
            ask.scale == 1.0,
            ask.divided,
            ask.codec,
            ask.computes,
            ask.adds,
            self.group.number,
            self._network.version if self._network is not None else 0,
            *ask.sizes,
            None,
            *ask.exempt,
            None,
            *ask.layers,
        )
        plan = self.plans.get(key)
        if plan is None:
            plan = self._new_plan(ask)
            self.plans.keep(key, plan)
        return plan

    def _new_plan(self, ask: Submit) -> RequestPlan:
        """Check a request, and plan it. Raises: BadMessage, BadPolicy."""
        share = self.share if ask.divided else WHOLE
        size = ask.input_count * STORAGE[ask.dtype].itemsize
        check(ask, self.group)
        task = task_of(ask, self.group)
        choice = choice_of(ask, task, self._place, share)
        receiving = by_sender(ask, task, self._place)
        program = choice.program if receiving is None else NOTHING
        check_transfers(ask, program)
        leaves = most_left_over(ask, size // share.of)
        return RequestPlan(
            program,
            signature(ask, self.group, choice, share),
            fingerprint(ask, self.group, choice, self._place.network),
            self._layers(ask),
            self._loss(ask),
            codec_of(ask.codec) if ask.codec else None,
            receiving,
            self._recorded(ask, task, choice, share),
            rows=len(ask.sizes) + len(ask.exempt) + len(ask.layers),
            charge=charge(ask, program) + (leaves if ask.codec else 0),
            leaves=leaves,
        )

    def _recorded(self, ask: Submit, task: Task, choice: Choice, share: Share) -> Any:
        """The ledger's plan. It keeps reductions that may lose something, or reapply a residual."""
        if self.ledger is None or not ask.name or not COLLECTIVES[ask.collective].may_lose:
            return None
        return self.ledger.plan(ask, self.group, task, choice, self._place, share)

    def _loss(self, ask: Submit) -> Loss:
        rules = self.rules
        return Loss(
            ask.max_loss,
            ask.name if COLLECTIVES[ask.collective].may_lose else "",
            ask.fill == "residual",
            tuple(ask.exempt),
            _BASIS.get(rules.drop_precedence, "magnitude"),
            rules.bounded_loss,
            ask.scale,
        )

    def _layers(self, ask: Submit) -> Layers:
        rows, last = ask.layers, len(traffic_classes()) - 1
        traffic_class = ask.traffic_class if self.rules.layer_priority else last
        if not self.rules.layer_priority:
            rows = [row._replace(traffic_class=last) for row in rows]
        return Layers.new(rows, traffic_class, ask.max_loss)


def _left_over(ask: Submit, plan: RequestPlan, accounts: Accounts) -> int:
    """Bytes of a new residual, at most; 0 if the name has a residual already."""
    known = (ask.name, ask.dtype, ask.input_count) in accounts.residuals
    return 0 if known else plan.leaves


def deadline_of(ask: Submit, now: float) -> float:
    """Absolute deadline. A time stamp older than MOST_QUEUED, or in the future, is ignored: a
    container may have its own monotonic clock."""
    stamped = ask.submitted and 0 <= now - ask.submitted <= MOST_QUEUED
    return (ask.submitted if stamped else now) + ask.deadline

"""What a client submits: checked against the arena and the rules, and made into an operation."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Final

from dlcpd.collectives.accounts import Accounts
from dlcpd.collectives.execution import Execution
from dlcpd.collectives.order import Group, Loss, Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.codec import check_takes, parsed
from dlcpd.contract.errors import BadMessage, BadPolicy
from dlcpd.contract.messages import LayerRow, Submit
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.session.session import Session
from dlcpd.core.transfer.layers import Layers
from dlcpd.core.wire.control import MAX_TEXT
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import MAX_TRANSFERS
from dlcpd.io.config import EngineConfig
from dlcpd.ledger import records
from dlcpd.ledger.recorder import Recorder
from dlcpd.numerics.codecs.codec import Codec
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.numerics.elements import INTEGERS, NARROW, STORAGE
from dlcpd.numerics.reduce import supports
from dlcpd.requests.task import Chosen, chosen, place
from dlcpd.schedules.catalog import Place
from dlcpd.schedules.choose import Choice
from dlcpd.schedules.coded import CODED
from dlcpd.schedules.divide import WHOLE, Share
from dlcpd.schedules.model import Program

# Of all plans of a client: a step takes some 540 B, so 54 MB at most. A bucket of 25 MB on 64
# ranks has 253: four hundred of them fit.
MAX_STEPS: Final = 100_000
PLAN_STEPS: Final = 16  # what a plan without steps counts as: terms, name, one layer
ROWS_OF_A_STEP: Final = 2  # rows (sizes, exempt ranges, layers) that take as much as a step
# An operation in flight: bytes for each step, and for each byte that it reads or writes
STEP_HELD: Final = 150
STATE: Final = 64  # bytes of a tensor, one of what is known of its segments
ALIGNMENT: Final = 64  # bytes; a cache line: where an operation's memory begins
MOST_QUEUED: Final = 60.0  # seconds that a request may have lain in the lane
MAX_RANKS_TEXT: Final = 64  # characters: the words of a READY have 256
REDUCING: Final = frozenset({"all_reduce", "reduce", "reduce_scatter"})
LOSSY: Final = frozenset({"all_reduce", "reduce_scatter"})  # those that gradients go by
KEPT_NARROW: Final = 2  # bytes of a residual for each byte of a 16-bit float
_BASIS: Final = {"none": "none", "shuffled": "chance"}  # of drop precedences, by setting


@dataclass(frozen=True, slots=True)
class Plan:
    """What operations that are asked for alike have in common, worked out once."""

    chosen: Chosen
    terms: str
    fingerprint: int
    layers: Layers
    loss: Loss
    codec: Codec | None = None
    recorded: records.Plan | None = None  # where a ledger is kept
    rows: int = 0  # of the ask
    charge: int = 0  # bytes that the engine holds for an operation in flight
    leaves: int = 0  # bytes that it may leave over for the next one, at most


class Plans:
    """Those of one client, all groups: the newest, as many as its operations may have steps."""

    def __init__(self, most: int = MAX_STEPS) -> None:
        self._most, self._size = most, 0
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans.values())

    def get(self, key: Hashable) -> Plan | None:
        """That of an ask alike, if it is known."""
        if key in self._plans:
            self._plans.move_to_end(key)
        return self._plans.get(key)

    def keep(self, key: Hashable, plan: Plan) -> None:
        """Know it from now on, and no longer those that were not asked for the longest time."""
        self._plans[key] = plan
        self._size += _size(plan)
        while self._size > self._most and len(self._plans) > 1:
            self._size -= _size(self._plans.popitem(last=False)[1])


def _size(plan: Plan) -> int:
    return PLAN_STEPS + len(plan.chosen.choice.program.steps) + plan.rows // ROWS_OF_A_STEP


@dataclass(slots=True, eq=False)
class Submissions:
    """Makes the operations of one group of one session."""

    config: EngineConfig
    scratch: ScratchPool  # of the engine
    session: Session
    group: Group
    share: Share = WHOLE  # of what is divided among the engines of this host
    plans: Plans = field(default_factory=Plans)
    recorder: Recorder | None = None  # of the session's ledger
    _place: Place = field(init=False)

    def __post_init__(self) -> None:
        self._place = place(self.group, self.session, self.config.chunk_bytes)

    def make(self, ask: Submit, arena: Bytes, accounts: Accounts, now: float) -> Execution:
        """The operation that `ask` describes; its memory is part of `arena`.

        Raises: BadMessage, BadPolicy; ArenaFull where the engine may not hold what it takes.
        """
        memory = _memory(ask, arena, "input"), _memory(ask, arena, "output")
        plan = self._plan(ask)
        accounts.holdings.check(plan.charge + _left_over(ask, plan, accounts), plan.terms)
        loss = plan.loss if plan.loss.scale == ask.scale else replace(plan.loss, scale=ask.scale)
        order = Order(
            ask.operation,
            self.group,
            plan.terms,
            plan.fingerprint,
            _deadline(ask, now),
            ask.dtype,
            ask.reduce,
            plan.layers,
            loss,
            ask.tag,
            ask.in_place,
            ask.collective == "send",
            self.config.digest_every,
            seed=self.session.number,
            codec=plan.codec,
        )
        chosen, program = plan.chosen, plan.chosen.choice.program
        recording = None
        if self.recorder is not None and plan.recorded is not None:
            recording = self.recorder.recording(order, plan.recorded, program)
        return Execution(
            order, program, memory, self.scratch, accounts, chosen.receiving, recording, plan.charge
        )

    def _plan(self, ask: Submit) -> Plan:
        """That of an earlier ask alike. Loss scales may differ, where both asks have one."""
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
            self.group.number,
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

    def _new_plan(self, ask: Submit) -> Plan:
        """Raises: BadMessage, BadPolicy."""
        share = self.share if ask.divided else WHOLE
        size = ask.input_count * STORAGE[ask.dtype].itemsize
        _check_peers(ask, self.group)
        _check_policy(ask)
        _check_exempt(ask, size)
        _check_layers(ask, size)
        _check_divided(ask)
        found = chosen(ask, self.group, self._place, share)
        _check_transfers(ask, found.choice.program)
        choice = found.choice
        leaves = _most_left_over(ask, size // share.of)
        return Plan(
            found,
            _terms(ask, self.group, choice, share),
            _fingerprint(ask, self.group, choice),
            self._layers(ask),
            self._loss(ask),
            codec_of(ask.codec) if ask.codec else None,
            self._recorded(ask, found, share),
            rows=len(ask.sizes) + len(ask.exempt) + len(ask.layers),
            charge=_charge(ask, choice.program) + (leaves if ask.codec else 0),
            leaves=leaves,
        )

    def _recorded(self, ask: Submit, found: Chosen, share: Share) -> records.Plan | None:
        """What a ledger keeps of operations like this: of reductions that may lose something, or
        bring it back."""
        if self.recorder is None or not ask.name or ask.collective not in LOSSY:
            return None
        task, choice, place = found.task, found.choice, self._place
        host = {rank: number for number, ranks in enumerate(place.hosts) for rank in ranks}
        members = [records.HostRow(m, host[at]) for at, m in enumerate(self.group.members)]
        return records.Plan(
            self.recorder.next_plan(),
            ask.name,
            ask.collective,
            choice.name,
            f"{choice.fingerprint:016x}",
            task.size,
            list(task.sizes),
            int(task.lossy),
            ask.dtype,
            ask.reduce,
            ask.max_loss,
            self.group.number,
            members,
            place.chunk_bytes,
            share.number,
            share.of,
            ask.codec,
        )

    def _loss(self, ask: Submit) -> Loss:
        config = self.config
        return Loss(
            ask.max_loss,
            ask.name if ask.collective in LOSSY else "",
            ask.fill == "residual",
            tuple(ask.exempt),
            _BASIS.get(config.drop_precedence, "magnitude"),
            config.bounded_loss,
            ask.scale,
        )

    def _layers(self, ask: Submit) -> Layers:
        rows, last = ask.layers, len(traffic_classes()) - 1
        traffic_class = ask.traffic_class if self.config.layer_priority else last
        if not self.config.layer_priority:
            rows = [row._replace(traffic_class=last) for row in rows]
        return Layers.new(rows, traffic_class, ask.max_loss)


def _charge(ask: Submit, program: Program) -> int:
    size = (ask.input_count + ask.output_count) * STORAGE[ask.dtype].itemsize
    return STEP_HELD * len(program.steps) + size // STATE


def _most_left_over(ask: Submit, size: int) -> int:
    """Bytes of a residual of `size` bytes of a tensor: a codec rounds all of them, and so does the
    addition of a residual to 16-bit floats. Those are kept as float32."""
    if ask.fill != "residual" or not (ask.codec or ask.max_loss):
        return 0
    left = size if ask.codec else int(size * ask.max_loss)
    return KEPT_NARROW * (left + size) if ask.dtype in NARROW else left


def _left_over(ask: Submit, plan: Plan, accounts: Accounts) -> int:
    """Bytes more than are kept for the name already."""
    known = (ask.name, ask.dtype, ask.input_count) in accounts.residuals
    return 0 if known else plan.leaves


def _deadline(ask: Submit, now: float) -> float:
    """Absolute. A stamp that this host's clock cannot have shown is not believed: a container may
    have a monotonic clock of its own."""
    stamped = ask.submitted and 0 <= now - ask.submitted <= MOST_QUEUED
    return (ask.submitted if stamped else now) + ask.deadline


def _memory(ask: Submit, arena: Bytes, which: str) -> Bytes:
    start, count = getattr(ask, which), getattr(ask, f"{which}_count")
    size = count * STORAGE[ask.dtype].itemsize
    if start % ALIGNMENT or start + size > len(arena):
        raise BadMessage(
            f"operation {ask.operation}: {which} of {size} B at {start} is not in the arena, or "
            f"not at a multiple of {ALIGNMENT}"
        )
    return arena[start : start + size]


def _terms(ask: Submit, group: Group, choice: Choice, share: Share) -> str:
    """What both ends of a transfer must have submitted, in words."""
    if ask.collective in ("send", "receive"):
        return f"message of {ask.dtype}{_among(group)}"
    what = f"{ask.reduce} of " if ask.collective in REDUCING else ""
    root = f" root {ask.peer}" if ask.peer >= 0 else ""
    count = f"[{ask.input_count}]" if ask.collective in ("all_reduce", "reduce") else ""
    loss = f"max_loss {ask.max_loss:g}, fill {ask.fill}" if ask.max_loss else "exact"
    if ask.codec:
        loss += f", codec {ask.codec}" + (", fill zero" if ask.fill == "zero" else "")
    words = (
        f"{ask.collective} {what}{ask.dtype}{count}{root}, {loss}, class {ask.traffic_class}, "
        f"schedule {choice.name}{_among(group)}"
    )
    if share.of > 1:
        words += f", part {share.number + 1} of {share.of}"
    digests = {"name": ask.name, "exempt ranges": ask.exempt, "layers": ask.layers}
    said = words + "".join(f", {k} {_digest(v) % (1 << 32):08x}" for k, v in digests.items() if v)
    return said[:MAX_TEXT]  # the fingerprint covers what is cut off


def _digest(value: object) -> int:
    """Of what would be too long to say."""
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest(), "little")


def _among(group: Group) -> str:
    """Its ranks and name, which each member says for itself; the first of them where they are
    many. So two groups that were given one number are told apart."""
    if not group.number:
        return ""
    ranks = ",".join(map(str, group.members))
    named = f", group {group.name!a}"
    return f", ranks {_cut(ranks)}{_cut(named)}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_RANKS_TEXT else text[:MAX_RANKS_TEXT] + "..."


def _fingerprint(ask: Submit, group: Group, choice: Choice) -> int:
    """Of what the words leave out: ranks, name of the group and of the operation, exempt ranges,
    layers, schedule in full."""
    what = (group.members, group.name, ask.name, ask.exempt, ask.layers, choice.fingerprint)
    return _digest(what)


def _check_peers(ask: Submit, group: Group) -> None:
    if ask.peer >= group.size:
        raise BadMessage(f"{ask.collective} names rank {ask.peer} of a group of {group.size}")
    if ask.sizes and len(ask.sizes) != group.size:
        raise BadMessage(f"{len(ask.sizes)} rows of sizes for a group of {group.size}")
    if any(amount < 0 for row in ask.sizes for amount in row):
        raise BadMessage("sizes are counts of elements, not negative")


def _check_policy(ask: Submit) -> None:
    if ask.max_loss and ask.collective not in LOSSY:
        raise BadPolicy(f"{ask.collective} is always exact: only gradients may lose anything")
    if ask.max_loss and ask.reduce not in ("sum", "avg"):
        raise BadPolicy(f"{ask.reduce} cannot lose anything: use an exact policy")
    if ask.max_loss and not ask.name:
        raise BadPolicy("a bounded operation needs a name, which keys its residual")
    if ask.codec:
        _check_codec(ask)
    if ask.scale != 1.0 and ask.dtype in INTEGERS:
        raise BadPolicy(f"scale {ask.scale:g}: {ask.dtype} carries no loss scale")
    if ask.collective in REDUCING and not supports(ask.dtype, ask.reduce):
        hint = ": use sum and divide" if ask.reduce == "avg" else ""
        raise BadPolicy(f"{ask.reduce} of {ask.dtype} is not defined{hint}")


def _check_codec(ask: Submit) -> None:
    if ask.collective not in CODED:
        raise BadPolicy(f"{ask.collective} has no codec: only {' and '.join(CODED)} can have one")
    check_takes(parsed(ask.codec), ask.dtype, ask.reduce)
    if ask.fill == "residual" and not ask.name:
        raise BadPolicy("an operation with a codec needs a name, which keys its residual")


def _check_transfers(ask: Submit, program: Program) -> None:
    most = max((index for _, index in (*program.sends, *program.receives)), default=0)
    if most >= MAX_TRANSFERS:
        raise BadMessage(
            f"operation {ask.operation}: {most + 1} transfers between two ranks, at most "
            f"{MAX_TRANSFERS}; make [network] chunk_bytes larger on all hosts"
        )


def _check_divided(ask: Submit) -> None:
    """Both ends of every transfer must find it in the same part."""
    if ask.divided and (ask.sizes or ask.collective in ("barrier", "send", "receive")):
        raise BadMessage(f"operation {ask.operation}: {ask.collective} here cannot be divided")


def _check_exempt(ask: Submit, size: int) -> None:
    end = 0
    for start, stop in ask.exempt:
        if not end <= start < stop <= size:
            raise BadMessage(f"exempt range {start}..{stop}: sorted, disjoint, within {size} B")
        end = stop


def _check_layers(ask: Submit, size: int) -> None:
    known, starts = len(traffic_classes()), [row.start for row in ask.layers]
    ascending = all(a < b for a, b in pairwise(starts))
    if starts and not (starts[0] == 0 and ascending and starts[-1] < size):
        raise BadMessage(f"layers start at {starts[:4]}...: ascending from 0, within {size} B")
    for _, traffic_class, millionths in [LayerRow(0, ask.traffic_class, 0), *ask.layers]:
        if not 0 <= traffic_class < known or not 0 <= millionths <= round(ask.max_loss * 1e6):
            raise BadMessage(
                f"layer of class {traffic_class}, bound {millionths} millionths: classes are "
                f"0..{known - 1}, the bound at most that of the operation ({ask.max_loss:g})"
            )

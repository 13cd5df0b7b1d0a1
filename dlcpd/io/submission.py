"""What a client submits: checked against the arena and the rules, and made into an operation."""

from hashlib import blake2b
from itertools import pairwise
from typing import Final

from dlcpd.collectives.all_reduce import AllReduce, ScratchPool
from dlcpd.collectives.one_shot import OneShot
from dlcpd.collectives.reduction import Spec
from dlcpd.contract.errors import BadMessage, BadPolicy
from dlcpd.contract.messages import Submit
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.control import Ready
from dlcpd.core.datagram import Bytes
from dlcpd.core.layers import MILLION
from dlcpd.core.numbers import INTEGERS, STORAGE
from dlcpd.core.session import Session
from dlcpd.io.config import EngineConfig

_BASIS: Final = {"none": "none", "shuffled": "chance"}  # of drop ranks, by setting


class Workshop:
    """Makes the operations of one engine, which share its scratch memory."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._scratch = ScratchPool(config.chunk_bytes)

    def make(self, ask: Submit, arena: Bytes, session: Session, now: float) -> OneShot | AllReduce:
        """The operation that `ask` describes; its memory is part of `arena`.

        Raises: BadMessage, BadPolicy.
        """
        size = ask.count * STORAGE[ask.dtype].itemsize
        if ask.offset % 64 or ask.offset + size > len(arena):
            raise BadMessage(
                f"operation {ask.operation} is not in the arena: {size} B at {ask.offset}"
            )
        if ask.operation != session.submitted + 1:
            raise BadMessage(f"operation {ask.operation} after {session.submitted}")
        _check_policy(ask)
        _check_critical(ask, size)
        _check_layers(ask, size)
        config = self._config
        spec = Spec(
            ask.operation, ask.name, _ready(ask), now + ask.deadline, ask.in_place, ask.critical,
            config.digest_every, seed=session.number, layers=self._layers(ask),
            drop_ranks=_BASIS.get(config.drop_rank, "magnitude"), give_up=config.bounded_loss,
        )  # fmt: skip
        memory = arena[ask.offset : ask.offset + size]
        if OneShot.suits(size, ask.max_loss, session.world_size):
            return OneShot(spec, memory)
        return AllReduce(spec, memory, scratch=self._scratch)

    def _layers(self, ask: Submit) -> list[list[int]]:
        rows = ask.layers or [[0, ask.traffic_class, round(ask.max_loss * MILLION)]]
        if self._config.layer_priority:
            return rows
        last = len(traffic_classes()) - 1
        return [[start, last, bound] for start, _, bound in rows]


def _ready(ask: Submit) -> Ready:
    """What all ranks must have submitted alike."""
    text = repr((ask.name, ask.critical, ask.layers))
    mark = blake2b(text.encode(), digest_size=8).digest()
    return Ready(
        ask.dtype, ask.reduce, ask.fill, ask.traffic_class, ask.count, ask.max_loss,
        int.from_bytes(mark, "little"),
    )  # fmt: skip


def _check_policy(ask: Submit) -> None:
    if ask.max_loss and ask.reduce not in ("sum", "avg"):
        raise BadPolicy(f"{ask.reduce} cannot lose anything: use an exact policy")
    if ask.max_loss and not ask.name:
        raise BadPolicy("a bounded operation needs a name, which keys its residual")
    if ask.reduce == "avg" and ask.dtype in INTEGERS:
        raise BadPolicy(f"avg of {ask.dtype} would round: use sum and divide")


def _check_critical(ask: Submit, size: int) -> None:
    end = 0
    for start, stop in ask.critical:
        if not end <= start < stop <= size:
            raise BadMessage(f"critical range {start}..{stop}: sorted, disjoint, within {size} B")
        end = stop


def _check_layers(ask: Submit, size: int) -> None:
    known, starts = len(traffic_classes()), [row[0] for row in ask.layers]
    ascending = all(a < b for a, b in pairwise(starts))
    if starts and not (starts[0] == 0 and ascending and starts[-1] < size):
        raise BadMessage(f"layers start at {starts[:4]}...: ascending from 0, within {size} B")
    for _, traffic_class, millionths in [[0, ask.traffic_class, 0], *ask.layers]:
        if not 0 <= traffic_class < known or not 0 <= millionths <= round(ask.max_loss * 1e6):
            raise BadMessage(
                f"layer of class {traffic_class}, bound {millionths} millionths: classes are "
                f"0..{known - 1}, the bound at most that of the operation ({ask.max_loss:g})"
            )

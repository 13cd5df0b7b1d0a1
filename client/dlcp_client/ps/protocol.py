"""The messages of a worker and a shard in their session, and their order.

A worker asks, a shard answers; in between, parameters and gradients are sent in pieces:

    worker                                     shard
    request                          ->
    layout, parameters (INITIALISE)  ->        broadcast of the worker
    gradient (PUSH)                  ->        reduce-scatter in which only the shard has a part
                                     <-        reply, once the push is acknowledged
                                     <-        parameters (PULL), broadcast of the shard;
                                               or (STALE) what changed in them, reduce-scatter in
                                               which only the worker has a part

Values may be waived in a reduce-scatter, and come later; everything else is exact. A worker can
receive the parameters as soon as it asks (`RequestFlags.ahead`): the shard sends them with any
reply.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dlcp_client.group import Group
from dlcp_client.numpy.arrays import Array
from dlcp_client.operations.work import Work
from dlcp_client.ps.calls import SERVER
from dlcp_client.ps.join_request import PushAgreement
from dlcp_client.ps.layout import ShardLayout
from dlcp_client.ps.specs import FIELDS, Settings
from dlcpd.contract.errors import BadMessage, DlcpError, error_for
from dlcpd.contract.limits import MAX_WORLD
from dlcpd.contract.policy import LossPolicy, exact
from dlcpd.contract.times import MAX_TIME

REQUEST, REPLY = 1, 2  # tags
HEAD: Final = 3  # words of a request: flags, number of the push, milliseconds of patience
SAID: Final = 3  # words of a reply: failed, version, changed
ANSWER: Final = SAID + MAX_WORLD // 64  # the same, with a bit for each rank: lost
TEXT: Final = 1024  # bytes of an error in a reply

Words = NDArray[np.int64]


class RequestFlags(IntFlag):
    """Flags of a request."""

    INITIALISE = 1  # the layout and the parameters follow
    PUSH = 2
    FINITE = 4  # the gradient follows; without it a gradient of the worker has NaN or Inf
    LOSSY = 8  # the gradient is pushed with the worker's policy, else exactly
    PULL = 16
    WAIT = 32  # until there are parameters, and all workers of the launch have joined
    LEAVE = 64  # the last request
    STALE = 128  # with PULL: send the change since the last pull, with the policy of pulls

    @property
    def ahead(self) -> bool:
        """Whether parameters come with any reply. INITIALISE sends from the buffer for them."""
        return RequestFlags.PULL in self and not self & (
            RequestFlags.STALE | RequestFlags.INITIALISE
        )


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """A worker's request. `generations`: by piece, part of the name of its residual."""

    ask: RequestFlags
    number: int = 0
    settings: tuple[Settings, ...] = ()
    generations: tuple[int, ...] = ()
    patience: float = 0.0  # seconds, of WAIT

    def words(self, agreement: PushAgreement, pieces: int) -> Words:
        """The message form."""
        words = np.zeros(request_words(agreement, pieces), np.int64)
        words[:HEAD] = self.ask, self.number, int(1e3 * self.patience)
        fields = agreement.groups * len(FIELDS[agreement.optimizer])
        if self.settings:
            numbers = np.array(self.settings, np.float64).ravel()
            words[HEAD : HEAD + fields] = numbers.view(np.int64)
        if self.generations:
            words[HEAD + fields :] = self.generations
        return words

    @classmethod
    def of(cls, words: Words, agreement: PushAgreement) -> Self:
        """The request in a message. Raises: BadMessage."""
        try:
            ask = RequestFlags(int(words[0]))
        except ValueError as exc:
            raise BadMessage("a worker sent a request of unknown format") from exc
        each = len(FIELDS[agreement.optimizer])
        end = HEAD + agreement.groups * each
        numbers = words[HEAD:end].view(np.float64).reshape(agreement.groups, each)
        settings = tuple(tuple(map(float, row)) for row in numbers.tolist())
        patience = min(max(int(words[2]) / 1e3, 0.0), MAX_TIME)
        return cls(ask, int(words[1]), settings, tuple(words[end:].tolist()), patience)


@dataclass(frozen=True, slots=True)
class ShardReply:
    """A shard's reply. `changed`: whether the version of the push changed the parameters; False: it
    was skipped. `lost`: workers that have died; the shard no longer waits for them."""

    version: int
    changed: bool = True
    error: DlcpError | None = None
    lost: frozenset[int] = frozenset()

    def words(self) -> Words:
        """The message form."""
        words = np.zeros(ANSWER + TEXT // 8, np.int64)
        words[:SAID] = self.error is not None, self.version, self.changed
        bits = np.zeros(MAX_WORLD, np.uint8)
        bits[list(self.lost)] = 1
        words[SAID:ANSWER].view(np.uint8)[:] = np.packbits(bits, bitorder="little")
        if self.error is not None:
            text = f"{self.error.code}\n{self.error}".encode()[:TEXT]
            words[ANSWER:].view(np.uint8)[: len(text)] = np.frombuffer(text, np.uint8)
        return words

    @classmethod
    def of(cls, words: Words) -> Self:
        """The reply in a message."""
        error = None
        if words[0]:
            text = words[ANSWER:].tobytes().rstrip(b"\0").decode(errors="replace")
            code, _, why = text.partition("\n")
            error = error_for(code, why)
        bits = np.unpackbits(words[SAID:ANSWER].view(np.uint8), bitorder="little")
        lost = frozenset(map(int, np.flatnonzero(bits)))
        return cls(int(words[1]), bool(words[2]), error, lost)


def request_words(agreement: PushAgreement, pieces: int) -> int:
    """Number of words of a request."""
    return HEAD + agreement.groups * len(FIELDS[agreement.optimizer]) + pieces


def control(policy: LossPolicy) -> LossPolicy:
    """The policy of requests and replies: class "front", because data waits for them."""
    return exact(traffic_class="front", deadline=policy.deadline)


def move_lossy(  # noqa: PLR0913, PLR0917  # both ends pass all of them
    group: Group[Any],
    layout: ShardLayout,
    to: int,
    array: Array,
    output: Array | None,
    policy: LossPolicy,
    names: Sequence[str],
) -> list[Work[Any]]:
    """Move `array` of the other rank to rank `to`; both call it. `array` of `to` must be zeros; its
    `output` gets the sum. `names`: of the pieces; an exact operation, too, adds the residual of its
    name."""
    works = []
    for (start, stop), name in zip(layout.pieces, names, strict=True):
        exempt = layout.exempt((start, stop)) if policy.mode == "bounded" else ()
        size = stop - start
        works.append(
            group.reduce_scatter(
                output[start:stop] if output is not None else array[:0],
                array[start:stop],
                sizes=[size, 0] if to == SERVER else [0, size],
                policy=policy,
                name=name,
                exempt=exempt,
            )
        )
    return works


def names_of_push(generations: Sequence[int]) -> list[str]:
    """Names by piece."""
    return [f"push/{index}/{each}" for index, each in enumerate(generations)]


def names_of_pull(layout: ShardLayout, complete: int) -> list[str]:
    """Names by piece, after `complete` complete pulls: each of them clears all residuals."""
    return [f"pull/{index}/{complete}" for index in range(len(layout.pieces))]


def move_parameters(
    group: Group[Any], layout: ShardLayout, array: Array, root: int, policy: LossPolicy
) -> list[Work[Any]]:
    """Copy `array` of `root` to the other rank; both call it."""
    return [
        group.broadcast(array[start:stop], root, policy=policy) for start, stop in layout.pieces
    ]


def wait_all(works: Sequence[Work[Any]]) -> None:
    """Raises: the error of the first work that failed, after all have ended."""
    failure: DlcpError | None = None
    for work in works:
        try:
            work.wait()
        except DlcpError as exc:
            failure = failure or exc
    if failure is not None:
        raise failure

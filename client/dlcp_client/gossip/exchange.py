"""One exchange with the neighbours: all messages at once, then the average of what came.

A rank moves by the weighted sum of its differences from its neighbours, rather than to a weighted
sum of parameters: ranks that are equal then stay equal to the bit, and weights that float32 cannot
hold, such as a third, cannot make parameters grow step by step.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import torch

from dlcp_client.group import Group
from dlcpd.contract.policy import LossPolicy

from .buckets import Bucket
from .codecs import Codec, rounded

DOWN: Final = 0.25  # a sum of weighted differences is within four times the range
Weights = Mapping[int, Fraction]  # as of Graph.sources: offset of a source -> weight


class Neighbours:
    """Moves messages between this rank and its neighbours. Memory for what comes is kept."""

    def __init__(self, group: Group, policy: LossPolicy) -> None:
        self._group, self._policy = group, policy
        self._places: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}
        self.sent_bytes = 0

    def swap(
        self, messages: Sequence[torch.Tensor], offsets: Sequence[int]
    ) -> dict[int, list[torch.Tensor]]:
        """Send `messages` to rank + d for every offset d, and receive as many from rank - d.

        What came, by offset: good until the next call. Receives are submitted before any send, so
        whoever waits for room to send in waits for ranks that can take it.

        Raises: what ended a receive. What came is handed out complete or not at all.
        """
        group = self._group
        came: dict[int, list[torch.Tensor]] = {d: [] for d in offsets}
        works = []
        for d in offsets:
            for number, like in enumerate(messages):
                place = self._place(offsets.index(d), number, like)
                source = (group.rank - d) % group.size
                works.append(group.receive(place, source, number, policy=self._policy))
                came[d].append(place)
        for d in offsets:
            for number, message in enumerate(messages):
                to = (group.rank + d) % group.size
                works.append(group.send(message, to, number, policy=self._policy))
                self.sent_bytes += message.nbytes
        for work in works:
            work.wait()
        return came

    def forget(self) -> None:
        """Keep no memory for what came: messages of other sizes follow."""
        self._places.clear()

    def _place(self, neighbour: int, number: int, like: torch.Tensor) -> torch.Tensor:
        key = (neighbour, number, like.dtype)
        if key not in self._places:
            session = self._group.session
            self._places[key] = session.empty(like.shape, like.dtype, wait=self._policy.deadline)
        return self._places[key]


class Dense:
    """Parameters are sent as they are."""

    def __init__(self, buckets: Sequence[Bucket], neighbours: Neighbours) -> None:
        self._buckets, self._neighbours = buckets, neighbours

    def start(self, weights: Weights) -> None:
        """Nothing is known of neighbours before."""

    def restart(self) -> None:
        """Nothing is known that could be wrong now."""

    def step(self, weights: Weights) -> None:
        """Average every bucket's `flat`. Raises: what ended a receive; nothing is changed then."""
        came = self._neighbours.swap([b.flat for b in self._buckets], list(weights))
        for number, bucket in enumerate(self._buckets):
            mine = bucket.flat.to(bucket.computed_in)
            theirs = {d: parts[number].to(bucket.computed_in) for d, parts in came.items()}
            bucket.flat.copy_(rounded(_moved(mine, mine, theirs, weights), bucket.flat.dtype))


class Compressed:
    """Encoded differences are sent; `known` is what neighbours know of this rank, `theirs[d]` what
    this rank knows of rank - d. The neighbours are the same in every step."""

    def __init__(self, buckets: Sequence[Bucket], neighbours: Neighbours, codec: Codec) -> None:
        self._buckets, self._neighbours, self._codec = buckets, neighbours, codec
        self._known: list[torch.Tensor] = []
        self._theirs: dict[int, list[torch.Tensor]] = {}

    def start(self, weights: Weights) -> None:
        """Send all parameters once, as they are. Raises: what ended a receive."""
        came = self._neighbours.swap([b.flat for b in self._buckets], list(weights))
        self._theirs = {d: self._computed(parts) for d, parts in came.items()}
        self._known = self._computed([b.flat for b in self._buckets])
        self._neighbours.forget()

    def restart(self) -> None:
        """All ranks have the same parameters, by other means."""
        for estimates in (self._known, *self._theirs.values()):
            for estimate, bucket in zip(estimates, self._buckets, strict=True):
                estimate.copy_(bucket.flat)

    def step(self, weights: Weights) -> None:
        """Move every bucket's `flat` towards the neighbours' estimates.

        Raises: what ended a receive, BadMessage; nothing is changed then, here.
        """
        codec, buckets = self._codec, self._buckets
        sent = [
            codec.encode(_difference(bucket.flat.to(bucket.computed_in), known))
            for bucket, known in zip(buckets, self._known, strict=True)
        ]
        came = self._neighbours.swap(sent, list(weights))
        for messages in came.values():
            for message, bucket in zip(messages, buckets, strict=True):
                codec.check(message, bucket.count)
        for number, bucket in enumerate(buckets):
            codec.add(sent[number], self._known[number])
            for d, messages in came.items():
                codec.add(messages[number], self._theirs[d][number])
            theirs = {d: estimates[number] for d, estimates in self._theirs.items()}
            own = bucket.flat.to(bucket.computed_in)
            moved = _moved(own, self._known[number], theirs, weights, codec.step_size)
            bucket.flat.copy_(rounded(moved, bucket.flat.dtype))

    def _computed(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies, in the dtype of computation."""
        return [
            part.to(bucket.computed_in, copy=True)
            for part, bucket in zip(parts, self._buckets, strict=True)
        ]


def _moved(
    own: torch.Tensor,
    mine: torch.Tensor,
    theirs: Mapping[int, torch.Tensor],
    weights: Weights,
    share: float = 1.0,
) -> torch.Tensor:
    """`own`, and a share of what neighbours pull. Where that is no number, it is computed of values
    that are a power of two smaller: a difference of finite values may be beyond the range."""
    found = torch.add(own, _pull(mine, theirs, weights), alpha=share)
    if bool(torch.isfinite(found).all()):
        return found
    smaller = {d: their * DOWN for d, their in theirs.items()}
    again = torch.add(own * DOWN, _pull(mine * DOWN, smaller, weights), alpha=share)
    return _back(again, found)


def _difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a - b; the largest there is, where that is beyond the range."""
    found = a - b
    return found if bool(torch.isfinite(found).all()) else _back(a * DOWN - b * DOWN, found)


def _back(again: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """`found`, and where it is no number and `again` is one, that times 1 / DOWN."""
    top = torch.finfo(found.dtype).max
    lacking = torch.isfinite(again) & ~torch.isfinite(found)
    return torch.where(lacking, (again / DOWN).clamp(-top, top), found)


def _pull(mine: torch.Tensor, theirs: Mapping[int, torch.Tensor], weights: Weights) -> torch.Tensor:
    """Weighted sum of the differences from `mine`, added in the order of the offsets."""
    total = torch.zeros_like(mine)
    for d, weight in weights.items():
        total.add_(theirs[d] - mine, alpha=float(weight))
    return total

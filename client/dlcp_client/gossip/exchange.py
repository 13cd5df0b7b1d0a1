"""One exchange with the neighbours: all messages at once, then the average of the received values.

A rank adds the weighted sum of its differences from its neighbours, instead of replacing its
parameters by a weighted sum. So equal ranks stay equal bit for bit, and weights that float32 cannot
represent, such as 1/3, cannot make parameters grow step by step.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import torch

from dlcp_client.group import Group
from dlcpd.contract.policy import LossPolicy

from .buckets import Bucket
from .codecs import Codec, rounded

DOWN: Final = 0.25  # a sum of weighted differences is within four times the range of the dtype
Weights = Mapping[int, Fraction]  # as of Graph.sources: offset of a source -> weight


class Neighbours:
    """Exchanges messages between this rank and its neighbours. Reuses its receive buffers."""

    def __init__(self, group: Group, policy: LossPolicy) -> None:
        self._group, self._policy = group, policy
        self._places: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}
        self.sent_bytes = 0

    def swap(
        self, messages: Sequence[torch.Tensor], offsets: Sequence[int]
    ) -> dict[int, list[torch.Tensor]]:
        """Send `messages` to rank + d for every offset d, and receive as many from rank - d.

        Returns the received messages by offset, valid until the next call. Receives are submitted
        before any send, so a send never waits for a rank that cannot receive.

        Raises: the error that ended a receive. Messages are returned complete or not at all.
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
        """Free the receive buffers: messages of other sizes follow."""
        self._places.clear()

    def _place(self, neighbour: int, number: int, like: torch.Tensor) -> torch.Tensor:
        key = (neighbour, number, like.dtype)
        if key not in self._places:
            session = self._group.session
            self._places[key] = session.empty(like.shape, like.dtype, wait=self._policy.deadline)
        return self._places[key]


class DenseExchange:
    """Sends parameters uncompressed."""

    def __init__(self, buckets: Sequence[Bucket], neighbours: Neighbours) -> None:
        self._buckets, self._neighbours = buckets, neighbours

    def start(self, weights: Weights) -> None:
        """Nothing to do: neighbours are not estimated."""

    def restart(self) -> None:
        """Nothing to do: there are no estimates to correct."""

    def step(self, weights: Weights) -> None:
        """Average every bucket's `flat`. Raises: the error of a receive; nothing is then
        changed."""
        came = self._neighbours.swap([b.flat for b in self._buckets], list(weights))
        for number, bucket in enumerate(self._buckets):
            local = bucket.flat.to(bucket.computed_in)
            received = {d: parts[number].to(bucket.computed_in) for d, parts in came.items()}
            bucket.flat.copy_(rounded(_moved(local, local, received, weights), bucket.flat.dtype))


class CompressedExchange:
    """Sends encoded differences. `_known`: the neighbours' estimate of this rank; `_received[d]`:
    this rank's estimate of rank - d. The neighbours are the same in every step."""

    def __init__(self, buckets: Sequence[Bucket], neighbours: Neighbours, codec: Codec) -> None:
        self._buckets, self._neighbours, self._codec = buckets, neighbours, codec
        self._known: list[torch.Tensor] = []
        self._received: dict[int, list[torch.Tensor]] = {}

    def start(self, weights: Weights) -> None:
        """Send all parameters once, uncompressed. Raises: the error that ended a receive."""
        came = self._neighbours.swap([b.flat for b in self._buckets], list(weights))
        self._received = {d: self._computed(parts) for d, parts in came.items()}
        self._known = self._computed([b.flat for b in self._buckets])
        self._neighbours.forget()

    def restart(self) -> None:
        """Reset the estimates: another operation has made all ranks' parameters equal."""
        for estimates in (self._known, *self._received.values()):
            for estimate, bucket in zip(estimates, self._buckets, strict=True):
                estimate.copy_(bucket.flat)

    def step(self, weights: Weights) -> None:
        """Move every bucket's `flat` towards the neighbours' estimates.

        Raises: the error that ended a receive, BadMessage; nothing is then changed on this rank.
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
                codec.add(messages[number], self._received[d][number])
            received = {d: estimates[number] for d, estimates in self._received.items()}
            own = bucket.flat.to(bucket.computed_in)
            moved = _moved(own, self._known[number], received, weights, codec.step_size)
            bucket.flat.copy_(rounded(moved, bucket.flat.dtype))

    def _computed(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies, in the dtype of the computation."""
        return [
            part.to(bucket.computed_in, copy=True)
            for part, bucket in zip(parts, self._buckets, strict=True)
        ]


def _moved(
    own: torch.Tensor,
    local: torch.Tensor,
    received: Mapping[int, torch.Tensor],
    weights: Weights,
    share: float = 1.0,
) -> torch.Tensor:
    """`own` plus `share` times the pull of the neighbours. Where the sum is not finite, it is
    computed from values scaled by DOWN: a difference of finite values may be beyond the range."""
    found = torch.add(own, _pull(local, received, weights), alpha=share)
    if bool(torch.isfinite(found).all()):
        return found
    smaller = {d: their * DOWN for d, their in received.items()}
    again = torch.add(own * DOWN, _pull(local * DOWN, smaller, weights), alpha=share)
    return _back(again, found)


def _difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a - b; the largest finite value if that is beyond the range."""
    found = a - b
    return found if bool(torch.isfinite(found).all()) else _back(a * DOWN - b * DOWN, found)


def _back(again: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """`found`; `again` / DOWN where `found` is not finite and `again` is."""
    top = torch.finfo(found.dtype).max
    lacking = torch.isfinite(again) & ~torch.isfinite(found)
    return torch.where(lacking, (again / DOWN).clamp(-top, top), found)


def _pull(
    local: torch.Tensor, received: Mapping[int, torch.Tensor], weights: Weights
) -> torch.Tensor:
    """Weighted sum of the differences from `local`, added in the order of the offsets."""
    total = torch.zeros_like(local)
    for d, weight in weights.items():
        total.add_(received[d] - local, alpha=float(weight))
    return total

"""Places of a rank's updates: the arena, masters beside it, and the device of the parameters."""

from collections.abc import Iterable

import torch

from dlcp_client.fused.flat_bucket import FlatBucket, Slice


class InArena:
    """On the weights and averages in the arena themselves. By slice: `tensors`, which an update
    changes, and `averages`, which it reads, and may overwrite."""

    def __init__(self, bucket: FlatBucket, slices: Iterable[Slice]) -> None:
        self._bucket = bucket
        self._weights = {one: bucket.weights[one.start : one.stop] for one in slices}
        self.tensors = self._weights
        self.averages = {one: bucket.gradients[one.start : one.stop] for one in self._weights}

    def take_changes(self) -> None:
        """Before an update: have what the training itself has written to weights, as by
        load_state_dict()."""

    def take_averages(self) -> None:
        """Before an update: have the averages of this step."""

    def publish(self) -> None:
        """Give the new weights to the engine."""

    def _changed_masters(self, weights: dict[Slice, torch.Tensor]) -> None:
        """A weight that is not its rounded master was changed since."""
        kind = self._bucket.rounded
        assert kind is not None  # noqa: S101  # else there are no masters
        for one, master in self.tensors.items():
            weight = weights[one]
            master.copy_(torch.where(master.to(kind).to(master.dtype) == weight, master, weight))


class Masters(InArena):
    """On copies of weights that travel rounded. The engine rounds those in the arena."""

    def __init__(self, bucket: FlatBucket, slices: Iterable[Slice]) -> None:
        super().__init__(bucket, slices)
        self.tensors = {one: weight.clone() for one, weight in self._weights.items()}

    def take_changes(self) -> None:
        self._changed_masters(self._weights)

    def publish(self) -> None:
        for one, master in self.tensors.items():
            self._weights[one].copy_(master)


class OnDevice(InArena):
    """On copies on the device of the parameters: averages go there, and new weights return."""

    def __init__(self, bucket: FlatBucket, slices: Iterable[Slice]) -> None:
        super().__init__(bucket, slices)
        self.tensors, self.averages = self._empty(), self._empty()
        self._deliver(self.tensors, self._weights)
        self._seen = bucket.changes

    def take_changes(self) -> None:
        if self._seen == self._bucket.changes:
            return
        self._seen = self._bucket.changes
        if self._bucket.rounded is None:
            self._deliver(self.tensors, self._weights)
        else:
            changed = self._empty()
            self._deliver(changed, self._weights)
            self._changed_masters(changed)

    def take_averages(self) -> None:
        bucket = self._bucket
        self._deliver(
            self.averages, {one: bucket.gradients[one.start : one.stop] for one in self.averages}
        )

    def publish(self) -> None:
        session = self._bucket.session
        copies = [session.fetch(self._weights[one], made) for one, made in self.tensors.items()]
        for copy in copies:
            copy.wait()

    def _empty(self) -> dict[Slice, torch.Tensor]:
        return {
            one: torch.empty_like(weight, device=self._bucket.slots[one.slot].parameter.device)
            for one, weight in self._weights.items()
        }

    def _deliver(self, to: dict[Slice, torch.Tensor], source: dict[Slice, torch.Tensor]) -> None:
        """Returns when the engine may write to `source` again."""
        session = self._bucket.session
        copies = [session.deliver(to[one], tensor) for one, tensor in source.items()]
        for copy in copies:
            copy.wait()


def place_of(bucket: FlatBucket, start: int, stop: int) -> InArena:
    """That of elements [start, stop) of a bucket."""
    kind = InArena if bucket.rounded is None else Masters
    if bucket.updates_there:
        kind = OnDevice
    return kind(bucket, bucket.slices(start, stop))

"""How much of a gradient an operation may lose, and what fills the hole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, cast

from dlcpd.contract.codec import parsed
from dlcpd.contract.errors import BadPolicy
from dlcpd.contract.times import seconds
from dlcpd.contract.traffic import traffic_classes

MAX_LOSS_LIMIT = 0.5  # a bound above one half is a typo, not a policy
DEFAULT_MAX_LOSS = 0.01  # published tolerances start at 0.6 % (research: MLT, DLCP)
DEFAULT_DEADLINE = 1800.0  # seconds, as torch.distributed: rank 0 may evaluate or save that long

Mode = Literal["exact", "bounded"]
Fill = Literal["residual", "zero"]


def _within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """The loss an operation tolerates in its reduce stage; the gather stage tolerates none.

    `max_loss` bounds the fraction of segments that each sender may be missing in
    each chunk. `fill` says what becomes of them: "residual" adds them to the
    sender's next operation of the same name (error feedback), "zero" forgets them
    (for ablations). `per_class` tightens the bound where a traffic class tolerates less.
    `codec`, a name of `contract.codec`, says in which form values cross the network; what it
    rounds away goes the way of `fill` too.
    """

    mode: Mode = "exact"
    max_loss: float = 0.0  # fraction of segments, 0..MAX_LOSS_LIMIT
    fill: Fill = "residual"
    traffic_class: str = "bulk"
    deadline: float = DEFAULT_DEADLINE  # seconds from submission to a result or a named error; a
    # timedelta is turned into them
    per_class: Mapping[str, float] = field(default_factory=dict)  # class -> max_loss, not above it
    codec: str = ""  # empty: values cross as they are

    def __post_init__(self) -> None:
        if self.mode not in ("exact", "bounded"):
            raise BadPolicy(f'mode {self.mode!r}: use "exact" or "bounded"')
        if self.fill not in ("residual", "zero"):
            raise BadPolicy(f'fill {self.fill!r}: use "residual" or "zero"')
        if not _within(self.max_loss, 0.0, MAX_LOSS_LIMIT):
            raise BadPolicy(f"max_loss {self.max_loss!r}: a fraction 0..{MAX_LOSS_LIMIT}")
        if (self.max_loss > 0) != (self.mode == "bounded"):
            raise BadPolicy(f"mode {self.mode!r} does not fit max_loss {self.max_loss}")
        deadline = seconds(self.deadline)
        if deadline is None:
            raise BadPolicy(f"deadline {self.deadline!r}: seconds or a timedelta, above 0")
        object.__setattr__(self, "deadline", deadline)
        if self.traffic_class not in traffic_classes():
            known = ", ".join(traffic_classes())
            raise BadPolicy(f"traffic class {self.traffic_class!r}: use one of {known}")
        for name, loss in self.per_class.items():
            if name not in traffic_classes() or not _within(loss, 0.0, self.max_loss):
                raise BadPolicy(
                    f"per_class {name!r}: {loss}: a traffic class and a fraction 0..max_loss "
                    f"({self.max_loss:g})"
                )
        if self.codec:
            object.__setattr__(self, "codec", str(parsed(self.codec)))  # in its one spelling

    @property
    def is_plain(self) -> bool:
        """Whether the result is the sum of what all ranks gave, and nothing is left for later."""
        return self.mode == "exact" and not self.codec

    def max_loss_of(self, traffic_class: str) -> float:
        """The bound in one class."""
        return self.per_class.get(traffic_class, self.max_loss)


EXACT = LossPolicy()


def exact(
    *,
    traffic_class: str = "bulk",
    deadline: float | timedelta = DEFAULT_DEADLINE,
    codec: str = "",
    fill: Fill = "residual",
) -> LossPolicy:
    """Every segment arrives: bit for bit the rank-ordered sum, of what a codec makes of values
    where there is one.

    Args:
        traffic_class: how switches serve it: "front", "middle", "back" or "bulk". In a model's
            policy "bulk" lets each layer have the class of its place in the forward pass.
        deadline: seconds, or a timedelta, from submission to a result or a named error. More than
            20 days count as 20 days.
        codec: "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2" or "topk:0.01": in which form values
            cross the network (docs/compression.md). Of sums and averages of real floats.
        fill: of a codec: "residual": what it rounds away is added to the next operation of the same
            name. "zero": it is forgotten.

    Raises: BadPolicy naming the field.
    """
    deadline = cast("float", deadline)  # LossPolicy makes one of a timedelta
    return LossPolicy(traffic_class=traffic_class, deadline=deadline, codec=codec, fill=fill)


def bounded(
    max_loss: float = DEFAULT_MAX_LOSS,
    *,
    fill: Fill = "residual",
    traffic_class: str = "bulk",
    deadline: float | timedelta = DEFAULT_DEADLINE,
    per_class: Mapping[str, float] | None = None,
    codec: str = "",
) -> LossPolicy:
    """Up to `max_loss` of each sender's segments may be waived per chunk.

    Args:
        max_loss: fraction above 0, at most 0.5.
        fill: "residual": what was waived, and what a codec rounded away, is added to the sender's
            next operation of the same name. "zero": it is forgotten, for ablations.
        traffic_class: as in `exact`.
        deadline: as in `exact`.
        per_class: traffic class -> its own, tighter max_loss.
        codec: as in `exact`; what may be lost is lost of the form that it gives to values.

    Raises: BadPolicy naming the field.
    """
    deadline = cast("float", deadline)  # as in `exact`
    return LossPolicy("bounded", max_loss, fill, traffic_class, deadline, per_class or {}, codec)


def checked(policy: object) -> LossPolicy:
    """`policy`, if it is one.

    Raises: BadPolicy saying what to write instead.
    """
    if not isinstance(policy, LossPolicy):
        raise BadPolicy(f"policy {policy!r}: write exact() or bounded(0.01), of dlcp_client")
    return policy

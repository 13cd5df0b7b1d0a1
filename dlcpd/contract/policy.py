"""Loss policies: how much of a gradient an operation may lose, and what replaces it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, cast

from dlcpd.contract.codec import parsed
from dlcpd.contract.errors import BadPolicy
from dlcpd.contract.times import seconds
from dlcpd.contract.traffic import traffic_classes

MAX_LOSS_LIMIT = 0.5  # a bound above one half is a typo, not a policy
DEFAULT_MAX_LOSS = 0.01  # published tolerances start at 0.6 % (research: MLT, DLCP)
DEFAULT_DEADLINE = 1800.0  # seconds, as torch.distributed: rank 0 may evaluate or save that long

# Codecs in which updated weights travel: the others round more than weights bear.
GATHERS: Final = ("bf16",)

Mode = Literal["exact", "bounded"]
Fill = Literal["residual", "zero"]


def _within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """The loss an operation tolerates in its reduce stage; the gather stage tolerates none.

    `max_loss` bounds the fraction of segments that each sender may be missing in
    each chunk. `fill` "residual" adds them to the sender's next operation of the
    same name (error feedback), "zero" discards them (for ablations). `per_class`
    tightens the bound where a traffic class tolerates less.
    `codec`, a name of `contract.codec`, encodes values for the network; `fill` applies to its
    rounding errors too. `gather` encodes only results, where a client computes them from the sums.
    """

    mode: Mode = "exact"
    max_loss: float = 0.0  # fraction of segments, 0..MAX_LOSS_LIMIT
    fill: Fill = "residual"
    traffic_class: str = "bulk"
    deadline: float = DEFAULT_DEADLINE  # seconds from submission to a result or a named error; a
    # timedelta is converted
    per_class: Mapping[str, float] = field(default_factory=dict)  # class -> max_loss, not above it
    codec: str = ""  # empty: values are not encoded
    gather: str = ""  # empty, or one of GATHERS: weights keep their digits on the rank that updates

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
        self._check_codecs()

    def _check_codecs(self) -> None:
        if self.codec:
            object.__setattr__(self, "codec", str(parsed(self.codec)))  # in its canonical spelling
        if self.gather not in ("", *GATHERS):
            names = " or ".join(f'"{name}"' for name in GATHERS)
            raise BadPolicy(f"gather {self.gather!r}: use {names}, or leave it out")

    @property
    def is_plain(self) -> bool:
        """Whether the result is the sum of all contributions, and leaves no residual."""
        return self.mode == "exact" and not self.codec

    def max_loss_of(self, traffic_class: str) -> float:
        """The bound of one class."""
        return self.per_class.get(traffic_class, self.max_loss)


EXACT = LossPolicy()


def exact(
    *,
    traffic_class: str = "bulk",
    deadline: float | timedelta = DEFAULT_DEADLINE,
    codec: str = "",
    fill: Fill = "residual",
    gather: str = "",
) -> LossPolicy:
    """Every segment arrives. Without a codec, the result is the rank-ordered sum, bit for bit.

    Args:
        traffic_class: "front", "middle", "back" or "bulk", by which switches queue. In a model's
            policy "bulk" gives each layer the class of its place in the forward pass.
        deadline: seconds, or a timedelta, from submission to a result or a named error. More than
            20 days count as 20 days.
        codec: "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2" or "topk:0.01": how values are
            encoded for the network (docs/compression.md). For sums and averages of real floats.
        fill: with a codec. "residual": its rounding errors are added to the next operation of the
            same name. "zero": they are discarded.
        gather: "bf16": updated weights of `fused.register` travel as bfloat16 (docs/fused.md).

    Raises: BadPolicy naming the field.
    """
    deadline = cast("float", deadline)  # LossPolicy converts a timedelta
    return LossPolicy("exact", 0.0, fill, traffic_class, deadline, codec=codec, gather=gather)


def bounded(  # noqa: PLR0913  # all but the first by keyword
    max_loss: float = DEFAULT_MAX_LOSS,
    *,
    fill: Fill = "residual",
    traffic_class: str = "bulk",
    deadline: float | timedelta = DEFAULT_DEADLINE,
    per_class: Mapping[str, float] | None = None,
    codec: str = "",
    gather: str = "",
) -> LossPolicy:
    """Up to `max_loss` of each sender's segments may be waived per chunk.

    Args:
        max_loss: fraction above 0, at most 0.5.
        fill: "residual": waived values and rounding errors of a codec are added to the sender's
            next operation of the same name. "zero": they are discarded, for ablations.
        traffic_class: as in `exact`.
        deadline: as in `exact`.
        per_class: traffic class -> its own, tighter max_loss.
        codec: as in `exact`; `max_loss` then applies to segments of encoded values.
        gather: as in `exact`.

    Raises: BadPolicy naming the field.
    """
    deadline = cast("float", deadline)  # as in `exact`
    tighter = per_class or {}
    return LossPolicy("bounded", max_loss, fill, traffic_class, deadline, tighter, codec, gather)


def checked(policy: object) -> LossPolicy:
    """`policy`, if it is a LossPolicy.

    Raises: BadPolicy that says what to write instead.
    """
    if not isinstance(policy, LossPolicy):
        raise BadPolicy(f"policy {policy!r}: write exact() or bounded(0.01), of dlcp_client")
    return policy

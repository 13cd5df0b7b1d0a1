"""A worker's request to join a shard, sent through the store before they have a session."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from dlcp_client.ps.layout import MAX_ELEMENTS, MAX_TENSORS
from dlcp_client.ps.specs import FIELDS
from dlcpd.contract.errors import BadMessage, BadSnapshot, DlcpError, RanksDisagree
from dlcpd.contract.forms import MAX_TEXT
from dlcpd.contract.policy import LossPolicy, bounded, exact

MAX_GROUPS: Final = 1024  # parameter groups: 40 KB of settings with each push


@dataclass(frozen=True, slots=True)
class PushAgreement:
    """Values that are equal for all workers of a shard, and stored in its snapshots."""

    job: str
    model: str  # fingerprint of names, shapes, dtypes and groups
    optimizer: str  # a kind of FIELDS
    elements: int
    tensors: int
    groups: int
    staleness: int = -1  # -1: synchronous
    refuse: bool = False

    def __post_init__(self) -> None:
        """Raises: BadMessage."""
        for name, kind in _TYPES.items():
            if type(getattr(self, name)) is not kind:
                raise BadMessage(f"a worker sent a {name} that is not {kind.__name__}")
        sane = (
            self.optimizer in FIELDS
            and len(self.job) <= MAX_TEXT
            and len(self.model) <= MAX_TEXT
            and 0 < self.elements <= MAX_ELEMENTS
            and 0 < self.tensors <= MAX_TENSORS
            and 0 < self.groups <= MAX_GROUPS
            and self.staleness >= -1
        )
        if not sane:
            raise BadMessage(f"a worker sent values that no shard supports: {self}")

    def check(self, other: Self, *, version: int, worker: int) -> None:
        """Compare with `other`, the terms of `worker`. Raises: BadSnapshot if this shard has
        another model at `version`; RanksDisagree for any other difference."""
        for name in _TYPES:
            stored, sent = getattr(self, name), getattr(other, name)
            if stored == sent or name == "job":
                continue
            text = (
                f"worker {worker} has {name} {sent!r}, and this server has {stored!r} at "
                f"version {version}"
            )
            if name in ("model", "elements", "tensors"):
                raise BadSnapshot(
                    f"{text}: the models differ; give all workers the same model, or start the "
                    "server with an empty snapshots folder"
                )
            raise RanksDisagree(f"{text}: give all workers the same arguments")

    def values(self) -> dict[str, Any]:
        """The terms as JSON values."""
        return asdict(self)

    @classmethod
    def of(cls, values: Any) -> Self:
        """The terms in JSON values. Raises: BadMessage."""
        if not isinstance(values, dict) or set(values) - set(_TYPES):
            raise BadMessage("a worker sent a push agreement of unknown format")
        try:
            return cls(**values)
        except TypeError as exc:
            raise BadMessage("a worker sent an incomplete push agreement") from exc


_TYPES: Final[dict[str, type]] = {
    one.name: {"str": str, "int": int, "bool": bool}[str(getattr(one.type, "__name__", one.type))]
    for one in fields(PushAgreement)
}


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """One worker that wants to take part."""

    agreement: PushAgreement
    worker: int  # rank
    launch: int  # number of workers that start together
    push: dict[str, Any]  # policy of pushes, see `policy_values`
    pull: dict[str, Any]  # policy of pulls, likewise
    resume: bool = False  # continue with the parameters of another job

    def values(self) -> dict[str, Any]:
        """The join request as JSON values."""
        return {
            "terms": self.agreement.values(),
            "worker": self.worker,
            "launch": self.launch,
            "push": self.push,
            "pull": self.pull,
            "resume": self.resume,
        }

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """The join request in JSON values. Raises: BadMessage."""
        worker, launch = values.get("worker"), values.get("launch")
        push, pull = values.get("push"), values.get("pull")
        if type(worker) is not int or type(launch) is not int:
            raise BadMessage("a worker sent a join request of unknown format")
        if not isinstance(push, dict) or not isinstance(pull, dict):
            raise BadMessage("a worker sent policies of unknown format")
        policy_of(push), policy_of(pull)
        agreement = PushAgreement.of(values.get("terms"))
        return cls(agreement, worker, launch, push, pull, values.get("resume") is True)


def policy_values(policy: LossPolicy) -> dict[str, Any]:
    """The fields of a policy that both ends of a push must share."""
    return {
        "max_loss": policy.max_loss_of(policy.traffic_class),
        "fill": policy.fill,
        "traffic_class": policy.traffic_class,
        "deadline": policy.deadline,
        "codec": policy.codec,
    }


def exactly(policy: LossPolicy) -> LossPolicy:
    """The policy as an exact one, with its class and deadline."""
    return exact(traffic_class=policy.traffic_class, deadline=policy.deadline)


def policy_of(values: dict[str, Any]) -> LossPolicy:
    """The policy in JSON values. Raises: BadMessage."""
    try:
        named = {name: values[name] for name in ("traffic_class", "deadline", "fill", "codec")}
        return bounded(values["max_loss"], **named) if values["max_loss"] else exact(**named)
    except (DlcpError, KeyError, TypeError) as exc:
        raise BadMessage(f"a worker sent an invalid policy: {exc}") from exc

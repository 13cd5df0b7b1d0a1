"""The models of all platforms, and the judgement of a plan by them. Pure."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Final

from switchcfg.errors import BadState
from switchcfg.intent.intent import Device, Intent
from switchcfg.intent.known import KNOWN
from switchcfg.model import headroom, load
from switchcfg.model.proof import RULE, problems
from switchcfg.model.values import RESPECTS, PortModel, SwitchModel

# (a whole configuration, payloads of steps that a device takes after it) -> the model
ModelOf = Callable[[str, Sequence[str]], SwitchModel]
MODELS: Final[Mapping[str, ModelOf]] = {
    name: resolve_name(each.model) for name, each in KNOWN.items() if each.model
}


def model_of(platform: str, text: str, payloads: Sequence[str] = ()) -> SwitchModel:
    """The model of a configuration after the payloads of steps.

    Raises: BadState where it cannot be computed.
    """
    try:
        return MODELS[platform](text, payloads)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as exc:
        why = f"{type(exc).__name__}: {exc}"
        raise BadState(f"the model of the switch cannot be computed ({why})") from exc


def treatments(platform: str, text: str | None) -> dict[str, str]:
    """Port -> hash of the treatments of its code points, by the model of a configuration. {}: the
    configuration is not known, or the model cannot be computed."""
    if text is None or platform not in MODELS:
        return {}
    try:
        ports = model_of(platform, text).ports
    except BadState:
        return {}
    return {name: _hash(port) for name, port in ports.items()}


def _hash(port: PortModel) -> str:
    """Equal for ports with equal treatments by the same objects."""
    said = [
        [*(getattr(each, respect) for respect in RESPECTS), each.classifier, *sorted(each.pausing)]
        for each in port
    ]
    return hashlib.sha256(repr(said).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a plan by the models of the switch before and after it."""

    problems: Sequence[str] = ()  # the rule's name first: the plan is refused
    warnings: Sequence[str] = ()


def judged(
    intent: Intent,
    device: Device,
    text: str | None,
    payloads: Sequence[str],
    *,
    removing: bool = False,
    unchanged: Collection[str] = (),
) -> Judgement:
    """The judgement of a plan with these payloads on a device with this configuration. None: it is
    not known, and the plan is not judged. `unchanged`: ports that are not judged."""
    if text is None or device.platform not in MODELS:
        return Judgement()
    try:
        before = model_of(device.platform, text)
        after = model_of(device.platform, text, payloads)
    except BadState as exc:
        return Judgement((f"{RULE}: {device.name}: {exc}",))
    whole = KNOWN[device.platform].whole
    ports = {name: each for name, each in before.ports.items() if name not in unchanged}
    then = {name: each for name, each in after.ports.items() if name not in unchanged}
    judged_ports = replace(before, ports=ports), replace(after, ports=then)
    found = problems(intent, device, *judged_ports, removing=removing, whole=whole)
    if removing:
        return Judgement(found)
    strict = load.warnings(intent, device, before, after)
    notes = [text for port in ("", *device.ports) for text in after.notes.get(port, ())]
    return Judgement(found, (*strict, *headroom.warnings(intent, device, after), *notes))

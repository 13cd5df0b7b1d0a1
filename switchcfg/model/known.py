"""The models of all platforms, and the judgement of a plan by them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.model import eos, junos, linux, nvue, nxos, openconfig, sonic
from switchcfg.model.proof import RULE, problems
from switchcfg.model.values import SwitchModel

# (a whole configuration, payloads of steps that a device takes after it) -> the model
# Platforms where a plan sets something for all ports: maps of code points, network-qos policies
WHOLE: Final = ("eos", "nvue", "nxos")
ModelOf = Callable[[str, Sequence[str]], SwitchModel]
MODELS: Final[Mapping[str, ModelOf]] = {
    "sonic": sonic.model,
    "eos": eos.model,
    "nxos": nxos.model,
    "nvue": nvue.model,
    "junos": junos.model,
    "openconfig": openconfig.model,
    "linux": linux.model,
}


def judged(
    intent: Intent, device: Device, text: str, payloads: Sequence[str], *, removing: bool = False
) -> list[str]:
    """Problems of a plan with these payloads on a device with this configuration; each begins with
    the rule's name. "": a configuration that is not known is not judged."""
    model = MODELS.get(device.platform)
    if not text or model is None:
        return []
    try:
        before, after = model(text, ()), model(text, payloads)
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        return [f"{RULE}: {device.name}: the model of the switch cannot follow the plan: {exc!r}"]
    whole = device.platform in WHOLE
    return problems(intent, device, before, after, removing=removing, whole=whole)

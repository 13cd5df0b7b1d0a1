"""The fabric as its devices tell it, for `switchcfg fabric`, for warnings and for the order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.cli.neighbours import Seen, look
from switchcfg.drivers.driver import Driver
from switchcfg.errors import BadState, Refused
from switchcfg.fabric import text
from switchcfg.fabric.judge import FabricVerdict, Facts, judge
from switchcfg.fabric.order import Topology, topology, waves
from switchcfg.fabric.wiring import Wiring, wiring
from switchcfg.intent.intent import Device, Intent
from switchcfg.model.known import model_of
from switchcfg.plan.account import Reading
from switchcfg.plan.plan import Plan
from switchcfg.plan.state import State

WARNING: Final = "fabric"  # of plans: differences at the ends of links


class Fabric:
    """The devices of a command, as far as they were asked."""

    def __init__(self, intent: Intent) -> None:
        self.intent = intent
        self.seen: dict[str, Seen] = {}
        self.states: dict[str, State] = {}

    async def ask(self, device: Device, driver: Driver, *, mtu: bool = False) -> None:
        """Ask a device for its neighbours, and with `mtu` for the MTU of its ports."""
        self.seen[device.name] = await look(driver, device.platform, mtu=mtu)

    def wiring(self) -> Wiring:
        """The links, by the intent and by LLDP."""
        heard = {n: seen.lldp for n, seen in self.seen.items() if seen.lldp is not None}
        return wiring(self.intent, heard)

    def verdict(self, links: Wiring, plans: Sequence[Plan] = ()) -> FabricVerdict:
        """The judgement of the configurations, with the plans applied."""
        payloads = {each.device: [step.payload for step in each.steps] for each in plans}
        return judge(self.intent, links, dict(self._facts(payloads)))

    def _facts(self, payloads: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Facts]]:
        for name, state in self.states.items():
            if not isinstance(state, Reading) or state.text is None:
                continue
            try:
                platform = self.intent.device(name).platform
                model = model_of(platform, state.text, payloads.get(name, ()))
            except (BadState, KeyError):  # a plan says so; `KeyError`: no model of the platform
                continue
            yield name, Facts(model, self.seen[name].mtu if name in self.seen else {})

    def unknown(self) -> Iterator[str]:
        """The subjects that devices do not tell."""
        for name, seen in self.seen.items():
            yield from (f"{name}: {each}" for each in seen.unknown)

    def groups(self, devices: Sequence[Device]) -> tuple[list[list[Device]], Topology]:
        """The order of changes. Raises: Refused if the links contradict each other."""
        links = self.wiring()
        if links.contradictions:
            raise Refused(
                "the links contradict each other, so the order of changes is not safe",
                links.contradictions,
            )
        known = topology(self.intent, links)
        return waves(devices, known), known


def warnings(fabric: Fabric, plans: Sequence[Plan]) -> tuple[FabricVerdict, list[str]]:
    """The judgement with the plans applied, and its lines."""
    links = fabric.wiring()
    verdict = fabric.verdict(links, plans)
    lines = [*text.few(links.contradictions), *text.problems(verdict)]
    return verdict, [f"{WARNING}: {line}" for line in lines]

"""Service under load: the strict queues that a queue waits for, and its share of the rest. Pure.

Ranks and weights are those of the configuration. A chip may serve its queues otherwise, and a queue
that no code point uses does not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from switchcfg.intent.intent import Device, Intent
from switchcfg.intent.port_ranges import compact
from switchcfg.model.values import PortModel, SwitchModel


@dataclass(frozen=True, slots=True)
class Service:
    """The service of one queue of a port when all queues have packets."""

    waits: tuple[str, ...]  # strict queues that are served before it
    weight: int  # among `total`; 0: the configuration has no weight
    total: int  # of the weighted queues


def service(port: PortModel, queue: str) -> Service | None:
    """The service of a queue; None: no code point uses it."""
    found = {each.queue: (each.rank, each.weight) for each in port if each.queue.isdecimal()}
    if queue not in found:
        return None
    rank, weight = found[queue]
    strict = {name: other for name, (other, _) in found.items() if other is not None}
    before = sorted(name for name, other in strict.items() if rank is None or other > rank)
    total = sum(share for other, share in found.values() if other is None)
    return Service(tuple(before), 0 if rank is not None else weight, total)


def warnings(
    intent: Intent, device: Device, before: SwitchModel, after: SwitchModel
) -> Iterator[str]:
    """Kept queues, and queues with flow control, that wait for more strict queues than today."""
    ports: dict[tuple[str, Service], list[str]] = {}
    for name in device.ports:
        was, then = before.port(name), after.port(name)
        queues = {*map(str, intent.keep.queues), *(each.queue for each in then if each.pfc)}
        for queue in sorted(queues):
            now = service(then, queue)
            had = service(was, queue)
            if now and not set(now.waits) <= set(had.waits if had else ()):
                ports.setdefault((queue, now), []).append(name)
    for (queue, found), names in ports.items():
        yield f"under load: {', '.join(compact(names))}: queue {queue} {_in_words(found)}"


def _in_words(found: Service) -> str:
    waits: Sequence[str] = found.waits
    plural = "queues" if len(waits) > 1 else "queue"
    text = f"waits for strict {plural} {', '.join(waits)}, which can starve it"
    if not found.weight:
        return text
    return f"{text}, and has {found.weight} of {found.total} of the rate that is left"

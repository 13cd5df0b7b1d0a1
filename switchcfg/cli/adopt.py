"""`switchcfg import`: writes an intent that preserves a device's present configuration.

Ports with equal rates and equal bindings are a group. The platform itself finds conflicts, and the
intent is changed until `plan` accepts it (`switchcfg.cli.accepted`); comments list the ports that
stay as they are, and why, and configuration that the intent does not cover.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from switchcfg.cli import device_ports
from switchcfg.cli.accepted import Accepted, accepted
from switchcfg.cli.output import printable
from switchcfg.errors import BadIntent
from switchcfg.intent.classes import TrafficClass, shared_classes
from switchcfg.intent.intent import NAME, QUEUES, Device, Intent, Keep, parse
from switchcfg.intent.known import KNOWN
from switchcfg.intent.port_names import in_words
from switchcfg.intent.port_ranges import compact, folded
from switchcfg.plan.account import UNREAD, refusals
from switchcfg.plan.speeds import speeds
from switchcfg.plan.state import Place, State, natural
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.grammar import CHANNEL
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import Fit, FittingPlatform, Platform, is_ours
from switchcfg.platforms.sonic.accounting import BINDINGS

NOTHING: Final = Keep({}, (), (), ())
RATE: Final = 100 * 10**9  # bit/s, if the rate is unknown
SHOWN: Final = 8  # names that one comment lists
WIDTH: Final = 96  # columns of a comment


@dataclass(frozen=True, slots=True)
class Asked:
    """The operator's description of a device that is not in an intent yet."""

    name: str
    platform: str
    address: str
    ports: tuple[str, ...]  # () = all that the device reports
    rate: int  # bit/s; 0 = by the device or the port's name, else RATE


def skeleton(asked: Asked) -> Intent:
    """An intent with only the device, for the connection to it. Raises: BadIntent."""
    ports = asked.ports or (KNOWN[asked.platform].ports.example,)
    return _parsed(asked, _text(asked, _groups_of(asked, ports, {}), NOTHING, ()))


def intent(asked: Asked, present: State) -> str:
    """The text of the intent. Raises: BadIntent if no port is known."""
    platform = PLATFORMS[asked.platform]
    ports = list(asked.ports) or [*device_ports.names(asked.platform, present)]
    if not ports:
        why = "lists no port: name the ports with --ports"
        raise BadIntent(f"{asked.name}: the configuration of the device {why}")
    groups = _groups_of(asked, ports, present)
    bare = _parsed(asked, _text(asked, groups, NOTHING, ()))
    keep = _keep(platform, bare, present)
    drafted = _parsed(asked, _text(asked, groups, keep, ()))
    found = accepted(drafted, platform, present)
    profiles = _profiles(platform, bare, ports, present)
    wanted = found.intent
    text = _text(asked, _left(groups, wanted), wanted.keep, profiles, wanted.classes)
    members = [] if asked.ports else [*device_ports.notes(asked.platform, present)]
    notes = [*_verdict(found, platform), *members, *_others(platform, bare, present)]
    return f"{text}\n" + "".join(f"# {line}\n" for note in notes for line in _wrapped(note))


def _parsed(asked: Asked, text: str) -> Intent:
    return parse(text, f"import {asked.name}")


# --- present configuration -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """The rate and the bindings that all ports of a group have."""

    bits: int  # rate, per second
    guessed: bool
    bound: frozenset[tuple[str, str, str, str]] = frozenset()  # (kind, part, field, value)


Groups = Mapping[_Kind, Sequence[str]]


def _left(groups: Groups, wanted: Intent) -> Groups:
    """The groups without the ports that stay as they are."""
    stay = {port for device in wanted.devices for port in device.ports}
    found = {rate: [port for port in ports if port in stay] for rate, ports in groups.items()}
    return {rate: ports for rate, ports in found.items() if ports}


def _groups_of(asked: Asked, ports: Sequence[str], present: State) -> Groups:
    told = speeds(asked.platform, present)
    bound = _bound(ports, present)
    found: dict[_Kind, list[str]] = {}
    for port in ports:
        known = asked.rate or told.get(port) or KNOWN[asked.platform].ports.speed_of(port)
        kind = _Kind(known or RATE, not known, frozenset(bound.get(port, ())))
        found.setdefault(kind, []).append(port)
    return found


def _bound(
    ports: Sequence[str], present: State
) -> Mapping[str, Sequence[tuple[str, str, str, str]]]:
    """Port -> the maps, profiles and policies that are bound to it."""
    found: dict[str, list[tuple[str, str, str, str]]] = {port: [] for port in ports}
    for place, value in present.items():
        port, _, part = place.name.partition("|")
        binds = place.kind.startswith("interface") or place.kind in BINDINGS
        if binds and port in found:
            found[port].append((place.kind, part, place.field, value))
    return found


def _keep(platform: Platform, bare: Intent, present: State) -> Keep:
    """Queues with flow control, and the code points that go to them."""
    if not isinstance(platform, FittingPlatform):
        return NOTHING
    refused = len(_lossless(platform, bare, present))
    queues = tuple(
        queue
        for queue in range(QUEUES)
        if len(_lossless(platform, _keeping(bare, (queue,)), present)) < refused
    )
    if not queues:
        return NOTHING
    kept = _keeping(bare, queues)
    [device] = kept.devices
    everywhere = [
        _points(platform, kept, replace(device, groups=(group,)), present)
        for group in device.groups
    ]
    agreed = {
        dscp: queue
        for dscp, queue in everywhere[0].items()
        if all(points.get(dscp) == queue for points in everywhere)
    }
    return Keep(dict(sorted(agreed.items())), queues, (), ())


def _points(
    platform: FittingPlatform, kept: Intent, device: Device, present: State
) -> dict[int, int]:
    """Code points that go to kept queues on the ports of a device."""
    rendered = platform.render(kept, device).state
    fit = platform.fit(kept, device, rendered, present)
    return {
        int(dscp): int(queue)
        for place, value in fit.state.items()
        if place in rendered and rendered[place] != value
        for dscp, queue in ((place.field or place.name, value.split(" ")[0]),)
        if dscp.isdecimal() and queue.isdecimal() and int(queue) in kept.keep.queues
    }


def _keeping(bare: Intent, queues: tuple[int, ...]) -> Intent:
    return replace(bare, keep=replace(bare.keep, queues=queues))


def _lossless(platform: FittingPlatform, wanted: Intent, present: State) -> list[str]:
    """Problems of the rule `lossless`, about queues with flow control."""
    [device] = wanted.devices
    fit: Fit = platform.fit(wanted, device, platform.render(wanted, device).state, present)
    return [each for each in fit.problems if each.startswith("lossless:")]


def _profiles(
    platform: Platform, bare: Intent, ports: Iterable[str], present: State
) -> tuple[str, ...]:
    """Foreign profiles on ports, which switchcfg's would replace."""
    if not isinstance(platform, CommandPlatform):
        return ()
    found = (present.get(Place(kind, port, "")) for kind in platform.binds for port in ports)
    names = {name for name in found if name and not is_ours(bare, name) and NAME.fullmatch(name)}
    return tuple(sorted(names))


# --- text ------------------------------------------------------------------------------------


def _text(
    asked: Asked,
    groups: Groups,
    keep: Keep,
    profiles: Sequence[str],
    classes: Sequence[TrafficClass] = (),
) -> str:
    """The intent as TOML. Quoted values have been checked, or are checked when it is parsed."""
    address = f"address = {_quoted(asked.address)}\n" if asked.address else ""
    head = (
        f"# Keeps the present configuration of {printable(asked.name)}. Review it, and run "
        '`switchcfg plan`, before you apply it.\nschema = 1\n\n[fabric]\nname = "imported"\n'
    )
    device = (
        f"\n[[device]]\nname = {_quoted(asked.name)}\nplatform = {_quoted(asked.platform)}\n"
        f"{address}"
    )
    if not groups:
        device += "ports = []  # all stay as they are\n"
    parts = (_classes_text(classes), _keep_text(keep, profiles), device, *_groups(groups))
    return head + "".join(parts)


def _classes_text(classes: Sequence[TrafficClass]) -> str:
    """The table of classes, unless it is dlcpd's own."""
    if tuple(classes) in ((), shared_classes()):
        return "\n# The traffic classes are the defaults of dlcpd: docs/switches.md.\n"
    rows = [
        f"{each.name} = {{ rank = {each.rank}, dscp = {list(each.dscp)}, ecn = ["
        + ", ".join('"ect0"' if ect else '"not-ect"' for ect in each.ect)
        + f"], share = {each.share:g} }}\n"
        for each in classes
    ]
    why = (
        "# dlcpd's classes, with other code points where a kept queue has those. The hosts must\n"
        "# send the same: change dlcpd/contract/traffic_classes.toml on each of them.\n"
    )
    return f"\n{why}[classes]\n{''.join(rows)}"


def _keep_text(keep: Keep, profiles: Sequence[str]) -> str:
    out = ""
    if keep.ports:
        names = ", ".join(map(_quoted, compact(keep.ports)))
        out += f"ports = [{names}]  # stay as they are: the reasons are below\n"
    if profiles:
        names = ", ".join(map(_quoted, profiles))
        out += (
            "# To replace these profiles on their ports, which ends their PFC and ECN, uncomment "
            f"`replaces`, and\n# move the ports to [[device.ports]]:\n# replaces = [{names}]\n"
        )
    if keep.queues:
        out += f"queues = [{', '.join(map(str, keep.queues))}]  # with flow control (PFC)\n"
    if keep.dscp:
        out += "\n[keep.dscp]\n" + "".join(f"{dscp} = {to}\n" for dscp, to in keep.dscp.items())
    return f"\n[keep]\n{out}" if out else ""


def _groups(groups: Groups) -> Iterator[str]:
    for number, (kind, ports) in enumerate(groups.items()):
        names = ", ".join(map(_quoted, compact(ports)))
        group = f'group = "G{number}"\n' if number else ""
        guess = "  # assumed: the configuration does not state the rate" if kind.guessed else ""
        yield f"\n[[device.ports]]\n{group}names = [{names}]\n"
        yield f'rate = "{in_words(kind.bits)}"{guess}\n'


def _quoted(text: str) -> str:
    """A TOML string. A value that it cannot hold causes an error when the text is parsed."""
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _verdict(found: Accepted, platform: Platform) -> Iterator[str]:
    if not isinstance(platform, FittingPlatform):
        yield (
            "switchcfg does not find foreign configuration of ports on this platform: check the "
            "changes in the plan."
        )
    elif not found.intent.keep.queues:
        yield (
            "The configuration has no queue with flow control (PFC). If the device has such a "
            "queue, list it in [keep] queues."
        )
    if found.left:
        yield "Ports under [keep] ports stay as they are, because `switchcfg plan` would refuse:"
        why = [line for reasons in found.left.values() for line in reasons]
        yield from (f"  {line}" for line in folded(dict.fromkeys(why), found.left, 1))
        if KNOWN[platform.name].whole and found.changes:
            yield "Settings of the whole switch (code points, PFC) change for these ports, too."
    if found.problems:
        yield "`switchcfg plan` refuses this intent for these reasons:"
        ports = found.intent.devices[0].ports
        yield from (f"  {line}" for line in folded(found.problems, ports, 1))
    else:
        yield f"`switchcfg plan` accepts this intent: {found.changes} values would change."


def _others(platform: Platform, bare: Intent, present: State) -> Iterator[str]:
    """Notes that list present configuration which the intent does not include."""
    if unread := [*refusals("the switch", present, {p.name for p in present})]:
        yield "Lines that switchcfg does not understand; a plan refuses those near its ports:"
        yield from (f"  {line}" for line in unread)
    owns = platform.owns(bare)
    usual = platform.defaults(present) if isinstance(platform, CommandPlatform) else {}
    there: dict[str, dict[str, None]] = {}
    for place, value in sorted(present.items()):
        other = place.kind not in (UNREAD, CHANNEL, "port") and usual.get(place) != value
        if other and not owns(place, value):
            there.setdefault(place.kind, {})[place.name] = None
    if there:
        yield (
            "Present configuration that this intent does not cover; the plan shows changes of it:"
        )
    for kind, names in there.items():
        shown = compact(sorted(names, key=natural))[:SHOWN]
        more = f" and more: {len(names)} in all" if len(shown) == SHOWN < len(names) else ""
        yield f"  {kind} {', '.join(filter(None, shown))}{more}".rstrip()


def _wrapped(note: str) -> Iterator[str]:
    """The lines of a comment; text of a device cannot end a comment."""
    text = printable(note)
    indent = text[: len(text) - len(text.lstrip())]
    line = ""
    for word in text.split():
        if line and len(line) + len(word) >= WIDTH:
            yield line
            line = f"{indent}  {word}"
        else:
            line = f"{line} {word}" if line else f"{indent}{word}"
    if line:
        yield line

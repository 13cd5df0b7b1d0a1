"""`switchcfg import`: writes an intent that preserves a device's present configuration.

The platform itself finds conflicts, so the result agrees with `plan`. Configuration that an intent
cannot express, and decisions that the operator must make, are listed in comments.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from switchcfg.cli.output import printable
from switchcfg.errors import BadIntent, SwitchcfgError
from switchcfg.intent.intent import NAME, QUEUES, Intent, Keep, parse
from switchcfg.intent.known import KNOWN
from switchcfg.intent.port_names import in_words
from switchcfg.intent.port_ranges import compact
from switchcfg.plan.account import UNREAD, refusals
from switchcfg.plan.plan import plan
from switchcfg.plan.speeds import speeds
from switchcfg.plan.state import Place, State, natural
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import Fit, FittingPlatform, Platform, is_ours

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
    rates = _by_rate(asked, ports, {})
    return _parsed(asked, _text(asked, rates, NOTHING, ()))


def intent(asked: Asked, present: State) -> str:
    """The text of the intent. Raises: BadIntent if no port is known."""
    platform = PLATFORMS[asked.platform]
    ports = list(asked.ports) or _ports(asked.platform, present)
    if not ports:
        why = "lists no port: name the ports with --ports"
        raise BadIntent(f"{asked.name}: the configuration of the device {why}")
    by_rate = _by_rate(asked, ports, present)
    bare = _parsed(asked, _text(asked, by_rate, NOTHING, ()))
    keep = _keep(platform, bare, present)
    profiles = _profiles(platform, bare, ports, present)
    text = _text(asked, by_rate, keep, profiles)
    notes = [*_verdict(_parsed(asked, text), platform, present), *_others(platform, bare, present)]
    return f"{text}\n" + "".join(f"# {line}\n" for note in notes for line in _wrapped(note))


def _parsed(asked: Asked, text: str) -> Intent:
    return parse(text, f"import {asked.name}")


# --- present configuration -------------------------------------------------------------------


def _ports(platform: str, present: State) -> list[str]:
    """Names of the ports in a state, from objects of interfaces, ports and queues."""
    kinds = ("interface", "port")
    names = {
        part
        for place in present
        if place.kind.lower().startswith(kinds) or place.kind == "QUEUE"
        for part in place.name.split("|")[:1]
    }
    return sorted(filter(KNOWN[platform].ports.matches, names), key=natural)


@dataclass(frozen=True, slots=True)
class _Rate:
    """The common rate of some ports."""

    bits: int  # per second
    guessed: bool


Rates = Mapping[_Rate, Sequence[str]]


def _by_rate(asked: Asked, ports: Sequence[str], present: State) -> Rates:
    told = speeds(asked.platform, present)
    found: dict[_Rate, list[str]] = {}
    for port in ports:
        known = asked.rate or told.get(port) or KNOWN[asked.platform].ports.speed_of(port)
        found.setdefault(_Rate(known or RATE, not known), []).append(port)
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
    rendered = platform.render(kept, device).state
    fit = platform.fit(kept, device, rendered, present)
    points = {
        int(dscp): int(queue)
        for place, value in fit.state.items()
        if place in rendered and rendered[place] != value
        for dscp, queue in ((place.field or place.name, value.split(" ")[0]),)
        if dscp.isdecimal() and queue.isdecimal() and int(queue) in queues
    }
    return Keep(dict(sorted(points.items())), queues, (), ())


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


def _text(asked: Asked, by_rate: Rates, keep: Keep, profiles: Sequence[str]) -> str:
    """The intent as TOML. Quoted values have been checked, or are checked when it is parsed."""
    address = f"address = {_quoted(asked.address)}\n" if asked.address else ""
    head = (
        f"# Keeps the present configuration of {printable(asked.name)}. Review it, and run "
        "`switchcfg plan`, before you apply it.\n# The traffic classes are the defaults of "
        'dlcpd: docs/switches.md.\nschema = 1\n\n[fabric]\nname = "imported"\n'
    )
    device = (
        f"\n[[device]]\nname = {_quoted(asked.name)}\nplatform = {_quoted(asked.platform)}\n"
        f"{address}"
    )
    return head + _keep_text(keep, profiles) + device + "".join(_groups(by_rate))


def _keep_text(keep: Keep, profiles: Sequence[str]) -> str:
    out = ""
    if profiles:
        names = ", ".join(map(_quoted, profiles))
        out += (
            "# The plan would replace these profiles on their ports, and end their PFC and ECN. "
            "To replace them,\n# uncomment `replaces`; to keep a profile, list its ports in "
            f"`ports`:\n# replaces = [{names}]\n# ports = []\n"
        )
    if keep.queues:
        out += f"queues = [{', '.join(map(str, keep.queues))}]  # with flow control (PFC)\n"
    if keep.dscp:
        out += "\n[keep.dscp]\n" + "".join(f"{dscp} = {to}\n" for dscp, to in keep.dscp.items())
    return f"\n[keep]\n{out}" if out else ""


def _groups(by_rate: Rates) -> Iterator[str]:
    for number, (rate, ports) in enumerate(by_rate.items()):
        names = ", ".join(map(_quoted, compact(ports)))
        group = f'group = "G{number}"\n' if number else ""
        guess = "  # assumed: the configuration does not state the rate" if rate.guessed else ""
        yield f"\n[[device.ports]]\n{group}names = [{names}]\n"
        yield f'rate = "{in_words(rate.bits)}"{guess}\n'


def _quoted(text: str) -> str:
    """A TOML string. A value that it cannot hold causes an error when the text is parsed."""
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _verdict(wanted: Intent, platform: Platform, present: State) -> Iterator[str]:
    [device] = wanted.devices
    if not isinstance(platform, FittingPlatform):
        yield (
            "switchcfg does not find foreign configuration of ports on this platform: check the "
            "changes in the plan."
        )
    elif not wanted.keep.queues:
        yield (
            "The configuration has no queue with flow control (PFC). If the device has such a "
            "queue, list it in [keep] queues."
        )
    try:
        made = plan(wanted, device, platform, present)
    except SwitchcfgError as exc:
        yield "`switchcfg plan` refuses this intent for these reasons:"
        yield from (f"  {line}" for line in str(exc).splitlines())
    else:
        yield f"`switchcfg plan` accepts this intent: {len(made.changes)} values would change."


def _others(platform: Platform, bare: Intent, present: State) -> Iterator[str]:
    """Notes that list present configuration which the intent does not include."""
    if unread := [*refusals("the switch", present, {p.name for p in present})]:
        yield "Lines that switchcfg does not understand; a plan refuses those near its ports:"
        yield from (f"  {line}" for line in unread)
    owns = platform.owns(bare)
    there: dict[str, dict[str, None]] = {}
    for place, value in sorted(present.items()):
        if place.kind != UNREAD and not owns(place, value):
            there.setdefault(place.kind, {})[place.name] = None
    if there:
        yield (
            "Present configuration that this intent does not cover; the plan shows changes of it:"
        )
    for kind, names in there.items():
        shown = [*names][:SHOWN]
        rest = len(names) - len(shown)
        more = f" and {rest} more" if rest else ""
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

"""A plan: the changes and steps for one device, bound to the state they were made for. Pure.

It is saved as JSON and applied as saved. Its seal is a hash of all other fields. The seal detects
damage and edits, not an attacker, who could compute it as well.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from switchcfg.errors import BadPlan, Moved, Refused
from switchcfg.intent.intent import Device, Intent
from switchcfg.intent.port_ranges import folded
from switchcfg.model.known import Judgement, judged, treatments
from switchcfg.plan.account import UNREAD, Reading, counts, refusals
from switchcfg.plan.speeds import too_fast
from switchcfg.plan.state import Change, Place, State, after, difference, fingerprint
from switchcfg.platforms.platform import (
    AccountingPlatform,
    Fit,
    FittingPlatform,
    GivenBack,
    Platform,
    SharedPlatform,
    Step,
    Taken,
    is_ours,
)

VERSION: Final = 1
MAX_TEXT: Final = 1 << 26  # characters of a saved plan
MAX_SHOWN: Final = 20  # problems that an error lists


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of one device."""

    device: str
    platform: str
    fabric: str
    fingerprint: str  # of the device's state when the plan was made
    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    degraded: tuple[str, ...]  # parts of the intent that the platform cannot do
    read: tuple[int, int] = (0, 0)  # lines near QoS: understood or of no matter, of all

    @property
    def minutes(self) -> int:
        """The most minutes that a long step may take; 0 if no step is long."""
        return max((step.minutes for step in self.steps), default=0)

    @property
    def seconds(self) -> int:
        """The seconds that all steps may take; 0: a few."""
        return sum(60 * step.minutes or step.lasts for step in self.steps)

    @property
    def disrupts(self) -> tuple[str, ...]:
        """Effects on traffic, each once."""
        return tuple(dict.fromkeys(text for step in self.steps for text in step.disrupts))

    def check(self, present: State) -> None:
        """Raises: Moved if the device's state changed since the plan."""
        if fingerprint(present) != self.fingerprint:
            raise Moved(f"{self.device}: its configuration changed since the plan; plan again")


def plan(intent: Intent, device: Device, platform: Platform, present: State) -> Plan:
    """The plan that turns `present` into the state that the intent wants. A device without ports
    is left as it is.

    Raises: CannotExpress; Refused with every rule that the resulting state would break.
    """
    if not device.ports:
        return _plan(intent, device, platform, present, ())
    rendered = platform.render(intent, device)
    fit = _fit(intent, device, platform, rendered.state, present)
    near = _unread(device, platform, present)
    unread = dict.fromkeys([*near, *_unread_of(intent, device, platform, present)])
    if problems := [*unread, *fit.problems, *too_fast(device, present)]:
        raise refused(device, problems)
    owns = platform.owns(intent)
    changes = difference(
        present, fit.state, lambda place, value: place in fit.gives_way or owns(place, value)
    )
    taken = _taken(platform, present, changes)
    if problems := not_taken(device, taken):
        raise refused(device, problems)
    refuse(platform, device, after(present, changes))
    found = _plan(intent, device, platform, present, changes)
    judgement = _judged(intent, device, present, found)
    if judgement.problems:
        raise refused(device, judgement.problems)
    return replace(found, degraded=(*rendered.degraded, *taken.doubts, *judgement.warnings))


def removal(
    intent: Intent,
    device: Device,
    platform: Platform,
    present: State,
    was: Mapping[Place, str | None] = MappingProxyType({}),
) -> Plan:
    """The plan that removes all that switchcfg made, and gives back what it replaced.

    `was`: place -> value before switchcfg, as far as it is known (`switchcfg.plan.before`). Foreign
    configuration stays; settings of the whole switch that stay are listed in `degraded`.

    Raises: Refused with every rule that the resulting state breaks and the present one does not.
    """
    owns = platform.owns(intent)
    back = GivenBack({}, {})
    if isinstance(platform, SharedPlatform):
        back = platform.given_back(intent, device, present)
    known = {p: value for p, value in was.items() if value is not None or p not in back.lasting}
    values = {**back.values, **known}
    want = {place: value for place, value in values.items() if value is not None}
    changes = difference(present, want, lambda place, value: place in values or owns(place, value))
    before = platform.check(present, device)
    new = [each for each in platform.check(after(present, changes), device) if each not in before]
    new += not_taken(device, _taken(platform, present, changes))
    new += _unread_of(intent, device, platform, present)
    found = _plan(intent, device, platform, present, changes)
    if not all(change.place in known for change in changes):  # else all is as it was before
        new += _judged(intent, device, present, found, removing=True).problems
    if new:
        raise refused(device, new, "; `switchcfg rollback` restores the previous configuration")
    stays = [text for place, text in back.stays.items() if place not in values]
    said = f"stays, because it is kept or differs from the intent: {'; '.join(stays)}"
    return replace(found, degraded=(said,) if stays else ())


def treatments_of(platform: Platform, state: State) -> dict[str, str]:
    """Port -> hash of the treatments of its code points; {}: the state was not read from a device,
    or its model cannot be computed."""
    return treatments(platform.name, state.text if isinstance(state, Reading) else None)


def reverse(
    intent: Intent,
    done: Plan,
    device: Device,
    platform: Platform,
    present: State,
    *,
    then: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """The plan that undoes an applied plan. `then`: `treatments_of` the state after it; ports that
    are still treated so get the treatments from before, and are not judged.

    Raises: Moved if a value that the plan set has changed since; Refused if the device does not
    take the changes, or if they would change a kept code point of another port: configuration that
    was added since may need what the plan made.
    """
    changes = tuple(change.reverse() for change in done.changes)
    try:
        after(present, changes)
    except ValueError as exc:
        raise Moved(
            f"{done.device}: {exc}: the device has changed since the plan was applied; "
            "`switchcfg plan` and `apply` restore the intent, and `rollback` works then"
        ) from exc
    if problems := not_taken(device, _taken(platform, present, changes)):
        raise refused(device, problems)
    steps = tuple(platform.steps(present, changes)) if changes else ()
    back = replace(done, fingerprint=fingerprint(present), changes=changes, steps=steps)
    now = treatments_of(platform, present) if then else {}
    unchanged = {port for port, found in now.items() if then.get(port) == found}
    judgement = _judged(intent, device, present, back, removing=True, unchanged=unchanged)
    if judgement.problems:
        raise refused(device, judgement.problems)
    return back


def refuse(platform: Platform, device: Device, state: State) -> None:
    """Check a whole state by the platform's rules. Raises: Refused."""
    found = platform.check(state, device)
    if found:
        raise refused(device, found)


def not_taken(device: Device, taken: Taken) -> list[str]:
    """The problems that remain; a full reload solves some, if the operator allows it."""
    if device.reload:
        return list(taken.problems)
    how = "a full reload applies it: allow that with [[device]] reload = true"
    return [*taken.problems, *(f"{text}; {how}" for text in taken.by_reload)]


def refused(device: Device, found: Sequence[str], why: str = "") -> Refused:
    """The error that lists the problems, folded by ports, at most MAX_SHOWN."""
    lines = folded(found, device.ports)
    rest = len(lines) - MAX_SHOWN
    more = [f"... and {rest} more"] if rest > 0 else []
    return Refused(f"{device.name}: refused{why}", found, [*lines[:MAX_SHOWN], *more])


def _fit(
    intent: Intent, device: Device, platform: Platform, rendered: State, present: State
) -> Fit:
    if isinstance(platform, FittingPlatform):
        return platform.fit(intent, device, rendered, present)
    return Fit(rendered, frozenset(), ())


def _unread(device: Device, platform: Platform, present: State) -> list[str]:
    """Problems of lines that the platform does not understand, near what a plan touches."""
    if isinstance(platform, AccountingPlatform):
        return [*refusals(device.name, present, platform.near(device, present))]
    return []


def _unread_of(intent: Intent, device: Device, platform: Platform, present: State) -> list[str]:
    """Problems of such lines in objects of switchcfg, which a plan may change or remove."""
    owners = {place.name for place in present if place.kind == UNREAD}
    ours = {owner for owner in owners if is_ours(intent, owner.rpartition(" ")[2])}
    return [*refusals(device.name, present, ours)]


def _judged(
    intent: Intent,
    device: Device,
    present: State,
    found: Plan,
    *,
    removing: bool = False,
    unchanged: Collection[str] = (),
) -> Judgement:
    """The judgement by the model of the switch. A state that was not read from a
    device has no text, and its plan is not judged."""
    text = present.text if isinstance(present, Reading) else None
    payloads = [step.payload for step in found.steps]
    return judged(intent, device, text, payloads, removing=removing, unchanged=unchanged)


def _taken(platform: Platform, present: State, changes: Sequence[Change]) -> Taken:
    if changes and isinstance(platform, FittingPlatform):
        return platform.takes(present, changes)
    return Taken((), ())


def _plan(
    intent: Intent,
    device: Device,
    platform: Platform,
    present: State,
    changes: tuple[Change, ...],
) -> Plan:
    steps = tuple(platform.steps(present, changes)) if changes else ()
    was = fingerprint(present)
    names = (device.name, platform.name, intent.fabric)
    return Plan(*names, was, changes, steps, (), counts(present))


# --- as a file -----------------------------------------------------------------------


def digest(plan: Plan) -> str:
    """The seal of a saved plan, which identifies it."""
    return _seal(_body(plan))


def dump(plan: Plan) -> str:
    """The plan as JSON, with a seal over all of it."""
    body = _body(plan)
    return json.dumps({**body, "seal": _seal(body)}, indent=1) + "\n"


def _body(plan: Plan) -> dict[str, Any]:
    return {"switchcfg plan": VERSION, **asdict(plan)}


def load(text: str, name: str) -> Plan:
    """The plan that `dump` wrote; `name`: of its file, for errors.

    Raises: BadPlan.
    """
    if len(text) > MAX_TEXT:
        raise BadPlan(f"{name}: {len(text)} characters, at most {MAX_TEXT}")
    try:
        body = json.loads(text)
        seal = body.pop("seal")
        version = body["switchcfg plan"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as exc:
        why = (
            "it is not JSON" if isinstance(exc, ValueError) else "`switchcfg plan --out` saves one"
        )
        raise BadPlan(f"{name}: is not a plan of switchcfg: {why}") from exc
    if version != VERSION:
        raise BadPlan(
            f"{name}: is a plan of version {version!r}, and this switchcfg reads version "
            f"{VERSION}: plan again"
        )
    if seal != _seal(body):
        raise BadPlan(f"{name}: was edited or damaged since it was written; plan again")
    del body["switchcfg plan"]
    body["changes"] = tuple(_change(row) for row in body["changes"])
    body["steps"] = tuple(
        Step(
            row["title"],
            row["payload"],
            tuple(row["disrupts"]),
            row.get("minutes", 0),
            row.get("lasts", 0),
        )
        for row in body["steps"]
    )
    body["degraded"] = tuple(body["degraded"])
    body["read"] = tuple(body.get("read", (0, 0)))
    return Plan(**body)


def _change(row: Mapping[str, Any]) -> Change:
    return Change(Place(*row["place"]), row["before"], row["after"])


def _seal(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()

"""DSCP-to-queue mappings of a switch that the intent must preserve, and conflicts. Pure."""

from collections.abc import Mapping

from switchcfg.intent.intent import Intent


def kept(
    intent: Intent, where: str, today: Mapping[int, tuple[int, int]]
) -> tuple[dict[int, int], list[str]]:
    """(DSCP -> kept queue that it must still go to, problems that begin with the rule's name).

    `today`: DSCP -> (traffic class or priority, queue) on `where`, which is a port or a switch.
    """
    classes = {dscp: each.name for each in intent.classes for dscp in each.dscp}
    found: dict[int, int] = {}
    problems: list[str] = []
    for dscp, (tc, queue) in sorted(today.items()):
        says = intent.keep.dscp.get(dscp)
        goes = f"{where}: code point {dscp} goes to queue {queue} today"
        if says is not None and says != queue:
            problems.append(f"kept-dscp: {goes}, not to {says} as [keep.dscp] says")
        elif queue not in intent.keep.queues:
            continue
        elif dscp in classes:
            problems.append(
                f"kept-dscp: {goes}, which is kept, and class {classes[dscp]!r} sends it: give "
                "the class another code point under [classes]"
            )
        elif tc != queue:
            problems.append(
                f"kept-tc: {goes}, by traffic class {tc}: to keep the queue, its traffic class "
                "must have the queue's number"
            )
        else:
            found[dscp] = queue
    return found, problems


def lossless(intent: Intent, where: str, queue: int) -> list[str]:
    """The problem of a queue with foreign flow control that a traffic class would use."""
    if queue in intent.keep.queues or any(each.priority == queue for each in intent.lossless):
        return []
    return [f"lossless: {where} queue {queue} has PFC: name it in [keep] queues"]


def left_out(intent: Intent, where: str, today: Mapping[int, int]) -> list[str]:
    """Problems of code points that foreign flow control protects today and that the intent would
    send to another queue. `today`: DSCP -> queue, by foreign configuration."""
    has = {each.priority: each for each in intent.lossless}
    classes = {dscp: each.name for each in intent.classes for dscp in each.dscp}
    lost: dict[tuple[int, str], list[int]] = {}  # (queue, class that sends it or "") -> code points
    for dscp, queue in sorted(today.items()):
        if queue in has and dscp not in has[queue].dscp:
            lost.setdefault((queue, classes.get(dscp, "")), []).append(dscp)
    found: list[str] = []
    for (queue, name), points in lost.items():
        one = len(points) == 1
        goes = f"code point {points[0]} goes"
        if not one:
            goes = f"code points {', '.join(map(str, points))} go"
        them = "it" if one else "them"
        advice = f"name {them} in dscp of [[lossless]] {has[queue].name!r}"
        if name:
            more = "another code point" if one else "other code points"
            advice = f"class {name!r} sends {them}: give the class {more} under [classes]"
        found.append(
            f"lossless-dscp: {where}: {goes} to queue {queue} today, which has PFC; {advice}"
        )
    return found

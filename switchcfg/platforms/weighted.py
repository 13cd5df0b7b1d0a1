"""Weighted queues, on platforms that cannot serve all traffic classes strictly. Pure.

Lossless classes share the rate that strict queues leave. EOS and NX-OS have no strict queue below a
weighted one, Junos has five levels: traffic classes below these limits get weighted queues, too.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.plan.queues import Layout, Queue

UNMARKED: Final = "{0}: priority 0 is that of frames without a VLAN tag: they pause with it"
LEAST: Final = 10  # percent for a weighted traffic class, so that lossless classes cannot starve it


def below(layout: Layout) -> list[Queue]:
    """The queues of traffic classes below the highest lossless queue, the highest first."""
    top = max((each.priority for each in layout.lossless), default=-1)
    return [queue for queue in layout.queues if queue.index < top]


def percents(layout: Layout, ours: Sequence[Queue]) -> dict[int, int]:
    """Queue -> percent of the rate that strict queues leave: shares of lossless classes, and equal
    parts of the rest for the queues in `ours`. The sum is at most 100."""
    if not layout.lossless:
        return {}
    asked = sum(each.share for each in layout.lossless)
    room = min(asked, 100 - LEAST * len(ours))
    found = {each.priority: max(each.share * room // asked, 1) for each in layout.lossless}
    if ours:
        part, rest = divmod(100 - sum(found.values()), len(ours))
        found |= {queue.index: part for queue in ours}
        found[ours[-1].index] += rest
    return found


def in_words(layout: Layout, ours: Sequence[Queue], why: str) -> Iterator[str]:
    """The deviations from the intent, for a plan; `why` ends the sentence."""
    if not layout.lossless:
        return
    found = percents(layout, ours)
    for queue in ours:
        percent = found[queue.index]
        yield f"{queue.name}: not strict: weighted with the lossless classes, {percent}%: {why}"
    for each in layout.lossless:
        if found[each.priority] != each.share:
            yield (
                f"{each.name}: a share of {found[each.priority]}% and not {each.share}%, to "
                "leave a part for classes that are not strict"
            )

"""Queues that are served in turn, on platforms that cannot have all of ours strict. Pure.

Lossless classes share what strict queues leave. EOS and NX-OS have no strict queue below one that
is not, Junos has five levels: classes of ours that would be there take their turn as well.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.plan.queues import Layout, Queue

LEAST: Final = 10  # percent for a class of ours, whatever lossless classes ask for: no starving


def below(layout: Layout) -> list[Queue]:
    """Our queues below the highest lossless one, the highest first."""
    top = max((each.priority for each in layout.lossless), default=-1)
    return [queue for queue in layout.queues if queue.index < top]


def percents(layout: Layout, ours: Sequence[Queue]) -> dict[int, int]:
    """Queue -> percent of what strict queues leave: of lossless classes, and of `ours`, which
    share what those leave. Together never above 100."""
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
    """What of the intent that is not, for a plan to say; `why` ends the sentence."""
    if not layout.lossless:
        return
    found = percents(layout, ours)
    for queue in ours:
        percent = found[queue.index]
        yield f"{queue.name}: not strict: in turn with lossless classes, {percent}%: {why}"
    for each in layout.lossless:
        if found[each.priority] != each.share:
            yield (
                f"{each.name}: a share of {found[each.priority]}% and not {each.share}%, for "
                f"classes that are not strict"
            )

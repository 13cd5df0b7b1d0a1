"""Section from a file of `dlcpctl trace`. Pure."""

from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from dlcpd.ctl.report.parts import Section, seconds, table
from dlcpd.inspection.run_identity import RUN, sentence
from dlcpd.inspection.timeline import FIRST_PROCESS

PHASES: Final = ("queued", "waits for ranks", "exchange", "returns")
Event = dict[str, Any]


def of_trace(trace: dict[str, Any]) -> Section:
    """Leaves out events of other programs, such as torch.profiler. Raises: as of_document."""
    events: list[Event] = trace["traceEvents"]
    run = trace.get("otherData", {}).get(RUN, {})  # without: joined with a profile
    ours = [event for event in events if event.get("pid", 0) >= FIRST_PROCESS]
    names = {
        event["pid"]: event["args"]["name"]
        for event in ours
        if event["ph"] == "M" and event["name"] == "process_name"
    }
    rows = [_row(name, [e for e in ours if e["pid"] == pid]) for pid, name in names.items()]
    shown = [event for event in ours if _drawn(event)]
    header = (
        "rank",
        "steps",
        "median step (ms)",
        "operations",
        "retransmitted",
        "waived",
        *(f"{name} (ms)" for name in PHASES),
    )
    return Section(
        "Steps, as dlcpctl trace recorded them",
        [*([sentence(run)] if run else []), *(text for row in rows for text in _said(row))],
        [
            {"kind": "timeline", "title": "Time of operations, by phase", "events": shown},
            table("In all", header, rows),
        ],
        run,
    )


def _drawn(event: Event) -> bool:
    drawn = event.get("cat") in ("step", "operation", "reduction")
    return drawn or event["name"] == "process_name"


def _row(name: str, events: list[Event]) -> list[Any]:
    steps = [event["dur"] for event in events if event.get("cat") == "step"]
    operations = [event for event in events if event.get("cat") == "operation"]
    whole = [event["args"] for event in operations if "collective" in event.get("args", {})]
    sums = _sums(events)
    return [
        name,
        len(steps),
        median(steps) / 1e3 if steps else None,
        len(whole),
        sum(told["segments retransmitted"] for told in whole),
        sum(told["segments waived"] for told in whole),
        *(sums[phase] for phase in PHASES),
    ]


def _sums(events: list[Event]) -> dict[str, float]:
    """Milliseconds in each phase, summed over all operations."""
    sums, open_ = dict.fromkeys(PHASES, 0.0), dict[str, list[Event]]()
    for event in events:
        if event.get("cat") != "operation":
            continue
        inside = open_.setdefault(event["id"], [])
        if event["ph"] == "b":
            inside.append(event)
            continue
        began = inside.pop()
        if "collective" not in began["args"]:  # only the whole operation has it
            sums[began["name"]] += (event["ts"] - began["ts"]) / 1e3
    return sums


def _said(row: list[Any]) -> Iterator[str]:
    name, steps, step, operations, again, waived, *phases = row
    longest = max(range(len(PHASES)), key=phases.__getitem__)
    whole = sum(phases) or 1.0
    took = f", {seconds(step / 1e3)} each (median)" if step else ""
    yield (
        f"{name}: {steps} steps{took}, with {operations} operations; {again} segments were "
        f"retransmitted and {waived} waived."
    )
    yield (
        f"Of the time of its operations {phases[longest] / whole:.0%} is {PHASES[longest]}"
        f"{WHY[PHASES[longest]]}."
    )


WHY: Final = {
    "queued": ": the engine was busy with other operations",
    "waits for ranks": ": another rank came later, which a faster network does not change",
    "exchange": ", spent in the network and in the sums",
    "returns": ": the trainer was busy when results arrived",
}

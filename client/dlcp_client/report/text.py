"""Totals as text. Pure."""

from collections.abc import Mapping
from typing import Final

from dlcp_client.report.totals import Totals, loss_of
from dlcpd.contract.policy import LossPolicy

MAX_LAYERS: Final = 5  # lines for the layers with the largest losses


def summary(
    totals: Totals, policy: LossPolicy, labels: Mapping[str, str], *, waits: bool
) -> list[str]:
    """The lines of a summary. `labels`: the parameters of each bounded operation, by its name."""
    lines = [amounts(totals)]
    if policy.mode == "bounded" or totals.by_name:
        lines.append(losses(totals, policy))
        lines += layers(totals, labels)
    if totals.exchange is not None:
        lines.append(str(totals.exchange))
    if waits:
        lines.append(waiting(totals))
    return lines


def amounts(totals: Totals) -> str:
    """The amount of data exchanged."""
    each = totals.handed_bytes / totals.steps if totals.steps else 0.0
    session = totals.session
    if not session.operations:
        return f"{totals.steps} steps, {size(each)} of each through dlcpd"
    return (
        f"{totals.steps} steps, {size(each)} of each through dlcpd; {session.retransmitted} of "
        f"{session.sent} segments were retransmitted"
    )


def losses(totals: Totals, policy: LossPolicy) -> str:
    """The waived fraction, with the bound."""
    if not totals.bounded_bytes:
        return (
            f"{said(policy)} was never applied: it applies after the warm-up steps, to buckets "
            "of 1 MiB and more"
        )
    share = totals.bounded_bytes / totals.handed_bytes
    bound = f"bound {policy.max_loss:.3%}" if policy.max_loss else "exact now"
    return (
        f"{share:.0%} of those bytes bounded: {totals.loss:.3%} of their segments waived "
        f"({bound}), with {totals.energy_lost:.3%} of the energy; {totals.session.reapplied} "
        f"of {totals.bounded.waived} segments reapplied so far"
    )


def layers(totals: Totals, labels: Mapping[str, str]) -> list[str]:
    """The operations with the largest losses; each has the gradients of one or several layers."""
    rows = sorted(totals.by_name.items(), key=lambda row: loss_of(row[1]), reverse=True)
    lost = [(name, ledger) for name, ledger in rows if ledger.waived]
    lines = [
        f"  {loss_of(ledger):.3%} of {labels.get(name, name)}" for name, ledger in lost[:MAX_LAYERS]
    ]
    if len(lost) > MAX_LAYERS:
        lines.append(f"  and {len(lost) - MAX_LAYERS} operations with smaller losses")
    return lines


def waiting(totals: Totals) -> str:
    """The time spent waiting for the network: the most that a faster one could save."""
    line = f"a step waited {totals.wait * 1e3:.3g} ms for the network"
    if not totals.step:
        return line
    share = totals.wait / totals.step
    return (
        f"{line}, {share:.0%} of its {totals.step * 1000.0:.3g} ms: the most that a faster "
        "exchange could save"
    )


def window(found: Mapping[str, float]) -> str:
    """Metrics of some steps, in a line."""
    parts = [f"{size(found['bytes'] / found['steps'])} a step"]
    if found.get("bounded_bytes"):
        parts.append(f"{found['loss']:.3%} of bounded segments waived")
    if "retransmitted" in found:
        parts.append(f"{found['retransmitted']} of {found['segments']} segments retransmitted")
    if "exposed_s" in found and "step_s" in found:
        parts.append(f"waited {found['exposed_s'] * 1e3:.3g} of {found['step_s'] * 1e3:.3g} ms")
    if "paths" in found:
        parts.append(f"{found['paths_in_alarm']} of {found['paths']} paths in alarm")
    return ", ".join(parts)


def said(policy: LossPolicy) -> str:
    """A policy as written in a script."""
    bound = [f"{policy.max_loss:g}"] if policy.mode == "bounded" else []
    given = {"codec": policy.codec, "gather": policy.gather}
    options = [f'{name}="{value}"' for name, value in given.items() if value]
    return f"{policy.mode}({', '.join([*bound, *options])})"


def size(count: float) -> str:
    """Bytes with a unit prefix."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"

"""`dlcpctl replay`: recomputes bounded operations from ledgers, and compares bit for bit."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlcpd.cli.output import Output
from dlcpd.ledger.inputs import imported, made_by, recorded
from dlcpd.ledger.reader import Ledger, find, runs
from dlcpd.ledger.replay import Replayed, ReplayVerdict, replay

SHOWN = 8  # operations that a line names


def replay_ledgers(options: argparse.Namespace, output: Output) -> int:
    """Exit code 1 if anything differs, or nothing of a run could be compared.

    Raises: BadLedger, BadConfig.
    """
    inputs = made_by(imported(options.inputs)) if options.inputs else recorded
    found = [(run, replay(run, inputs)) for run in runs(find(map(Path, options.ledgers)))]
    for run, replayed in found:
        output.line(f"{_title(run)}: {_said(replayed)}")
    output.document([_document(run, replayed) for run, replayed in found])
    good = all(_compared(one) and not one.different for _, one in found)
    return 0 if good else 1


def _compared(found: Replayed) -> bool:
    """Whether results, or at least the data that ranks sent, were compared with a ledger."""
    return bool(found.of(ReplayVerdict.REPRODUCED) or found.of(ReplayVerdict.COMPUTED))


def _title(run: Mapping[int, Ledger]) -> str:
    opening = next(iter(run.values())).opening
    engine = f", engine {opening.engine} of {opening.engines}" if opening.engines > 1 else ""
    return f"job {opening.job}, session {opening.session:x}, {len(run)} ranks{engine}"


def _said(found: Replayed) -> str:
    count = len(found.of(ReplayVerdict.REPRODUCED))
    if found.different:
        return f"{found.different}. {count} operations before it were reproduced"
    rest = len(found.verdicts) - count
    what = f"all {count}" if not rest else f"{count} of {len(found.verdicts)}"
    lines = [
        f"{what} operations reproduced bit for bit, with {found.waived} segments waived",
        _listed(
            found, ReplayVerdict.PARTIAL, "not in the ledgers of all of their ranks, or failed"
        ),
        _listed(found, ReplayVerdict.UNKNOWN, "reapply residuals that the ledgers do not have"),
        _listed(found, ReplayVerdict.CODED, "have a codec, and are not computed again"),
        _listed(
            found,
            ReplayVerdict.COMPUTED,
            "have results that trainers computed; only the contributions are reproduced",
        ),
    ]
    return "\n  ".join(line for line in lines if line)


def _listed(found: Replayed, verdict: ReplayVerdict, why: str) -> str:
    keys = found.of(verdict)
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return f"{', '.join(map(str, keys[:SHOWN]))}{more}: {why}" if keys else ""


def _document(run: Mapping[int, Ledger], found: Replayed) -> dict[str, Any]:
    opening = next(iter(run.values())).opening
    return {
        "job": opening.job,
        "session": opening.session,
        "engine": opening.engine,
        "ranks": list(run),
        "waived": found.waived,
        "different": found.different,
        **{verdict.name.lower(): len(found.of(verdict)) for verdict in ReplayVerdict},
    }

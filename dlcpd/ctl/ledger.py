"""`dlcpctl ledger`: sums of waived segments by rank, way, path, name and step."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.job_name import means
from dlcpd.ctl.sessions import bound_used
from dlcpd.inspection.report import query, titled
from dlcpd.ledger.survey import UNKNOWN, LossSum, RecordFilter, Survey, TransferLoss

LIVE: Final = 1000  # rows; the most that a daemon returns at once
ALL: Final = 1 << 62  # steps; no training has as many
SHOWN: Final = 20  # rows of a table for people; documents have all
RANKS: Final = ("job", "rank", "engine", "operations", "failed", "steps", "waived", "KB",
                "of bound(%)", "missing")  # fmt: skip
WAYS: Final = ("job", "from", "to", "waived", "KB", "worst(%)")
PATHS: Final = ("job", "from", "path", "waived")
NAMES: Final = ("job", "name", "bound(%)", "operations", "waived", "of bound(%)", "worst(%)")
STEPS: Final = ("job", "steps", "operations", "failed", "waived", "of bound(%)", "worst(%)")
WORST: Final = ("job", "step", "operation", "name", "from", "to", "transfer", "waived", "of",
                "share(%)", "bound(%)")  # fmt: skip
NOW: Final = ("job", "rank", "operations", "waived", "allowed", "of bound(%)", "missing",
              "residual(B)")  # fmt: skip
NEWEST: Final = ("job", "operation", "name", "from", "to", "transfer", "waived", "of", "share(%)",
                 "by path")  # fmt: skip
Table = tuple[str, tuple[str, ...], list[list[Any]]]  # title, header, rows


def ledger(options: argparse.Namespace, output: Output) -> int:
    """Sum up ledgers of folders, or a daemon's newest rows. Exit code 1 if a file is damaged.

    Raises: BadLedger, BadConfig, or as `query`.
    """
    if not options.folders:
        if options.steps is not None:
            raise BadConfig("ledger: --steps needs FOLDER: a daemon does not keep steps")
        return _live(options, output)
    first, last = options.steps or (0, ALL)
    survey = Survey(RecordFilter(options.job, first, last, options.worst))
    survey.read(options.folders)
    if options.job and not any(means(options.job, job) for job in survey.jobs):
        jobs = ", ".join(sorted(survey.jobs)[:SHOWN]) or "no readable job"
        raise BadConfig(
            f"--job {options.job}: no ledger belongs to this job; there are ledgers of: {jobs}"
        )
    for line in _head(survey):
        output.line(line)
    tables = list(_tables(survey))
    _show(tables, output)
    output.document(
        {
            "damaged": survey.problems,
            "cut": survey.cut,
            "total": _total(survey.sum()),
            **_documents(tables),
        }
    )
    return 1 if survey.problems else 0


def _head(survey: Survey) -> Iterator[str]:
    whole = survey.sum()
    jobs = sorted({member.opening.job for member in survey.members})
    yield (
        f"ledgers {len(survey.members)}, jobs {len(jobs)}: {whole.operations} operations, "
        f"{whole.failed} failed; {whole.segments} segments waived ({whole.bytes / 1e3:.0f} KB)"
        + (f", {100 * whole.of_bound:.2f} % of the bound" if whole.of_bound is not None else "")
    )
    for job, rank, host in sorted(survey.absent)[:SHOWN]:
        yield f"MISSING: no ledger of rank {rank} of job {job}, which is on host {host}"
    yield from (f"CUT: {text}; all before it is counted" for text in survey.cut[:SHOWN])
    yield from (f"DAMAGED: {text}" for text in survey.problems[:SHOWN])


def _tables(survey: Survey) -> Iterator[Table]:
    yield "by rank", RANKS, _by_rank(survey)
    yield "by way", WAYS, _by_way(survey)
    yield "by path of the sender", PATHS, _by_path(survey)
    yield "by name", NAMES, _by_name(survey)
    yield "by step", STEPS, _by_step(survey)
    yield "worst transfers", WORST, [_loss(one) for one in sorted(survey.worst, reverse=True)]


def _by_rank(survey: Survey) -> list[list[Any]]:
    return [
        [
            m.opening.job,
            m.opening.rank,
            m.opening.engine,
            m.sum.operations,
            m.sum.failed,
            None if m.first is None else f"{m.first}-{m.last}",
            m.sum.segments,
            round(m.sum.bytes / 1e3),
            _percent(m.sum.of_bound),
            m.lost,
        ]
        for m in sorted(survey.members, key=lambda m: (m.opening.job, m.opening.rank))
    ]


def _by_way(survey: Survey) -> list[list[Any]]:
    return [
        [*key, one.segments, round(one.bytes / 1e3), 100 * one.worst]
        for key, one in _most(survey.ways)
    ]


def _by_path(survey: Survey) -> list[list[Any]]:
    return [
        [job, sender, None if path == UNKNOWN else path, count]
        for (job, sender, path), count in sorted(survey.paths.items(), key=lambda item: -item[1])
    ]


def _by_name(survey: Survey) -> list[list[Any]]:
    return [
        [
            job,
            name,
            _percent(bound),
            one.operations,
            one.segments,
            _percent(one.of_bound),
            100 * one.worst,
        ]
        for (job, name, bound), one in _most(survey.names)
    ]


def _by_step(survey: Survey) -> list[list[Any]]:
    return [
        [
            job,
            f"{first}-{last}" if last > first else str(first),
            one.operations,
            one.failed,
            one.segments,
            _percent(one.of_bound),
            100 * one.worst,
        ]
        for job, steps in sorted(survey.steps.items())
        for first, last, one in steps.rows()
    ]


def _most(sums: dict[tuple[Any, ...], LossSum]) -> list[tuple[tuple[Any, ...], LossSum]]:
    return sorted(sums.items(), key=lambda item: -item[1].segments)


def _loss(one: TransferLoss) -> list[Any]:
    return [
        one.job,
        one.step,
        one.operation,
        one.name,
        one.sender,
        one.receiver,
        one.transfer,
        one.segments,
        one.out_of,
        100 * one.share,
        100 * one.bound,
    ]


def _total(whole: LossSum) -> dict[str, Any]:
    return {
        "operations": whole.operations,
        "failed": whole.failed,
        "waived": whole.segments,
        "bytes": whole.bytes,
        "lossy bytes": whole.lossy,
        "allowed bytes": whole.allowed,
        "of bound(%)": _percent(whole.of_bound),
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


# --- live -------------------------------------------------------------------------------


def _live(options: argparse.Namespace, output: Output) -> int:
    report = query(options.socket, LIVE)
    chosen = [s for s in report["sessions"] if not options.job or means(options.job, s["job"])]
    engine = report["engine"].get("sessions", {})
    known = {s["session"]: engine.get(str(s["session"]), {}) for s in chosen}
    tables = list(_now(chosen, known, options.worst))
    rows = sum(len(session.get("ledger", [])) for session in known.values())
    output.line(
        f"{report['host']}: {len(chosen)} sessions; sums since they started, and the newest "
        f"{rows} losses (docs/ledger.md: how to keep all)"
    )
    _show(tables, output)
    output.document(_documents(tables))
    return 0


def _now(
    sessions: Sequence[dict[str, Any]], known: dict[int, dict[str, Any]], worst: int
) -> Iterator[Table]:
    sums, ways, paths = list[list[Any]](), dict[Any, int](), dict[Any, int]()
    names, newest = dict[Any, int](), list[list[Any]]()
    for session in sessions:
        engine, job = known[session["session"]], titled(session)
        totals = engine.get("totals", {})
        sums.append(
            [
                job,
                session["rank"],
                engine.get("submitted"),
                totals.get("waived"),
                totals.get("allowed"),
                bound_used(engine),
                totals.get("lost"),
                engine.get("residual_bytes"),
            ]
        )
        for row in engine.get("ledger", []):
            count = row["segments"]
            _count(ways, (job, row["sender"], row["owner"]), count)
            _count(names, (job, row["name"]), count)
            for path, share in row["paths"].items():
                _count(paths, (job, row["sender"], path), share)
            newest.append(
                [
                    job,
                    row["operation"],
                    row["name"],
                    row["sender"],
                    row["owner"],
                    row["transfer"],
                    count,
                    row["out_of"],
                    100 * count / row["out_of"],
                    " ".join(f"{path}:{n}" for path, n in row["paths"].items()) or None,
                ]
            )
    yield "since the sessions began", NOW, sums
    yield "by way", ("job", "from", "to", "waived"), _listed(ways)
    yield "by path of the sender", PATHS, _listed(paths)
    yield "by name", ("job", "name", "waived"), _listed(names)
    most = sorted(newest, key=lambda row: -row[8])[:worst]
    yield "worst transfers of the newest", NEWEST, most


def _count(sums: dict[Any, int], key: Any, count: int) -> None:
    sums[key] = sums.get(key, 0) + count


def _listed(sums: dict[Any, int]) -> list[list[Any]]:
    return [[*key, count] for key, count in sorted(sums.items(), key=lambda item: -item[1])]


# --- both -------------------------------------------------------------------------------


def _show(tables: Sequence[Table], output: Output) -> None:
    for title, header, rows in tables:
        if rows:
            output.line(f"\n{title}")
            output.line(table.render(header, rows[:SHOWN], left=1))
        if len(rows) > SHOWN:
            output.line(f"... and {len(rows) - SHOWN} more: --json has all")


def _documents(tables: Sequence[Table]) -> dict[str, Any]:
    return {
        title: [dict(zip(header, row, strict=True)) for row in rows]
        for title, header, rows in tables
    }


def steps(text: str) -> tuple[int, int]:
    """An argparse type: "100-200", "100-" or "100"."""
    first, dash, last = text.partition("-")
    try:
        low = int(first)
        high = int(last) if last else (ALL if dash else low)
    except ValueError:
        low, high = 1, 0
    if not 0 <= low <= high:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a step or a range of steps, such as 100-200"
        )
    return low, high

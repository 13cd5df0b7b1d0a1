"""Verdicts on promises P1-P5 from the results of the ranks of `verify`. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dlcp_lab.report.checks import OPEN, Check, verdict

ENOUGH: Final = 30  # losses; fewer are not judged by position
TAIL: Final = 0.1  # last fraction of a chunk; a tenth of evenly spread losses is in it
TAIL_LIMIT: Final = 0.5  # largest fraction of losses in the tail

Seen = dict[str, Any]  # one rank's result, from dlcp_lab.verify.rank


def judge(seen: Sequence[Seen], *, max_loss: float, segment_size: int) -> list[Check]:
    """All checks; `max_loss` is 0 in exact mode."""
    checks = [_exact(seen), _replicas(seen)]
    if seen[0]["steps"] is None:
        checks.append(_nothing_lost(seen))
        return checks
    return [
        *checks,
        _bound(seen, max_loss, segment_size),
        _exempt(seen),
        _books(seen),
        _conserved(seen),
        _flushed(seen),
        _positions(seen, segment_size),
    ]


def _exact(seen: Sequence[Seen]) -> Check:
    offenders = [
        f"rank {rank}: {case}: {wrong} wrong elements"
        for rank, one in enumerate(seen)
        for case, wrong, _ in one["sweep"]
        if wrong
    ]
    good = f"{len(seen[0]['sweep'])} operations on {len(seen)} ranks"
    return Check("P1", "exact results equal the reference bit for bit", *verdict(offenders, good))


def _replicas(seen: Sequence[Seen]) -> Check:
    offenders = []
    all_digests = [list(_digests(one)) for one in seen]
    for (what, mine), *others in zip(*all_digests, strict=True):
        strangers = [str(rank) for rank, (_, d) in enumerate(others, 1) if d != mine]
        if strangers:
            offenders.append(f"{what}: rank(s) {', '.join(strangers)} differ from rank 0")
    good = f"{len(all_digests[0])} digests equal on all ranks"
    return Check("P2", "all ranks hold the same bytes", *verdict(offenders, good))


def _digests(one: Seen) -> Iterator[tuple[str, str]]:
    for case, _, digest in one["sweep"]:
        yield case, digest
    for name, digests in (one["steps"] or {"digests": {}})["digests"].items():
        for step, digest in enumerate(digests):
            yield f"{name} step {step}", digest


def _nothing_lost(seen: Sequence[Seen]) -> Check:
    offenders = [
        f"rank {rank} recorded {one['books']['lost']} lost, {one['books']['waived']} waived"
        for rank, one in enumerate(seen)
        if one["books"]["lost"] or one["books"]["waived"] or one["books"]["ledger"]
    ]
    return Check("P3", "exact mode waives nothing", *verdict(offenders, "0 segments"))


def _losses(seen: Sequence[Seen]) -> Iterator[tuple[int, int, int, list[int], int]]:
    """(step, sender, chunk, positions, partial) in rank 0's results."""
    for step, rows in enumerate(seen[0]["steps"]["losses"]):
        for row in rows:
            yield step, *row


def chunk_segments(seen: Sequence[Seen], segment_size: int) -> dict[int, int]:
    """Segments of each chunk of the steps' gradients, by index."""
    elements = segment_size // 4
    return {index: -(-count // elements) for index, _, count in seen[0]["steps"]["chunks"]}


def _bound(seen: Sequence[Seen], max_loss: float, segment_size: int) -> Check:
    """Loss from the results, and from the owners' ledgers for transfers without digits."""
    sizes = chunk_segments(seen, segment_size)
    found = [
        (f"step {step}: chunk {chunk}", sender, len(positions), sizes[chunk])
        for step, sender, chunk, positions, _ in _losses(seen)
    ]
    found += [
        (
            f"operation {row['operation']}: transfer {row['transfer']}",
            row["sender"],
            row["segments"],
            row["out_of"],
        )
        for rank, one in enumerate(seen)
        for row in one["books"]["ledger"]
        if row["owner"] == rank
    ]
    offenders = [
        f"{where} lacks {lost} of {size} segments of rank {sender}"
        for where, sender, lost, size in found
        if lost > max_loss * size
    ]
    worst = max((lost / size for _, _, lost, size in found), default=0.0)
    good = f"at most {worst:.2%} of a sender's chunk, bound {max_loss:.2%}"
    what = "loss per sender and chunk is within the bound"
    return Check("P3", what, *verdict(offenders, good))


def _exempt(seen: Sequence[Seen]) -> Check:
    damaged = seen[0]["steps"]["damaged"]
    partial = sum(part for *_, part in _losses(seen))
    offenders = [f"{damaged} exempt elements are not in their step's result"] if damaged else []
    offenders += [f"{partial} segments arrived in part"] if partial else []
    return Check("P3", "exempt ranges always arrive", *verdict(offenders, "none missing"))


def _books(seen: Sequence[Seen]) -> Check:
    """Ledgers of owners and senders, totals, and results must agree."""
    owners = _rows(seen, "owner")
    senders = _rows(seen, "sender")
    offenders = [
        f"{row}: only one rank recorded it"
        for row in sorted((owners - senders).keys() | (senders - owners).keys())
    ]
    lost = sum(one["books"]["lost"] for one in seen)
    waived = sum(one["books"]["waived"] for one in seen)
    if lost != waived or lost != sum(row[4] for row in owners.elements()):
        offenders.append(f"owners lost {lost}, senders waived {waived}")
    shown = sum(len(positions) for _, _, _, positions, _ in _losses(seen))
    units = sum(row[4] for row in owners.elements() if row[5].endswith("units"))
    if shown != units:
        offenders.append(f"results lack {shown} segments, and the ledger has {units}")
    good = f"{lost} segments, {len(owners)} entries"
    return Check("P3", "ledgers agree with each other and with results", *verdict(offenders, good))


def _rows(seen: Sequence[Seen], side: str) -> "Counter[tuple[int, int, int, int, int, str]]":
    return Counter(
        (r["operation"], r["sender"], r["owner"], r["transfer"], r["segments"], r["name"])
        for rank, one in enumerate(seen)
        for r in one["books"]["ledger"]
        if r[side] == rank
    )


def _conserved(seen: Sequence[Seen]) -> Check:
    offenders = [
        f"{name}: {count} elements do not add up"
        for name, count in seen[0]["steps"]["unbalanced"].items()
        if count
    ]
    waived = sum(one["books"]["waived"] for one in seen)
    steps = len(seen[0]["steps"]["losses"])
    good = f"{waived} waived segments in {steps} steps, each element exact"
    return Check("P4", "delivered and reapplied add up to produced", *verdict(offenders, good))


def _flushed(seen: Sequence[Seen]) -> Check:
    offenders = []
    for rank, one in enumerate(seen):
        books = one["books"]
        if books["residual_bytes"] or books["waived"] != books["reapplied"]:
            offenders.append(
                f"rank {rank} waived {books['waived']}, reapplied {books['reapplied']}, and "
                f"still holds {books['residual_bytes']} B"
            )
    reapplied = sum(one["books"]["reapplied"] for one in seen)
    good = f"{reapplied} segments reapplied, none is held"
    return Check("P4", "an exact operation reapplies the held values", *verdict(offenders, good))


def _positions(seen: Sequence[Seen], segment_size: int) -> Check:
    what = "losses are spread over the chunk"
    sizes = chunk_segments(seen, segment_size)
    places = [
        ((sender, chunk, position), position >= (1 - TAIL) * sizes[chunk])
        for _, sender, chunk, positions, _ in _losses(seen)
        for position in positions
    ]
    if len(places) < ENOUGH:
        return Check("P5", what, OPEN, f"not enough losses to judge: {len(places)} of {ENOUGH}")
    share = sum(tail for _, tail in places) / len(places)
    steps = len(seen[0]["steps"]["losses"])
    always = [where for where, hits in Counter(p for p, _ in places).items() if hits == steps]
    offenders = [f"{share:.0%} of the losses lie in the last tenth"] if share > TAIL_LIMIT else []
    offenders += [f"{len(always)} segments were lost in every step"] if always else []
    good = f"{len(places)} losses, {share:.0%} of them in the last tenth of their chunk"
    return Check("P5", what, *verdict(offenders, good))

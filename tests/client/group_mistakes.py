"""What one rank does wrong with groups, and what it is told. Functions return what was not as
it should be, in words."""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist

from dlcp_client import Session
from dlcp_client.group import Group
from dlcpd.contract.errors import (
    BadConfig,
    BadMessage,
    BadPolicy,
    BadTensor,
    DlcpError,
    RanksDisagree,
    SessionClosed,
)
from dlcpd.contract.messages import OpenGroup
from dlcpd.contract.policy import bounded, exact
from tests.client.group_ranks import session_of

Mistake = tuple[str, type[DlcpError], str, Callable[[], Any]]


def told(mistakes: list[Mistake]) -> list[str]:
    """Make each mistake; what was not told as it should be."""
    found = []
    for what, kind, part, make in mistakes:
        try:
            made = make()
            if made is not None:
                made.wait()
            found.append(f"{what}: no error")
        except DlcpError as exc:
            if type(exc) is not kind or part not in str(exc):
                found.append(f"{what}: {type(exc).__name__}: {exc}")
    return found


def works(session: Session, world: int) -> list[str]:
    """The session still reduces."""
    tensor = torch.full((1000,), 1.0)
    session.all_reduce(tensor).wait()
    return [] if bool((tensor == world).all()) else [f"then: {tensor[:4].tolist()}"]


def local(rank: int, store: str, world: int) -> list[str]:
    """Each rank makes every mistake, then all reduce."""
    four = torch.ones(4)
    found = []
    with session_of(rank, store, world) as session:
        ours = session.world
        mistakes: list[Mistake] = [
            (
                "schedule",
                BadMessage,
                "no schedule 'spiral' for all_reduce: one of direct",
                lambda: ours.all_reduce(four, schedule="spiral"),
            ),
            (
                "no name of a schedule",
                BadPolicy,
                "all_reduce: Submit.schedule: Expected str, got None",
                lambda: ours.all_reduce(four, schedule=cast("Any", None)),
            ),
            ("group", BadConfig, "not valid", lambda: session.group(cast("Any", [0.0, 1.0]))),
            ("no ranks", BadConfig, "not valid", lambda: session.group(cast("Any", None))),
            ("name", BadConfig, "give a text", lambda: session.group([0, 1], cast("Any", 5))),
            (
                "root",
                BadTensor,
                "broadcast: rank 2 is not in this group of 2",
                lambda: ours.broadcast(four, world),
            ),
            ("root below", BadTensor, "rank -2 is not in", lambda: ours.reduce(four, -2)),
            ("no root", BadMessage, "needs the rank of a root", lambda: ours.broadcast(four, -1)),
            ("receiver", BadTensor, "send: rank 7 is not in", lambda: ours.send(four, 7)),
            (
                "no receiver",
                BadMessage,
                "needs the rank of a root or receiver",
                lambda: ours.send(four, -1),
            ),
            ("send to itself", BadMessage, "itself", lambda: ours.send(four, rank)),
            ("receive of itself", BadMessage, "itself", lambda: ours.receive(four, rank)),
            (
                "all_gather",
                BadMessage,
                "all_gather of 4 elements in and 9 out",
                lambda: ours.all_gather(torch.ones(9), four),
            ),
            (
                "gather",
                BadMessage,
                "gather of 4 elements in",
                lambda: ours.gather(torch.ones(9), four, rank),
            ),
            (
                "gather without an output",
                BadMessage,
                "gather of 4 elements in and 0 out",
                lambda: ours.gather(None, four, rank),
            ),
            (
                "scatter",
                BadMessage,
                "scatter of 9 elements in",
                lambda: ours.scatter(four, torch.ones(9), rank),
            ),
            (
                "reduce_scatter",
                BadMessage,
                "reduce_scatter of 9 elements in and 4 out",
                lambda: ours.reduce_scatter(four, torch.ones(9)),
            ),
            (
                "sizes",
                BadMessage,
                "all_gather of 4 elements in",
                lambda: ours.all_gather(torch.ones(10), four, [5, 5]),
            ),
            (
                "too many sizes",
                BadMessage,
                "3 rows of sizes for a group of 2",
                lambda: ours.all_gather(torch.ones(9), four, [4, 4, 1]),
            ),
            (
                "negative sizes",
                BadMessage,
                "negative",
                lambda: ours.all_gather(torch.ones(3), four, [4, -1]),
            ),
            (
                "splits",
                BadMessage,
                "all_to_all of 4 elements in",
                lambda: ours.all_to_all(torch.ones(4), four, [2, 2], [3, 2]),
            ),
            (
                "no even parts",
                BadTensor,
                "5 elements cannot be divided equally among 2 ranks: give splits",
                lambda: ours.all_to_all(torch.ones(5), torch.ones(5)),
            ),
            ("fewer splits", BadTensor, "splits", lambda: ours.all_to_all(four, four, [4], [2, 2])),
            (
                "two types",
                BadTensor,
                "float64",
                lambda: ours.all_gather(torch.ones(8, dtype=torch.float64), four),
            ),
            (
                "order of complex numbers",
                BadPolicy,
                "min of complex64 is not defined",
                lambda: ours.all_reduce(torch.ones(2, dtype=torch.complex64), "min"),
            ),
            (
                "bits of floats",
                BadPolicy,
                "band of float32 is not defined",
                lambda: ours.all_reduce(four, "band"),
            ),
            (
                "bounded gather",
                BadPolicy,
                "only all_reduce and reduce_scatter support bounded loss",
                lambda: ours.all_gather(torch.ones(8), four, policy=bounded()),
            ),
            (
                "bounded reduce",
                BadPolicy,
                "only all_reduce and reduce_scatter support bounded loss",
                lambda: ours.reduce(four, 0, policy=bounded()),
            ),
            (
                "other ranks",
                BadConfig,
                f"does not contain this rank, {rank}",
                lambda: session.group([1 - rank]),
            ),
            (
                "unknown ranks",
                BadConfig,
                "different ranks of 0..1",
                lambda: session.group([0, 1, 2]),
            ),
            ("a rank twice", BadConfig, "different ranks", lambda: session.group([rank, rank])),
            ("no ranks", BadConfig, "does not contain this rank", lambda: session.group([])),
        ]
        for mistake in mistakes:
            dist.barrier()
            found += told([mistake])
            found += [f"{mistake[0]}, {text}" for text in works(session, world)]
    return found


def closed(rank: int, store: str, world: int) -> list[str]:
    """What is open in a group fails as it closes; another group and the session go on."""
    with session_of(rank, store, world) as session:
        first, second = session.group([0, 1], "first"), session.group([1, 0], "second")
        dist.barrier()
        open_one = first.receive(torch.zeros(1), 1 - rank)
        first.close()
        first.close()
        found = told(
            [
                ("open", SessionClosed, "closed with operations open", lambda: open_one),
                (
                    "later",
                    SessionClosed,
                    "group first is closed",
                    lambda: first.all_reduce(torch.ones(1)),
                ),
            ]
        )
        session.world.close()  # that of all ranks stays
        tensor = torch.full((3,), 1.0 + rank)
        second.all_reduce(tensor).wait()
        if tensor.tolist() != [3.0] * 3:
            found.append(f"the other group: {tensor.tolist()}")
        return found + works(session, world)


def disagreement(rank: int, store: str, world: int) -> list[str]:
    """A number that means other ranks on rank 0, or their other order: no wrong result."""
    found = []
    with session_of(rank, store, world) as session:
        for number, (others, mine) in enumerate([([0, 1, 2], [1, 0, 2]), ([0, 1, 2], [0, 1])], 90):
            ranks = mine if rank == 0 else others
            submission = session._connection.submission  # noqa: SLF001
            submission.say(OpenGroup(number, "odd", list(ranks)))
            ours = Group(session, submission, number, ranks, "odd")
            tensor = torch.full((1000,), 1.0 + rank)
            dist.barrier()
            work = ours.all_reduce(tensor, policy=exact(deadline=20))
            try:
                work.wait()
                found.append(f"{ranks}: no error, but {tensor[:4].tolist()}")
            except RanksDisagree as exc:
                if "of group odd" not in str(exc):
                    found.append(f"{ranks}: {exc}")
            except DlcpError as exc:  # another member found it out first, and says it for all
                if "of group odd" not in str(exc) or exc.code != "operation_aborted":
                    found.append(f"{ranks}: {type(exc).__name__}: {exc}")
            dist.barrier()
        return found + works(session, world)

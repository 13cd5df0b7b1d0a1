"""Finds the program for a client's request."""

from collections.abc import Callable
from dataclasses import replace

from dlcpd.collectives.order import Group
from dlcpd.contract.collectives import COLLECTIVES, WHOLE, Shape, Share
from dlcpd.contract.errors import BadMessage
from dlcpd.contract.messages import Submit
from dlcpd.core.session.session import Session
from dlcpd.core.transfer.layers import MILLION
from dlcpd.core.wire.sizes import BASE
from dlcpd.numerics.elements import STORAGE
from dlcpd.schedules import choose
from dlcpd.schedules.catalog import Place, Task
from dlcpd.schedules.choose import Choice
from dlcpd.schedules.errors import UnknownSchedule
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import JobNetwork

NOTHING = Program((), frozenset())  # of a message, while its sender is not known


def place(
    group: Group,
    session: Session,
    chunk_bytes: int,
    network: JobNetwork | None = None,
    round_trip: int = 0,
) -> Place:
    """The place of this rank in a group. `network`: of all hosts of the session, if it is known;
    `round_trip`: as in `Place`."""
    hosts = _hosts(group, session)
    part = None if network is None else network.of(list(hosts))
    ranks = tuple(map(tuple, hosts.values()))
    return Place(group.rank, ranks, chunk_bytes, part, round_trip)


def choice_of(ask: Submit, task: Task, place: Place, share: Share = WHOLE) -> Choice:
    """The schedule for the task of a request, or for a share of it.

    Raises: BadMessage if there is no such schedule.
    """
    try:
        return choose.choose(task, place, ask.schedule or None, share)
    except UnknownSchedule as exc:
        raise BadMessage(f"operation {ask.operation}: {exc}") from exc


def by_sender(ask: Submit, task: Task, place: Place) -> Callable[[int], Program] | None:
    """The program of a message, by the rank of its sender, if it may come from any rank."""
    if COLLECTIVES[ask.collective].shape is not Shape.RECEIVED or ask.peer >= 0:
        return None
    return lambda sender: choose.choose(replace(task, peer=sender), place).program


def _hosts(group: Group, session: Session) -> dict[str, list[int]]:
    """Ranks of the group by host, hosts in the order of their first rank."""
    hosts: dict[str, list[int]] = {}
    for place, rank in enumerate(group.members):
        name = session.host if rank == session.rank else session.flows[rank].host
        hosts.setdefault(name, []).append(place)
    return hosts


def task_of(ask: Submit, group: Group) -> Task:
    """The task of a request. Raises: BadMessage if sizes do not fit each other."""
    item = STORAGE[ask.dtype].itemsize
    given, wanted = ask.input_count, ask.output_count
    row, root = COLLECTIVES[ask.collective], max(ask.peer, 0)
    counts = _counts(ask, group)
    wrong = _wrong(ask, group, counts)
    if wrong:
        raise BadMessage(f"operation {ask.operation}: {wrong}")
    to_each, from_each = (tuple(n * item for n in column) for column in counts)
    parts = {Shape.INPUTS: from_each, Shape.OUTPUTS: to_each}
    return Task(
        collective=ask.collective,
        size=(wanted if row.shape is Shape.RECEIVED else given) * item,
        sizes=parts.get(row.shape, ()),
        root=root,
        peer=root,
        lossy=_may_lose(ask, given * item),
        sends=to_each,
        receives=from_each,
        codec=ask.codec,
        item=item,
        computes=ask.computes,
        adds=ask.adds,
    )


def _may_lose(ask: Submit, size: int) -> bool:
    """Whether the policy lets at least one whole segment go missing."""
    segments = -(-size // BASE)  # the largest number on any path: equal on all ranks
    return round(ask.max_loss * MILLION) * segments >= MILLION


def _counts(ask: Submit, group: Group) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements for each rank, and from each."""
    if ask.sizes:
        to_each, from_each = zip(*ask.sizes, strict=True)
        return to_each, from_each
    return COLLECTIVES[ask.collective].per_rank(group.size, ask.input_count, ask.output_count)


def _wrong(  # a list of refusals
    ask: Submit, group: Group, counts: tuple[tuple[int, ...], tuple[int, ...]]
) -> str:
    """Why a request does not fit, or an empty string: all parts must lie within their tensor."""
    to_each, from_each = counts
    given, wanted, rank = ask.input_count, ask.output_count, group.rank
    what, row = ask.collective, COLLECTIVES[ask.collective]
    if row.names_a_rank and ask.peer < 0:
        return f"{what} needs the rank of a root or receiver"
    if row.message and ask.peer == rank:
        return f"{what} between rank {rank} and itself"
    needed = row.needed(rank, ask.peer, given, wanted, to_each, from_each)
    if (given, wanted) != needed:
        return (
            f"{what} of {given} elements in and {wanted} out, where {needed[0]} and {needed[1]} "
            f"are needed in a group of {group.size}"
        )
    return ""

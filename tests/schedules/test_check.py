"""Each rule of `check`: a schedule that keeps it passes, the same one that breaks it is refused."""

from dataclasses import replace
from typing import Any

import pytest

from dlcpd.schedules.builders.all_reduce import direct
from dlcpd.schedules.errors import BadSchedule, Stuck
from dlcpd.schedules.model import (
    Buffer,
    Program,
    Receive,
    Reduce,
    Send,
    Span,
    Step,
    Transfer,
)
from dlcpd.schedules.proof.check import check

SIZE = 512  # bytes of every rank's INPUT and OUTPUT
IN, OUT, SCRATCH = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH


def program(*steps: Step, scratch: tuple[int, ...] = (), peers: set[int] | None = None) -> Program:
    met = {step.peer for step in steps if isinstance(step, Transfer)}
    return Program(steps, frozenset(met if peers is None else peers), scratch)


def refused(programs: list[Program], why: str, *, in_place: bool = False) -> None:
    sizes = [SIZE] * len(programs)
    with pytest.raises(BadSchedule, match=why):
        check(programs, sizes, sizes, input_at=[0] * len(programs) if in_place else None)


def accepted(programs: list[Program], *, in_place: bool = False) -> None:
    sizes = [SIZE] * len(programs)
    check(programs, sizes, sizes, input_at=[0] * len(programs) if in_place else None)


def pair() -> list[Program]:
    """Rank 0 sends 256 B to rank 1."""
    return [
        program(Send(1, 0, Span(IN, 0, 256))),
        program(Receive(0, 0, Span(OUT, 0, 256))),
    ]


def change(programs: list[Program], rank: int, position: int, **fields: Any) -> list[Program]:
    """The same programs, but for one step."""
    out = list(programs)
    steps = list(out[rank].steps)
    steps[position] = replace(steps[position], **fields)
    out[rank] = Program(tuple(steps), out[rank].peers, out[rank].scratch)
    return out


def test_a_transfer_is_accepted() -> None:
    accepted(pair())


@pytest.mark.parametrize(
    ("rank", "fields", "why"),
    [
        (1, {"span": Span(OUT, 0, 128)}, "its other end is"),
        (0, {"lossy": True}, "its other end is"),
        (0, {"index": 1}, "count from 0"),
        (1, {"index": 1}, "no other end"),
        (0, {"span": Span(IN, 0, 0)}, "empty or not in its buffer"),
        (0, {"span": Span(IN, -4, 256)}, "empty or not in its buffer"),
        (0, {"span": Span(IN, SIZE - 252, 256)}, "not in its buffer of 512 B"),
        (0, {"span": Span(SCRATCH, 0, 256)}, "no buffer 2"),
        (0, {"span": Span(-1, 0, 256)}, "no buffer -1"),
        (1, {"span": Span(IN, 0, 256)}, "read only"),
        (0, {"after": (0,)}, "does not come before"),
        (0, {"after": (-1,)}, "does not come before"),
        (0, {"peer": 0}, "cannot be a peer"),
        (0, {"peer": 2}, "cannot be a peer"),
        (1, {"implies": (0,)}, "no Send to the same peer"),
        (1, {"implies": (7,)}, "no Send to the same peer"),
        (0, {"span": Span(OUT, 0, 256)}, "reads byte 0, not written"),
    ],
)
def test_a_wrong_transfer_is_refused(rank: int, fields: dict[str, Any], why: str) -> None:
    refused(change(pair(), rank, 0, **fields), why)


def test_both_ends_of_what_is_lossy_are_of_the_same_place_in_the_tensor() -> None:
    lossy = change(change(pair(), 0, 0, lossy=True), 1, 0, lossy=True)
    accepted(lossy)
    refused(change(lossy, 1, 0, origin=64), "bounds are those of byte 0, and of 64")


@pytest.mark.parametrize("rank", [0, 1])
def test_both_ends_are_needed(rank: int) -> None:
    programs = pair()
    programs[rank] = program()
    refused(programs, "no other end")


def test_transfers_count_from_zero_on_both_sides() -> None:
    programs = change(change(pair(), 0, 0, index=1), 1, 0, index=1)
    refused(programs, "rank 0.*count from 0")
    refused([Program((), frozenset()), programs[1]], "rank 1.*count from 0")


def test_who_is_exchanged_with_is_met() -> None:
    programs = pair()
    programs[0] = Program(programs[0].steps, frozenset())
    refused(programs, "not among the peers")


def test_only_what_lies_in_input_may_be_lossy() -> None:
    copy = Reduce(Span(OUT, 0, 256), (Span(IN, 0, 256),))
    programs = [
        program(copy, Send(1, 0, Span(OUT, 0, 256), after=(0,), lossy=True)),
        program(Receive(0, 0, Span(OUT, 0, 256), lossy=True)),
    ]
    refused(programs, "only what lies in INPUT")
    accepted(change(programs, 0, 1, span=Span(IN, 0, 256)))


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Reduce(Span(OUT, 0, 64), ()), "nothing to reduce"),
        (Reduce(Span(OUT, 0, 64), (Span(IN, 0, 32),)), "differ in size"),
        (Reduce(Span(IN, 0, 64), (Span(IN, 64, 64),)), "read only"),
        (Reduce(Span(OUT, 0, 64), (Span(IN, 480, 64),)), "not in its buffer"),
    ],
)
def test_a_wrong_reduction_is_refused(step: Reduce, why: str) -> None:
    refused([program(step)], why)


def test_a_target_is_an_operand_or_apart_from_it() -> None:
    copy = Reduce(Span(OUT, 0, 128), (Span(IN, 0, 128),))
    add = Reduce(Span(OUT, 0, 64), (Span(OUT, 0, 64), Span(OUT, 64, 64)), after=(0,))
    accepted([program(copy, add)])
    refused([program(copy, replace(add, target=Span(OUT, 32, 64)))], "in part")


def test_in_place_a_copy_to_itself_touches_nothing() -> None:
    programs = pair()
    copy = Reduce(Span(OUT, 0, 256), (Span(IN, 0, 256),))
    programs[0] = program(*programs[0].steps, copy)
    accepted(programs, in_place=True)
    programs[0] = program(*programs[0].steps[:1], replace(copy, last=True))  # may be divided
    refused(programs, "may run while", in_place=True)


def test_pieces_are_the_same_on_all_ranks() -> None:
    copy = Reduce(Span(OUT, 0, 256), (Span(IN, 0, 256),), piece=0)
    programs = change(pair(), 1, 0, piece=0)
    programs[0] = program(*programs[0].steps, copy)
    accepted(programs)
    refused(change(programs, 0, 1, piece=1), "those of rank 0")
    smaller = {"target": Span(OUT, 0, 128), "operands": (Span(IN, 0, 128),)}
    refused(change(programs, 0, 1, **smaller), "those of rank 0")
    twice = program(*programs[0].steps, replace(copy, target=Span(OUT, 256, 256)))
    refused([twice, programs[1]], "two steps")


# --- order ---------------------------------------------------------------------------------------


def test_who_waits_in_a_circle_is_stuck() -> None:
    receive = Receive(0, 0, Span(OUT, 0, 64))
    programs = [
        program(replace(receive, peer=1), Send(1, 0, Span(IN, 0, 64), after=(0,))),
        program(receive, Send(0, 0, Span(IN, 0, 64), after=(0,))),
    ]
    sizes = [SIZE, SIZE]
    with pytest.raises(Stuck, match="for itself"):
        check(programs, sizes, sizes)
    accepted(change(programs, 0, 1, after=()))


def test_who_waits_for_an_acknowledgement_that_waits_for_it_is_stuck() -> None:
    """A Send is done when the peer has it, so it waits for what the peer's Receive waits for."""
    programs = [
        program(
            Send(1 - rank, 0, Span(IN, 0, 64)), Receive(1 - rank, 0, Span(OUT, 0, 64), after=(0,))
        )
        for rank in range(2)
    ]
    with pytest.raises(Stuck, match="for itself"):
        check(programs, [SIZE, SIZE], [SIZE, SIZE])
    accepted(change(programs, 0, 1, after=()))


def relay(**fields: Any) -> list[Program]:
    """Rank 0 sends to 1, which sends it on to 2."""
    on = replace(Send(2, 0, Span(OUT, 0, 64), after=(0,)), **fields)
    return [
        program(Send(1, 0, Span(IN, 0, 64))),
        program(Receive(0, 0, Span(OUT, 0, 64)), on),
        program(Receive(1, 0, Span(OUT, 0, 64))),
    ]


def test_what_is_sent_on_must_be_here() -> None:
    accepted(relay())
    refused(relay(after=()), "may run while")


def test_what_is_sent_must_not_be_overwritten_before_it_is_there() -> None:
    copy = Reduce(Span(OUT, 0, 64), (Span(IN, 64, 64),))
    programs = pair()
    programs[0] = program(
        copy,
        Send(1, 0, Span(OUT, 0, 64), after=(0,)),
        replace(copy, operands=(Span(IN, 128, 64),), after=(1,)),
    )
    programs[1] = program(Receive(0, 0, Span(OUT, 0, 64)))
    accepted(programs)
    refused(change(programs, 0, 2, after=(0,)), "may run while")


def test_two_receives_must_not_write_the_same_bytes_at_once() -> None:
    two = [Send(1, i, Span(IN, 64 * i, 64)) for i in range(2)]
    receives = [Receive(0, i, Span(OUT, 0, 64), after=(i - 1,) * i) for i in range(2)]
    programs = [program(*two), program(*receives)]
    accepted(programs)
    refused(change(programs, 1, 1, after=()), "may run while")
    accepted(change(programs, 1, 1, after=(), span=Span(OUT, 64, 64)))


def test_in_place_input_is_output() -> None:
    crossing = [
        program(Send(1 - rank, 0, Span(IN, 0, 64)), Receive(1 - rank, 0, Span(OUT, 0, 64)))
        for rank in range(2)
    ]
    accepted(crossing)
    refused(crossing, "may run while", in_place=True)
    for rank in range(2):
        crossing = change(crossing, rank, 1, span=Span(OUT, 64, 64))
    accepted(crossing, in_place=True)


def echo(after: tuple[int, ...]) -> list[Program]:
    """Rank 0 sends, rank 1 answers into the same bytes, in place."""
    return [
        program(Send(1, 0, Span(IN, 0, 64)), Receive(1, 0, Span(OUT, 0, 64), implies=(0,))),
        program(
            Receive(0, 0, Span(SCRATCH, 0, 64)),
            Send(0, 0, Span(IN, 0, 64), after=after),
            scratch=(64,),
        ),
    ]


def test_an_answer_stands_for_the_acknowledgement_of_what_it_waited_for() -> None:
    accepted(echo((0,)), in_place=True)
    refused(echo(()), "may send it before it has", in_place=True)


def test_only_who_has_it_can_answer_for_it() -> None:
    """Rank 1 has it by then, but rank 2, which answers, is not asked to stand for others."""
    programs = relay()
    programs[0] = program(*programs[0].steps, Receive(2, 0, Span(OUT, 0, 64), implies=(0,)))
    answer = Send(0, 0, Span(OUT, 0, 64), after=(0,))
    programs[2] = program(*programs[2].steps, answer)
    refused(programs, "no Send to the same peer")
    accepted(change(programs, 0, 1, implies=()))


def test_without_it_an_answer_may_overwrite_what_is_still_being_sent() -> None:
    """The peer has it, but this rank does not know and may be sending it again."""
    refused(change(echo((0,)), 0, 1, implies=()), "may run while", in_place=True)
    accepted(change(echo((0,)), 0, 1, implies=(), after=(0,)), in_place=True)


def test_what_is_read_was_written() -> None:
    programs = relay()
    programs[1] = change(programs, 1, 1, span=Span(OUT, 32, 64))[1]
    refused(programs, "reads byte 64, not written")


@pytest.mark.parametrize("field", ["after", "implies"])
def test_every_bond_of_direct_is_needed_in_place(field: str) -> None:
    """Without any one `after` or `implies` it is refused."""
    programs, dropped = [direct(rank, 2, SIZE, 128) for rank in range(2)], 0
    for position, step in enumerate(programs[0].steps):
        if getattr(step, field, ()):
            broken = change(programs, 0, position, **{field: ()})
            refused(broken, "may run while|reads byte", in_place=True)
            dropped += 1
    assert dropped == (4 if field == "after" else 2)

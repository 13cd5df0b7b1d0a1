"""Programs that encode what they send are well-formed, and say how large it is."""

import numpy as np
import pytest

from dlcpd.contract.collectives import Share
from dlcpd.numerics.codecs.codec import wire_size
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.schedules.catalog import Place, Task
from dlcpd.schedules.choose import choose
from dlcpd.schedules.errors import BadSchedule, UnknownSchedule
from dlcpd.schedules.model import Buffer, Decode, Encode, Program, Receive, Send, Span
from dlcpd.schedules.proof.check import check
from dlcpd.schedules.proof.interpreter import interpret
from tests.schedules.networks import uneven

COUNT = 300_000
HOSTS = {1: ((0,),), 2: ((0,), (1,)), 4: ((0, 1), (2, 3)), 5: ((0, 1, 2), (3, 4))}


def asked(collective: str, world: int, codec: str) -> Task:
    sizes = tuple(4 * COUNT // world // 64 * 64 for _ in range(world))
    if collective == "reduce_scatter":
        return Task(collective=collective, sizes=sizes, codec=codec, item=4)
    return Task(collective=collective, size=4 * COUNT, codec=codec, item=4)


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk:0.01"])
@pytest.mark.parametrize("world", HOSTS)
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("planned", [False, True])
def test_they_are_well_formed(
    collective: str, world: int, codec: str, *, in_place: bool, planned: bool
) -> None:
    task = asked(collective, world, codec)
    alone = tuple((rank,) for rank in range(world))
    hosts, network = (alone, uneven(world)) if planned else (HOSTS[world], None)
    choices = [choose(task, Place(r, hosts, 1 << 20, network)) for r in range(world)]
    programs = [choice.program for choice in choices]
    forest = planned and world > 2 and collective == "all_reduce"
    assert {choice.name for choice in choices} == {"forest" if forest else "direct"}
    given, at = task.size, [0] * world
    outputs = [given] * world
    if task.sizes:
        given, outputs = sum(task.sizes), list(task.sizes)
        at = [-sum(task.sizes[:rank]) for rank in range(world)]
    check(programs, [given] * world, outputs, input_at=at if in_place else None)
    coder = codec_of(codec)
    for program in programs:
        transfers = [s for s in program.steps if isinstance(s, Send | Receive)]
        assert all(s.span.buffer >= Buffer.SCRATCH for s in transfers)
        assert all(s.span.size == wire_size(coder, s.encodes // 4) for s in transfers)
        assert program.holding == 0
        assert {program.steps[at].lossy for at in program.own} <= {True}  # type: ignore[union-attr]
        assert not program.parts  # nothing is added up before it is decoded


@pytest.mark.parametrize("parts", [1, 3])
def test_engines_share_one(parts: int) -> None:
    """All of the tensor is encoded by one of them, each value once."""
    task, place = asked("all_reduce", 4, "int8"), Place(1, HOSTS[4], 1 << 18)
    encoded = np.zeros(4 * COUNT, int)
    for number in range(parts):
        for step in choose(task, place, share=Share(number, parts)).program.steps:
            if isinstance(step, Encode):
                encoded[step.source.start : step.source.start + step.source.size] += 1
    assert (encoded == 1).all()


def test_ranks_with_other_codecs_have_other_fingerprints() -> None:
    place = Place(0, HOSTS[2], 1 << 20)
    codecs = ("", "bf16", "fp16", "int8", "topk:0.01", "topk:0.02")
    marks = {choose(asked("all_reduce", 2, c), place, "direct").fingerprint for c in codecs}
    assert len(marks) == len(codecs)


def test_other_schedules_and_collectives_are_refused() -> None:
    place = Place(0, HOSTS[2], 1 << 20)
    with pytest.raises(UnknownSchedule, match="has the schedule direct or forest, not 'ring'"):
        choose(asked("all_reduce", 2, "int8"), place, "ring")
    with pytest.raises(UnknownSchedule, match="reduce has no codec"):
        choose(asked("reduce", 2, "int8"), place)


def test_a_group_of_one_rounds_nothing() -> None:
    program = choose(asked("all_reduce", 1, "int8"), Place(0, HOSTS[1], 1 << 20)).program
    given = np.random.default_rng(0).normal(size=COUNT).astype(np.float32).view(np.uint8)
    (result,) = interpret([program], [given], outputs=[len(given)], dtype="float32", op="sum")
    assert (result == given).all()


def test_the_interpreter_asks_for_the_codec() -> None:
    task = asked("all_reduce", 2, "int8")
    programs = [choose(task, Place(rank, HOSTS[2], 1 << 20)).program for rank in range(2)]
    given = np.zeros(4 * COUNT, np.uint8)
    with pytest.raises(ValueError, match="give their codec"):
        interpret(programs, [given, given], outputs=[len(given)] * 2, dtype="float32", op="sum")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Encode(Span(Buffer.OUTPUT, 0, 64), Span(Buffer.INPUT, 0, 64)), "lies in scratch memory"),
        (Decode(Span(Buffer.OUTPUT, 0, 64), Span(Buffer.INPUT, 0, 64), 0), "in scratch memory"),
        (Encode(Span(2, 0, 64), Span(Buffer.OUTPUT, 0, 64)), "what the other ranks get of it"),
        (Encode(Span(2, 0, 64), Span(Buffer.INPUT, 0, 64), rounds=True), "the other ranks get"),
        (Decode(Span(Buffer.INPUT, 0, 64), Span(2, 0, 64), 0), "INPUT is the caller's"),
    ],
)
def test_steps_that_are_wrong_are_found(step: Encode | Decode, why: str) -> None:
    with pytest.raises(BadSchedule, match=why):
        check([Program((step,), frozenset(), (64,))], [64], [64])

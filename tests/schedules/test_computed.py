"""Schedules in which clients compute: well-formed, of the right meaning, and refused if they are
not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlcpd.contract.collectives import Share
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.schedules.builders.all_reduce import direct
from dlcpd.schedules.builders.hierarchical import Hosts, hierarchical
from dlcpd.schedules.builders.reduce_scatter import reduce_scatter
from dlcpd.schedules.catalog import Place, Task
from dlcpd.schedules.choose import choose
from dlcpd.schedules.errors import BadSchedule, UnknownSchedule
from dlcpd.schedules.layout import layout
from dlcpd.schedules.model import Buffer, Compute, Program, Receive, Reduce, Send, Span
from dlcpd.schedules.proof.check import check
from dlcpd.schedules.proof.interpreter import Bytes, interpret
from tests.schedules.computations import backwards, update
from tests.schedules.random_schedules import random_schedule

CHUNK = 256  # bytes
IN, OUT = Buffer.INPUT, Buffer.OUTPUT


def updated(parts: list[np.ndarray]) -> np.ndarray:
    """What `update` makes of the sum of int32 parts."""
    summed = sum(part.view(np.int32) for part in parts)
    return np.asarray(3 * summed + np.arange(len(parts[0]) // 4, dtype=np.int32))


def inputs(world: int, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    drawn = rng.integers(-1000, 1000, (world, size // 4)).astype(np.int32)
    return list(drawn.view(np.uint8))


@pytest.mark.parametrize("world", range(1, 7))
@pytest.mark.parametrize("size", [0, 4, 60, 1000, 7000])
def test_every_rank_gets_what_the_owners_compute(world: int, size: int) -> None:
    programs = [direct(rank, world, size, CHUNK, True) for rank in range(world)]
    check(programs, [size] * world, [size] * world)
    given = inputs(world, size)
    found = interpret(
        programs, given, outputs=[size] * world, dtype="int32", op="sum", compute=update
    )
    assert all(np.array_equal(out.view(np.int32), updated(given)) for out in found)


@pytest.mark.parametrize("hosts", [((0, 1),), ((0, 2), (1, 3)), ((4, 0, 1), (3, 2)), ((0,), (1,))])
@pytest.mark.parametrize("size", [4, 60, 1000, 7000])
def test_hosts_add_up_before_the_owners_compute(hosts: Hosts, size: int) -> None:
    world = sum(map(len, hosts))
    programs = [hierarchical(rank, hosts, size, CHUNK, True) for rank in range(world)]
    check(programs, [size] * world, [size] * world)
    given = inputs(world, size)
    for seed in range(3):
        found = interpret(
            programs,
            given,
            outputs=[size] * world,
            dtype="int32",
            op="sum",
            compute=update,
            seed=seed,
        )
        assert all(np.array_equal(out.view(np.int32), updated(given)) for out in found)
    steps = [step for program in programs for step in program.steps]
    assert not any(isinstance(step, Reduce) and step.target.buffer == OUT for step in steps), (
        "the client reads its weights there"
    )


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_engines_together_compute_the_whole(parts: int) -> None:
    world, size = 3, 7000
    given, found = inputs(world, size), np.zeros(size, np.uint8)
    task = Task(collective="all_reduce", size=size, computes=True)
    for number in range(parts):
        places = [Place(rank, ((0,), (1,), (2,)), CHUNK) for rank in range(world)]
        programs = [choose(task, place, share=Share(number, parts)).program for place in places]
        check(programs, [size] * world, [size] * world)
        made = interpret(
            programs, given, outputs=[size] * world, dtype="int32", op="sum", compute=update
        )
        for step in programs[0].steps:
            span = step.target if isinstance(step, Compute) else getattr(step, "span", None)
            if span is not None and span.buffer == OUT:
                found[span.start : span.start + span.size] = made[0][span.start :][: span.size]
    assert np.array_equal(found.view(np.int32), updated(given))


def test_the_choice_follows_the_hosts_whatever_the_size() -> None:
    for size in (4, 1 << 20):
        for hosts, name in ((((0,), (1,)), "direct"), (((0, 1), (2, 3)), "hierarchical")):
            task = Task(collective="all_reduce", size=size, computes=True)
            choice = choose(task, Place(0, hosts, 1 << 20))
            assert choice.name == name
            lossy = choose(replace(task, lossy=True), Place(0, hosts, 1 << 20))
            assert lossy.name == "direct"
            assert sum(isinstance(step, Compute) for step in choice.program.steps) == 1
            plain = choose(replace(task, computes=False), Place(0, hosts, 1 << 20), name)
            assert plain.fingerprint != choice.fingerprint
            assert not any(isinstance(step, Compute) for step in plain.program.steps)


@pytest.mark.parametrize("hosts", [((0,),), ((0,), (1,)), ((0, 1), (2, 3)), ((4, 0, 1), (3, 2))])
@pytest.mark.parametrize("name", ["direct", "hierarchical"])
def test_encoded_results_take_half_of_their_bytes(hosts: Hosts, name: str) -> None:
    world, size, codec = sum(map(len, hosts)), 1 << 15, codec_of("bf16")
    plain = Task(collective="all_reduce", size=size, computes=True, item=4)
    task, places = replace(plain, codec="bf16"), [Place(at, hosts, 1 << 12) for at in range(world)]
    choices = [choose(task, place, name) for place in places]
    programs = [choice.program for choice in choices]
    check(programs, [size] * world, [size] * world)
    given = [part.view(np.int32).astype(np.float32).view(np.uint8) for part in inputs(world, size)]
    found = interpret(
        programs,
        given,
        outputs=[size] * world,
        dtype="float32",
        op="sum",
        compute=backwards("float32"),
        codec=codec,
    )
    assert all(np.array_equal(out, found[0]) for out in found)
    exactly = [choose(plain, place, name) for place in places]
    assert choices[0].fingerprint != exactly[0].fingerprint
    before = sum(sum(choice.program.outgoing.values()) for choice in exactly)
    assert sum(sum(program.outgoing.values()) for program in programs) == 0.75 * before
    for one in programs:
        results = [s for s in one.steps if isinstance(s, Receive) and s.encodes]
        assert all(s.span.size == s.encodes // 2 for s in results)
        assert not any(isinstance(s, Send) and s.span.buffer == OUT for s in one.steps)


def test_another_schedule_is_refused_by_name() -> None:
    task = Task(collective="all_reduce", size=64, computes=True)
    with pytest.raises(UnknownSchedule, match="only in schedule direct or hierarchical, not ring"):
        choose(task, Place(0, ((0,), (1,)), 1 << 20), "ring")


def computing(step: Compute, *before: Reduce) -> list[Program]:
    return [Program((*before, step), frozenset())]


def test_the_client_computes_the_same_bytes_of_its_own_memory() -> None:
    good = Compute(Span(OUT, 0, 64), Span(IN, 0, 64))
    check(computing(good), [512], [512])
    for wrong in (Span(OUT, 64, 64), Span(OUT, 0, 32)):
        with pytest.raises(BadSchedule, match="from the same bytes"):
            check(computing(replace(good, target=wrong)), [512], [512])
    with pytest.raises(BadSchedule, match="no other memory"):
        check([Program((replace(good, target=Span(2, 0, 64)),), frozenset(), (64,))], [512], [512])


def test_only_a_sum_that_a_client_reads_is_written_to_input() -> None:
    summed = Reduce(Span(IN, 0, 64), (Span(IN, 0, 64), Span(IN, 64, 64)))
    step = Compute(Span(OUT, 0, 64), Span(IN, 0, 64), after=(0,))
    check(computing(step, summed), [512], [512])
    other = replace(step, target=Span(OUT, 128, 64), source=Span(IN, 128, 64))
    for wrong, before in ((other, summed), (step, replace(summed, operands=(Span(IN, 64, 64),)))):
        with pytest.raises(BadSchedule, match="read only but for sums"):
            check(computing(wrong, before), [512], [512])


def test_what_a_computation_uses_is_used_by_no_step_meanwhile() -> None:
    summed = Reduce(Span(IN, 0, 64), (Span(IN, 0, 64), Span(IN, 64, 64)))
    step = Compute(Span(OUT, 0, 64), Span(IN, 0, 64))
    with pytest.raises(BadSchedule, match="may run while"):
        check(computing(step, summed), [512], [512])
    sent = Send(1, 0, Span(OUT, 0, 64))
    programs = [
        Program((step, sent), frozenset({1})),
        Program((Receive(0, 0, Span(OUT, 0, 64)),), frozenset({0})),
    ]
    with pytest.raises(BadSchedule, match="may run while"):
        check(programs, [512] * 2, [512] * 2)
    programs[0] = Program((step, replace(sent, after=(0,))), frozenset({1}))
    check(programs, [512] * 2, [512] * 2)


def test_no_ready_carries_what_the_client_has_yet_to_compute() -> None:
    step = Compute(Span(OUT, 0, 64), Span(IN, 0, 64))
    program = Program((step, Send(1, 0, Span(OUT, 0, 64), after=(0,))), frozenset({1}))
    assert not program.carriable


def test_an_interpreter_without_the_computation_says_so() -> None:
    program = direct(0, 1, 64, CHUNK, True)
    with pytest.raises(ValueError, match="give its computation"):
        interpret([program], [np.zeros(64, np.uint8)], outputs=[64], dtype="int32", op="sum")


@pytest.mark.parametrize("world", [1, 2, 4])
def test_random_ones_are_well_formed_and_give_the_same_in_any_order(world: int) -> None:
    seen = 0
    for seed in range(30):
        made = random_schedule(seed, world, computes=True)
        check(made.programs, [len(given) for given in made.inputs], made.outputs)
        found = [
            interpret(
                made.programs,
                made.inputs,
                outputs=made.outputs,
                dtype=made.dtype,
                op=made.op,
                seed=order,
                compute=backwards(made.dtype),
            )
            for order in range(2)
        ]
        assert [a.tobytes() for a in found[0]] == [b.tobytes() for b in found[1]]
        seen += sum(isinstance(step, Compute) for one in made.programs for step in one.steps)
    assert seen > 100


@pytest.mark.parametrize(
    "hosts", [((0, 1),), ((0,), (1,), (2,)), ((0, 1, 2, 3),), ((0, 2), (1, 3))]
)
def test_sums_that_clients_get_are_those_of_other_schedules(hosts: Hosts) -> None:
    """To the bit, so that a training may change between them: of float32, in the order of ranks,
    or of hosts."""
    world, size = sum(map(len, hosts)), 7000
    rng = np.random.default_rng(world)
    values = rng.standard_normal((world, size // 4)) * 10.0 ** rng.integers(-3, 4, size // 4)
    given = list(values.astype(np.float32).view(np.uint8))
    ranks, outputs = range(world), [size] * world

    def run(programs: list[Program], outputs: list[int], **more: Any) -> list[bytes]:
        found = interpret(programs, given, outputs=outputs, dtype="float32", op="avg", **more)
        return [one.tobytes() for one in found]

    def copied(_: int, __: Compute, source: Bytes, target: Bytes) -> None:
        target[:] = source

    if len(hosts) > 1 and min(map(len, hosts)) > 1:
        [sums, *_] = run([hierarchical(r, hosts, size, CHUNK) for r in ranks], outputs)
        made = [hierarchical(r, hosts, size, CHUNK, True) for r in ranks]
    else:
        [sums, *_] = run([direct(r, world, size, CHUNK) for r in ranks], outputs)
        made = [direct(r, world, size, CHUNK, True) for r in ranks]
        parts = [sum(c.size for c in layout(size, world, size).owned_by(r)) for r in ranks]
        scattered = [reduce_scatter(r, tuple(parts), CHUNK) for r in ranks]
        assert b"".join(run(scattered, parts)) == sums
    assert run(made, outputs, compute=copied) == [sums] * world


@pytest.mark.parametrize("adds", [(True, False), (False, True), (True, True)])
def test_an_output_gets_what_the_client_adds_to(adds: tuple[bool, bool]) -> None:
    sizes = (3 * CHUNK + 8, 2 * CHUNK)
    inputs = [np.arange(sum(sizes) // 4, dtype=np.float32) * (rank + 1) for rank in range(2)]
    made = interpret(
        [reduce_scatter(rank, sizes, CHUNK, adds[rank]) for rank in range(2)],
        [each.view(np.uint8) for each in inputs],
        outputs=sizes,
        dtype="float32",
        op="sum",
    )
    for rank, part in enumerate((slice(0, sizes[0] // 4), slice(sizes[0] // 4, None))):
        other, both = inputs[1 - rank][part], inputs[0][part] + inputs[1][part]
        assert np.array_equal(made[rank].view(np.float32), other if adds[rank] else both)

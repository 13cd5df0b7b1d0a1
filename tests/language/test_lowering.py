"""Programs over live daemons: equal to the oracle, to the bit."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from dlcp_client import Session
from dlcp_client.fused import language as fl
from dlcpd.contract.errors import BadConfig, RanksDisagree
from tests.client.real import connected, each_rank
from tests.language.random_programs import fused_one, inputs, made, transformed

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("one_thread")]
RANKS, COUNT = 2, 70_001  # elements: the parts of ranks are unequal
LR = torch.tensor(0.01, dtype=torch.double)


@pytest.fixture(scope="module")
def sessions() -> Iterator[list[Session]]:
    found = connected()
    yield found
    each_rank(lambda rank: found[rank].close())


def on_ranks(sessions: list[Session], call: Any) -> list[Any]:
    """call(group, rank) on each rank's thread."""
    found = each_rank(lambda rank: call(sessions[rank].world, rank))
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(COUNT, generator=generator) for _ in range(RANKS)]


def trained(
    sessions: list[Session], program: fl.FusedProgram, kernel: str, steps: int = 3
) -> list[dict[str, Any]]:
    """Each rank's weights and state after some steps."""
    weights = torch.randn(COUNT, generator=torch.Generator().manual_seed(9))

    def rank(group: Any, number: int) -> dict[str, Any]:
        step, w = fl.lower(program, group, kernel=kernel), weights.clone()
        sliced = [name for name, one in program.inputs.items() if one == fl.sliced(0)]
        whole: list[str] = [n for n in ("m", "v") if n in program.inputs and n not in sliced]
        state = {name: torch.zeros(COUNT) for name in whole}
        for t in range(1, steps + 1):
            numbers = {"t": torch.tensor(float(t), dtype=torch.double), "lr": LR}
            numbers = {name: x for name, x in numbers.items() if name in program.inputs}
            step(g=gradients(t)[number], w=w, **state, **numbers)
        held = {name: step.state(name) for name in sliced}
        found: dict[str, Any] = {**state, **held}
        return {"w": w, **found, "bytes": step.state_bytes, "kernels": step.kernels}

    return on_ranks(sessions, rank)


def expected(source: fl.Source, steps: int = 3) -> dict[str, Any]:
    """By the oracle, of the program as it was written."""
    program = source(shape=(COUNT,))
    held: dict[str, Any] = {"w": torch.randn(COUNT, generator=torch.Generator().manual_seed(9))}
    for name in {"m", "v"} & program.inputs.keys():
        held[name] = torch.zeros(COUNT)
    for t in range(1, steps + 1):
        given = {**held, "g": gradients(t), "t": torch.tensor(float(t), dtype=torch.double)}
        found = fl.simulate(program, {**given, "lr": LR}, RANKS)
        held |= found.updated
    return held


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_an_optimizer_in_one_operation_equals_the_oracle(
    sessions: list[Session], name: str
) -> None:
    source = fl.optimizers.ALL[name]
    right, program = expected(source), fused_one(source, shape=(COUNT,))
    states = [one for one in ("m", "v") if one in right]
    for rank in trained(sessions, program, "eager"):
        for one in ("w", *states):
            assert torch.equal(rank[one], right[one]), one
        assert rank["bytes"] <= 4 * len(states) * (COUNT / RANKS * 1.05)
        assert list(rank["kernels"].values()) == ["eager"]
    for rank in trained(sessions, program, "auto"):
        for one in ("w", *states):
            assert torch.allclose(rank[one], right[one], rtol=1e-5, atol=1e-6), one
        assert list(rank["kernels"].values()) == ["torch"]


def test_lamb_runs_on_slices_without_fusion(sessions: list[Session]) -> None:
    right, program = expected(fl.optimizers.lamb), fl.optimizers.lamb(shape=(COUNT,))
    for rank in trained(sessions, program, "eager"):
        assert torch.equal(rank["w"], right["w"])
    program.reorder(program.split("all_reduce")[1])
    program.as_slice("m", "v")
    for rank in trained(sessions, program, "eager"):
        assert torch.allclose(rank["w"], right["w"], rtol=1e-6, atol=1e-6)
        assert rank["bytes"] <= 8 * (COUNT // RANKS + 1)


@pytest.mark.parametrize("seed", range(0, 16, 2))
def test_random_programs_equal_the_oracle(sessions: list[Session], seed: int) -> None:
    original = made(seed, norms=False)
    program, _ = transformed(original, seed)
    given = inputs(original, seed, RANKS)
    right = fl.simulate(original, given, RANKS)
    sliced = [name for name, one in program.inputs.items() if one.kind == "sliced"]

    def rank(group: Any, number: int) -> dict[str, Any]:
        step = fl.lower(
            program, group, state={name: given[name] for name in sliced}, kernel="eager"
        )
        own = {
            name: x[number] if isinstance(x, list) else x.clone()
            for name, x in given.items()
            if name not in sliced
        }
        outputs = step(**own)
        return {"outputs": outputs, **own, **{name: step.state(name) for name in sliced}}

    for found in on_ranks(sessions, rank):
        for name, x in right.updated.items():
            assert torch.equal(found[name], torch.as_tensor(x)), name
        whole = [n for n in program.outputs if n.meta["layout"] == fl.replicated]
        assert len(found["outputs"]) >= len(whole)
        if len(found["outputs"]) == len(right.outputs):
            for one, two in zip(found["outputs"], right.outputs, strict=True):
                if isinstance(two, Tensor) and one.shape == two.shape:
                    assert torch.equal(one, two)


@fl.program(x=fl.local, w=fl.local, bias=fl.replicated, r=fl.replicated, seed=fl.integer)
def epilogue(x: Tensor, w: Tensor, bias: Tensor, r: Tensor, seed: Tensor) -> Tensor:
    return fl.dropout(fl.all_reduce(x @ w) + bias, 0.1, seed) + r


def test_a_product_overlaps_with_its_reduction(sessions: list[Session]) -> None:
    rows, inner, columns = 60, 16, 50
    shapes: Any = {"x": (rows, inner), "w": (inner, columns), "bias": (columns,)}
    original = epilogue(**shapes, r=(rows, columns))
    generator = torch.Generator().manual_seed(4)
    given: dict[str, Any] = {
        name: torch.randint(-9, 9, shape, generator=generator).float()
        for name, shape in {**shapes, "r": (rows, columns)}.items()
    }
    local = [{**given, "x": given["x"] * (rank + 1), "seed": torch.tensor(5)} for rank in range(2)]
    [right] = fl.simulate(
        original,
        {**local[0], "x": [one["x"] for one in local], "w": [given["w"]] * 2},
        RANKS,
    ).outputs
    program = epilogue(**shapes, r=(rows, columns))
    scatter, gather = program.split("all_reduce", dim=1)
    [end] = program.reorder(gather)
    program.fuse(scatter, end)
    program.overlap("mm", end, 6)
    for [found] in on_ranks(
        sessions, lambda group, rank: fl.lower(program, group, kernel="eager")(**local[rank])
    ):
        assert torch.equal(found, torch.as_tensor(right))


def test_a_square_overlaps_and_its_operand_has_no_buffer(sessions: list[Session]) -> None:
    @fl.program(x=fl.local)
    def square(x: Tensor) -> list[Tensor]:
        return [fl.all_gather(fl.reduce_scatter(x @ x) + 1), fl.all_gather(fl.reduce_scatter(x)), x]

    program, x = square(shape=(8, 8)), torch.arange(64.0).view(8, 8)
    right = fl.simulate(program, {"x": [x, x * 2]}, RANKS).outputs
    program.fuse("reduce_scatter", "all_gather")
    program.overlap("mm", "all_gather", 4)
    program.fuse("reduce_scatter_1", "all_gather_1")

    def rank(group: Any, number: int) -> list[Tensor]:
        step = fl.lower(program, group, kernel="eager")
        with pytest.raises(BadConfig, match="'x' has no buffer"):
            step.buffer("x")
        return step(x=x * (number + 1))

    for found in on_ranks(sessions, rank):
        for one, two in zip(found[:2], right[:2], strict=True):
            assert torch.equal(one, torch.as_tensor(two))


def test_buffers_save_copies(sessions: list[Session]) -> None:
    program = fused_one(fl.optimizers.sgd, shape=(COUNT,))
    right = expected(fl.optimizers.sgd, steps=2)

    def rank(group: Any, number: int) -> Tensor:
        step = fl.lower(program, group, kernel="eager")
        g, w = step.buffer("g"), step.buffer("w")
        w.copy_(torch.randn(COUNT, generator=torch.Generator().manual_seed(9)))
        for t in (1, 2):
            g.copy_(gradients(t)[number])
            [returned] = step(g=g, w=w, lr=LR)
            assert returned.data_ptr() == w.data_ptr()
        with pytest.raises(BadConfig, match="'lr' has no buffer"):
            step.buffer("lr")
        return w

    for weights in on_ranks(sessions, rank):
        assert torch.equal(weights, right["w"])


def test_mistakes_are_named(sessions: list[Session]) -> None:
    program = fused_one(fl.optimizers.momentum, shape=(COUNT,))

    def different(group: Any, rank: int) -> None:
        wrong = fl.optimizers.momentum(shape=(COUNT,)) if rank else program
        with pytest.raises(
            RanksDisagree, match="rank 1 of the group has another program"
        ) as raised:
            fl.lower(wrong, group)
        assert "m = input" in str(raised.value), "both lines: here, and on rank 0"
        assert " instead of 'm = input" in str(raised.value)

    on_ranks(sessions, different)
    g = torch.zeros(COUNT)

    def called(group: Any, _: int) -> None:
        step = fl.lower(program, group, kernel="eager")
        with pytest.raises(BadConfig, match="needs input 'lr': give g, w, lr"):
            step(g=g, w=g)
        with pytest.raises(BadConfig, match="has no input 'm' to give: g, w, lr"):
            step(g=g, w=g, m=g, lr=LR)
        with pytest.raises(BadConfig, match=r"input w is \[3\] torch.float32"):
            step(g=g, w=g[:3], lr=LR)
        with pytest.raises(BadConfig, match="'w' is not a sliced input"):
            step.state("w")
        with pytest.raises(BadConfig, match="state 'w' is not a sliced input"):
            fl.lower(program, group, state={"w": g})
        with pytest.raises(BadConfig, match=r"input m is \[3\]"):
            fl.lower(program, group, state={"m": g[:3]})
        with pytest.raises(BadConfig, match="kernel 'fast' is not known: use auto, torch"):
            fl.lower(program, group, kernel="fast")

    on_ranks(sessions, called)

    @fl.program(x=fl.replicated)
    def stage(x: Tensor) -> Tensor:
        return fl.receive(fl.send_next(x))

    with pytest.raises(BadConfig, match=r"node send_next .*: stages run in `simulate` only"):
        fl.lower(stage(shape=(3,)), sessions[0].world)


# Mistakes of one rank, which meet no other: the keywords of lower(), and what the error says.
LOWERED: list[tuple[dict[str, Any], str]] = [
    ({"program": None}, "None is not a program"),
    ({"program": fl.optimizers.momentum}, "momentum has no shapes yet: call it"),
    ({"group": None}, "group=None is not valid: give a group of a session"),
    ({"group": "world"}, "group='world' is not valid"),
    ({"kernel": None}, "kernel None is not known"),
    ({"kernel": []}, r"kernel \[\] is not known"),
    ({"state": 5}, "state=5 is not valid: give a dict"),
    ({"state": {"w": torch.zeros(6)}}, "state 'w' is not a sliced input of momentum"),
    ({"state": {1: torch.zeros(6)}}, "state 1 is not a sliced input"),
    ({"state": {"m": torch.zeros(3)}}, r"input m is \[3\]"),
    ({"state": {"m": torch.zeros(6).double()}}, "input m is .* torch.float64"),
    ({"state": {"m": torch.zeros(6, device="meta")}}, "input m is torch.strided on meta"),
    ({"state": {"m": [0.0] * 6}}, "input m is list"),
]


@pytest.mark.parametrize(("given", "said"), LOWERED, ids=range(len(LOWERED)))
def test_a_mistake_is_named_before_ranks_communicate(
    sessions: list[Session], given: dict[str, Any], said: str
) -> None:
    program = fused_one(fl.optimizers.momentum, shape=(6,))
    call: Any = fl.lower
    with pytest.raises(BadConfig, match=said):
        call(**{"program": program, "group": sessions[0].world} | given)


def test_a_root_that_is_not_there_is_named_at_once(sessions: list[Session]) -> None:
    def body(x: Tensor) -> Tensor:
        return fl.broadcast(x, 2)

    with pytest.raises(
        BadConfig, match=r"node broadcast \(test_lowering.*there is no rank 2 among"
    ):
        fl.lower(fl.program(x=fl.local)(body)(shape=(3,)), sessions[0].world)


def test_memory_that_cannot_be_updated_is_named_before_anything_travels(
    sessions: list[Session],
) -> None:
    program = fl.optimizers.momentum(shape=(6,))
    steps = on_ranks(sessions, lambda group, _: fl.lower(program, group))
    with torch.inference_mode():
        frozen = torch.zeros(6)
    one, lr = torch.zeros(6), {"lr": LR}
    for given, said in (
        ({"w": one, "m": one}, "inputs m and w are in the same memory, and momentum updates both"),
        ({"w": torch.zeros(1).expand(6), "m": one}, "input w is expanded, and momentum updates it"),
        ({"w": frozen, "m": one}, "input w is of inference_mode, and momentum updates it: clone"),
        ({"w": one.to("meta"), "m": one}, "input w is torch.strided on meta: make it dense"),
        ({"w": one.to_sparse(), "m": one}, "input w is torch.sparse_coo on cpu"),
    ):
        with pytest.raises(BadConfig, match=said):
            steps[0](g=torch.zeros(6), **given, **lr)
    weights = [torch.ones(6) for _ in steps]
    on_ranks(
        sessions,
        lambda _, rank: steps[rank](
            g=torch.ones(1).expand(6), w=weights[rank], m=torch.zeros(12)[::2], **lr
        ),
    )
    assert torch.allclose(weights[0], torch.full((6,), 0.99)), "no rank waits for that call"


def test_a_state_that_is_refused_changes_none(sessions: list[Session]) -> None:
    program = fl.optimizers.adam(shape=(6,))
    program.reorder(program.split("all_reduce")[1])
    program.as_slice("m", "v")
    ones, twos = torch.ones(6), torch.full((6,), 2.0)

    def rank(group: Any, _: int) -> Tensor:
        step = fl.lower(program, group, state={"m": ones, "v": ones})
        with pytest.raises(BadConfig, match=r"input v is \[3\]"):
            step.load({"m": twos, "v": twos[:3]})
        return step.state("m")

    for found in on_ranks(sessions, rank):
        assert torch.equal(found, ones)

"""What a client submits is checked before anything of it counts."""

from typing import Any

import numpy as np
import pytest

from dlcpd.collectives.execution import Execution
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.order import Group, Order
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.errors import BadMessage, BadPolicy, DlcpError
from dlcpd.contract.messages import ByteRange, Counts, LayerRow, Submit
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.session import Session
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.sizes import BASE
from dlcpd.io.config import EngineConfig
from dlcpd.requests.group import GroupRequests
from dlcpd.requests.plan import PLAN_STEPS, Plans

ARENA = np.zeros(1 << 20, np.uint8)
BOUNDED: dict[str, Any] = {"max_loss": 0.01, "name": "n"}
LAST = len(traffic_classes()) - 1


def session_of(world: int) -> Session:
    peers = [PeerSpec(p, f"host{p}", p, p + world, 1) for p in range(1, world)]
    return Endpoint(1408, 1 << 20, SendScheduler(Pacer(0.0))).open_session(
        1, 0, peers, peer_timeout=1.0
    )


def submit(**changes: Any) -> Submit:
    """An all-reduce of a group of all ranks; `offset` and `count` stand for both places."""
    offset, count = changes.pop("offset", 0), changes.pop("count", 100_000)
    values: dict[str, Any] = {
        "operation": 1,
        "group": 0,
        "collective": "all_reduce",
        "schedule": "",
        "peer": -1,
        "tag": 0,
        "input": offset,
        "input_count": count,
        "output": offset,
        "output_count": count,
        "sizes": [],
        "dtype": "float32",
        "reduce": "sum",
        "max_loss": 0.0,
        "fill": "residual",
        "traffic_class": LAST,
        "deadline": 5.0,
        "in_place": True,
        "name": "",
        "exempt": [],
        "layers": [],
        "scale": 1.0,
    }
    kinds: dict[str, Any] = {"sizes": Counts, "exempt": ByteRange, "layers": LayerRow}
    rows = {name: [kind(*row) for row in (values | changes)[name]] for name, kind in kinds.items()}
    return Submit(**(values | changes | rows))


def submissions(session: Session, **settings: Any) -> GroupRequests:
    """Those of rank 0, of the group of all ranks."""
    config = EngineConfig(**settings)
    group = Group(0, tuple(range(session.world_size)), 0)
    return GroupRequests(config.rules, ScratchPool(config.chunk_bytes), session, group)


def make(world: int = 2, **changes: Any) -> Execution:
    """What rank 0 of a group of all ranks submits."""
    session = session_of(world)
    made = submissions(session).make(submit(**changes), ARENA, Accounts(), 10.0)
    made.start(session, 10.0)
    return made


def ready(**changes: Any) -> Ready:
    """What rank 1 is told."""
    return make(**changes).ready_for(1)


def mirrored(told: Ready) -> Ready:
    """The same, as rank 1 tells it."""
    return told._replace(outgoing=told.incoming, incoming=told.outgoing)


def test_an_operation_says_what_was_asked() -> None:
    made = make(layers=[[0, 1, 0], [4096, LAST, 0]])
    assert (made.ticket, made.deadline) == (1, 15.0)
    assert [len(memory) for memory in made.memory] == [400_000, 400_000]
    assert "all_reduce sum of float32[100000]" in made.ready_for(1).text


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"}, {"exempt": [[0, 4]]}, {"layers": [[0, 1, 0]]}, {"traffic_class": 1},
        {"dtype": "int32"}, {"reduce": "max"}, {"count": 100_001}, {"schedule": "ring"}, BOUNDED,
        {"collective": "reduce", "peer": 0}, {"codec": "int8", "fill": "zero"},
        {"codec": "topk:0.01", "name": "n"},
    ],
    ids=str,
)  # fmt: skip
def test_ranks_must_agree_on_it(change: dict[str, Any]) -> None:
    assert not ready().agrees_with(mirrored(ready(**change)))
    assert ready(**change).agrees_with(mirrored(ready(**change)))


# Of two ranks, with 50,000 elements each
SCATTERED: dict[str, Any] = {
    "collective": "reduce_scatter",
    "output_count": 50_000,
    "output": 0,
    "in_place": False,
}


@pytest.mark.parametrize("op", ["sum", "avg"])
def test_a_rank_may_add_its_part_itself_whatever_the_other_does(op: str) -> None:
    asked = SCATTERED | {"reduce": op}
    assert ready(**asked, adds=True) == ready(**asked)
    assert make(**asked, adds=True).program.scratch == ()


def test_requests_that_differ_in_what_the_client_adds_have_plans_of_their_own() -> None:
    session, accounts = session_of(2), Accounts()
    group = submissions(session)
    made = [group.make(submit(**SCATTERED, adds=a), ARENA, accounts, 10.0) for a in (False, True)]
    assert made[0].program != made[1].program


@pytest.mark.parametrize(
    "change",
    [
        {"collective": "all_reduce", "output_count": 100_000}, {"reduce": "max"}, BOUNDED,
        {"name": "n"}, {"codec": "bf16", "fill": "zero"}, {"world": 4, "output_count": 25_000},
    ],
    ids=str,
)  # fmt: skip
def test_a_client_adds_its_part_only_to_an_exact_sum_of_two(change: dict[str, Any]) -> None:
    make(**SCATTERED | change)
    with pytest.raises(BadMessage, match="its client adds its own part, which only an exact sum"):
        make(**SCATTERED | change, adds=True)


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"offset": 32}, BadMessage, "not in the arena"),
        ({"offset": len(ARENA) - 64}, BadMessage, "not in the arena"),
        ({"reduce": "min", **BOUNDED}, BadPolicy, "use an exact policy"),
        ({"max_loss": 0.01}, BadPolicy, "needs a name"),
        ({"dtype": "int32", "reduce": "avg"}, BadPolicy, "use sum and divide"),
        ({"collective": "broadcast", "peer": 0, **BOUNDED}, BadPolicy, "always exact"),
        ({"codec": "int8"}, BadPolicy, "with a codec needs a name"),
        ({"codec": "int4", "name": "n"}, BadPolicy, "codec 'int4': use one of"),
        ({"codec": "int8", "name": "n", "dtype": "int32"}, BadPolicy, "none of the real floats"),
        ({"codec": "bf16", "name": "n", "dtype": "float16"}, BadPolicy, "has 16 bits already"),
        ({"codec": "int8", "name": "n", "reduce": "max"}, BadPolicy, "use sum or avg"),
        ({"codec": "int8", "collective": "broadcast", "peer": 0}, BadPolicy, "has no codec"),
        ({"codec": "int8", "name": "n", "schedule": "ring"}, BadMessage, "the schedule direct"),
        ({"peer": 2}, BadMessage, "names rank 2 of a group of 2"),
        ({"sizes": [[1, 1]]}, BadMessage, "1 rows of sizes for a group of 2"),
        ({"sizes": [[1, 1], [1, -1]]}, BadMessage, "not negative"),
        ({"output_count": 5}, BadMessage, "100000 and 100000 are needed"),
        ({"collective": "broadcast"}, BadMessage, "needs the rank of a root"),
        ({"collective": "send", "peer": 0, "output_count": 0}, BadMessage, "and itself"),
        ({"schedule": "spiral"}, BadMessage, "spiral"),
        ({"dtype": "int32", "scale": 2.0}, BadPolicy, "carries no loss scale"),
        ({"exempt": [[8, 4]]}, BadMessage, r"exempt range 8\.\.4"),
        ({"exempt": [[0, 8], [4, 12]]}, BadMessage, r"exempt range 4\.\.12"),
        ({"exempt": [[0, 400_001]]}, BadMessage, "exempt range"),
        ({"traffic_class": LAST + 1}, BadMessage, f"layer of class {LAST + 1}"),
        ({"layers": [[4, 1, 0]]}, BadMessage, "ascending from 0"),
        ({"layers": [[0, 1, 0], [0, 2, 0]]}, BadMessage, "ascending from 0"),
        ({"layers": [[0, 1, 0], [400_000, 2, 0]]}, BadMessage, "ascending from 0"),
        ({"layers": [[0, LAST + 1, 0]]}, BadMessage, f"layer of class {LAST + 1}"),
        ({"layers": [[0, -1, 0]]}, BadMessage, "layer of class -1"),
        ({"layers": [[0, 1, 1]]}, BadMessage, "bound 1 millionths"),
        ({"layers": [[0, 1, 10_001]], **BOUNDED}, BadMessage, "bound 10001 millionths"),
        ({"layers": [[0, 1, -1]], **BOUNDED}, BadMessage, "bound -1 millionths"),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_by_name(
    changes: dict[str, Any], error: type[DlcpError], told: str
) -> None:
    with pytest.raises(error, match=told):
        make(**changes)


def test_a_bound_per_layer_may_be_that_of_the_operation() -> None:
    make(layers=[[0, 1, 10_000], [4096, LAST, 0]], max_loss=0.01, name="n")


@pytest.mark.parametrize(
    ("max_loss", "in_one_step"),
    [(0.0, True), (0.09, True), (0.1, False)],  # of ten segments: none, none, one
)
def test_what_cannot_miss_one_whole_segment_goes_in_one_step(
    max_loss: float, in_one_step: bool
) -> None:
    made = make(count=10 * BASE // 4, max_loss=max_loss, name="n")
    assert ("schedule one_shot" in made.order.terms) == in_one_step


def test_a_name_counts_only_where_gradients_go() -> None:
    """Else a residual would be added to what a broadcast sends."""
    assert make(name="n").order.loss.name == "n"
    assert not make(collective="broadcast", peer=0, name="n").order.loss.name


@pytest.mark.parametrize(
    ("submitted", "deadline"),
    [(0.0, 15.0), (7.5, 12.5), (10.0, 15.0), (10.1, 15.0), (-70.1, 15.0)],
    ids=["unsaid", "waited", "now", "ahead", "ages ago"],
)
def test_time_in_the_lane_counts(submitted: float, deadline: float) -> None:
    """An engine that is busy reads late. What no clock of this host shows is not believed."""
    now = 10.0
    made = submissions(session_of(2)).make(
        submit(submitted=submitted, deadline=5.0), ARENA, Accounts(), now
    )
    assert made.deadline == deadline


def test_what_is_asked_for_alike_is_worked_out_once() -> None:
    of_group = submissions(session_of(2))

    def order(**changes: Any) -> Order:
        return of_group.make(submit(**changes), ARENA, Accounts(), 10.0).order

    first, again = order(), order(operation=2, offset=64, deadline=9.0)
    assert again.loss is first.loss
    assert (again.ticket, again.deadline) == (2, 19.0)
    for change in (
        {"name": "n"},
        {"count": 99_999},
        {"dtype": "int32"},
        {"reduce": "min"},
        {"exempt": [[0, 4]]},
        {"layers": [[0, 1, 0]]},
        {"traffic_class": 1},
        {"schedule": "ring"},
    ):
        other = order(**change)
        assert (other.terms, other.fingerprint) != (first.terms, first.fingerprint), change
    assert order(scale=2.0).loss.scale == 2.0
    assert order(scale=4.0).loss.scale == 4.0


def test_what_is_kept_of_a_client_is_bounded() -> None:
    of_group = submissions(session_of(2))
    of_group.make(submit(), ARENA, Accounts(), 10.0)
    [plan] = of_group.plans
    steps = len(plan.program.steps)
    of_group.plans = Plans(2 * (PLAN_STEPS + steps))
    kept = [
        of_group.make(submit(name=name), ARENA, Accounts(), 10.0).order.loss
        for name in ("a", "b", "a", "c", "a", "b")
    ]
    assert kept[0] is kept[2] is kept[4]  # used again, so it stays
    assert kept[1] is not kept[5]
    assert len(list(of_group.plans)) == 2


def test_more_transfers_than_the_wire_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcpd.requests.checks.MAX_TRANSFERS", 100)
    of_group = submissions(session_of(2), chunk_bytes=64)
    with pytest.raises(BadMessage, match=r"transfers between two ranks.*make \[network\] chunk"):
        of_group.make(submit(), ARENA, Accounts(), 10.0)

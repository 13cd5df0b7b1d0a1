"""What a client submits is checked before anything of it counts."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from dlcpd.collectives.all_reduce import AllReduce
from dlcpd.collectives.one_shot import OneShot
from dlcpd.contract.errors import BadMessage, BadPolicy, DlcpError
from dlcpd.contract.messages import Submit
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.session import Session
from dlcpd.core.timers import TimerTable
from dlcpd.io.config import EngineConfig
from dlcpd.io.submission import Workshop

ARENA = np.zeros(1 << 20, np.uint8)
BOUNDED = {"max_loss": 0.01, "name": "n"}
LAST = len(traffic_classes()) - 1


def make(**changes: Any) -> OneShot | AllReduce:
    values: dict[str, Any] = {
        "operation": 1, "offset": 0, "count": 100_000, "dtype": "float32", "reduce": "sum",
        "max_loss": 0.0, "fill": "residual", "traffic_class": LAST, "deadline": 5.0,
        "in_place": True, "name": "", "critical": [], "layers": [], "scale": 1.0,
    }  # fmt: skip
    session = Session(1, 0, 2, TimerTable(), Counter())
    return Workshop(EngineConfig()).make(Submit(**(values | changes)), ARENA, session, 10.0)


def test_an_operation_says_what_was_asked() -> None:
    made = make(layers=[[0, 1, 0], [4096, LAST, 0]])
    assert (made.number, made.deadline, len(made.memory)) == (1, 15.0, 400_000)
    assert (made.ready.count, made.ready.dtype) == (100_000, "float32")


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"critical": [[0, 4]]}, {"layers": [[0, 1, 0]]}, {"traffic_class": 1}],
    ids=str,
)
def test_ranks_must_agree_on_it(change: dict[str, Any]) -> None:
    assert not make().ready.agrees_with(make(**change).ready)
    assert make(**change).ready.agrees_with(make(**change).ready)


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"offset": 32}, BadMessage, "not in the arena"),
        ({"offset": len(ARENA) - 64}, BadMessage, "not in the arena"),
        ({"operation": 2}, BadMessage, "operation 2 after 0"),
        ({"reduce": "min", **BOUNDED}, BadPolicy, "use an exact policy"),
        ({"max_loss": 0.01}, BadPolicy, "needs a name"),
        ({"dtype": "int32", "reduce": "avg"}, BadPolicy, "would round"),
        ({"dtype": "int32", "scale": 2.0}, BadPolicy, "carries no loss scale"),
        ({"critical": [[8, 4]]}, BadMessage, r"critical range 8\.\.4"),
        ({"critical": [[0, 8], [4, 12]]}, BadMessage, r"critical range 4\.\.12"),
        ({"critical": [[0, 400_001]]}, BadMessage, "critical range"),
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
    make(layers=[[0, 1, 10_000], [4096, LAST, 0]], **BOUNDED)

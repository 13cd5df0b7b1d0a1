"""Messages that a group prepares once: equal calls get equal messages, all others are checked."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dlcp_client.arena.tensors import TENSORS
from dlcp_client.operations import prepared
from dlcp_client.operations.prepared import PreparedRequests
from dlcp_client.operations.requests import request
from dlcpd.contract.errors import BadPolicy, BadTensor
from dlcpd.contract.messages import Counts, Submit
from dlcpd.contract.policy import LossPolicy, bounded, exact
from tests.client.stand_in import StandIn

BLOCK = TENSORS.block(torch.zeros(100))
OPTIONS: dict[str, Any] = {
    "policy": bounded(0.01, per_class={"front": 0.0}), "name": "layer", "exempt": [(0, 40)],
    "layers": [(0, "front"), (80, "back")], "scale": 2.0,
}  # fmt: skip


@pytest.fixture
def requests() -> PreparedRequests:
    return PreparedRequests(TENSORS)


def test_a_call_with_equal_values_gets_an_equal_message_of_its_own(
    requests: PreparedRequests,
) -> None:
    first = requests.request("all_reduce", BLOCK, dist.ReduceOp.SUM, **OPTIONS)
    first.operation, first.input, first.group = 7, 4096, 3  # as the submission of it does
    again = OPTIONS | {"policy": bounded(0.01, per_class={"front": 0.0}), "exempt": iter([(0, 40)])}
    second = requests.request("all_reduce", TENSORS.block(torch.ones(10, 10)), "sum", **again)
    assert second == request("all_reduce", BLOCK, "sum", **OPTIONS) != first
    assert len(requests) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": bounded(0.02)}, {"policy": bounded(0.01)}, {"policy": exact(), "layers": ()},
        {"policy": bounded(0.01, deadline=5.0)}, {"policy": bounded(0.01, fill="zero")},
        {"policy": bounded(0.01, codec="int8")}, {"name": "other"}, {"exempt": [(0, 44)]},
        {"exempt": ()}, {"layers": [(0, "front"), (84, "back")]}, {"scale": 4.0}, {"peer": 1},
        {"schedule": "ring"}, {"tag": 1}, {"sizes": [(1, 2)]},
    ],
)  # fmt: skip
def test_any_other_value_has_a_message_of_its_own(
    requests: PreparedRequests, changes: dict[str, Any]
) -> None:
    requests.request("all_reduce", BLOCK, "sum", **OPTIONS)
    options = OPTIONS | changes
    found = requests.request("all_reduce", BLOCK, "sum", **options)
    sizes = [Counts(*row) for row in options.pop("sizes", ())]
    assert found == request("all_reduce", BLOCK, "sum", **options, sizes=sizes)
    assert len(requests) == 2


def test_the_dtype_the_size_and_the_reduction_count(requests: PreparedRequests) -> None:
    def asked(tensor: torch.Tensor, op: str) -> Submit:
        return requests.request("all_reduce", TENSORS.block(tensor), op)

    values = torch.zeros(4), torch.zeros(5), torch.zeros(4, dtype=torch.int32)
    assert len({(m.dtype, m.input_count) for m in (asked(value, "sum") for value in values)}) == 3
    with pytest.raises(BadTensor, match="avg of int32"):
        asked(values[2], "avg")
    assert asked(values[0], "avg").reduce == "avg"


@pytest.mark.parametrize("scale", [np.float32(2.0), "2", None])
def test_an_equal_value_that_the_checks_refuse_is_refused(
    requests: PreparedRequests, scale: Any
) -> None:
    requests.request("all_reduce", BLOCK, scale=2.0)
    with pytest.raises(BadPolicy, match="a normal float32 above 0"):
        requests.request("all_reduce", BLOCK, scale=scale)


def test_an_exact_collective_refuses_other_policies_each_time(requests: PreparedRequests) -> None:
    for policy in (exact(), bounded(0.01), exact(codec="int8"), exact()):
        if policy.is_plain:
            requests.request("broadcast", BLOCK, policy=policy, peer=0)
        else:
            with pytest.raises(BadPolicy, match="only all_reduce and reduce_scatter"):
                requests.request("broadcast", BLOCK, policy=policy, peer=0)


def test_values_that_cannot_be_compared_are_checked_at_each_call(
    requests: PreparedRequests,
) -> None:
    class Own(LossPolicy):
        pass

    for options in ({"exempt": [[0, 40]]}, {"policy": Own()}):
        found = requests.request("all_reduce", BLOCK, **options)
        assert found == request("all_reduce", BLOCK, **options)
    for op in (["sum"], None, "mean"):
        with pytest.raises(BadPolicy, match="reduces by sum"):
            requests.request("all_reduce", BLOCK, op)
    assert len(requests) == 0


def test_messages_are_dropped_before_they_take_too_much(
    requests: PreparedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "MAX_ROWS", 10 * prepared.MESSAGE_ROWS)
    for count in range(1, 100):
        requests.request("all_reduce", TENSORS.block(torch.zeros(count)))
        assert len(requests) <= 10
    rows = [(8 * start, 8 * start + 4) for start in range(200)]
    kept = len(requests)
    requests.request("all_reduce", TENSORS.block(torch.zeros(1000)), exempt=rows)
    assert len(requests) < kept, "one that is larger than the limit is not kept"


def test_repeated_operations_check_their_tensors_each_time(world: StandIn) -> None:
    tensors = [session.zeros(64) for session in world.sessions]
    for value in (1.0, 2.0):
        for tensor in tensors:
            tensor[:] = value
        works = [s.all_reduce(t) for s, t in zip(world.sessions, tensors, strict=True)]
        assert [float(work.result()[0]) for work in works] == [2 * value] * 2
    session = world.sessions[0]
    for wrong in (tensors[0][::2], tensors[0].to_sparse(), torch.zeros(64, device="meta")):
        with pytest.raises(BadTensor):
            session.all_reduce(wrong)
    with pytest.raises(BadTensor, match="use one type"):
        session.all_reduce(tensors[0], into=torch.zeros(64, dtype=torch.float64))

"""What an all-reduce may ask for."""

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from dlcp_client.arena.tensors import TENSORS
from dlcp_client.operations.prepared import PreparedRequests
from dlcp_client.operations.requests import merged, request
from dlcpd.contract.errors import BadPolicy, BadTensor
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import MAX_EXEMPT, MAX_LAYERS, ByteRange, Submit
from dlcpd.contract.policy import EXACT, LossPolicy, bounded, exact

GRADIENT = torch.zeros(100)


def ask(op: Any = "sum", tensor: torch.Tensor = GRADIENT, **changes: Any) -> Submit:
    values: dict[str, Any] = {"policy": EXACT, "name": None, "exempt": ()}
    block = TENSORS.block(tensor)
    message = request("all_reduce", block, TENSORS.operation(op), **(values | changes))
    message.operation, message.input, message.output, message.in_place = 1, 4096, 4096, True
    return message


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), "2", None])
def test_a_loss_scale_is_a_positive_number(scale: Any) -> None:
    with pytest.raises(BadPolicy, match=r"scale .* a normal float32 above 0"):
        ask(scale=scale)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        *[("schedule", wrong) for wrong in (None, 5, b"ring", "x" * 33)],
        *[("peer", wrong) for wrong in ("0", None, 2.5, True, 1 << 20)],
        *[("tag", wrong) for wrong in (None, -1, 1 << 40, "a", 1.0)],
        *[("name", wrong) for wrong in (5, b"bucket", ["bucket"])],
        *[("exempt", wrong) for wrong in (None, 5, "ab", [(0,)], [(0, "x")], [(0, 4, 8)])],
        *[("layers", wrong) for wrong in (None, 5, [(0,)], [("a", "front")], [(0, "front", 1)])],
        ("sizes", None),
    ],
)
def test_an_option_that_the_engine_would_not_take_is_refused_here(option: str, wrong: Any) -> None:
    """The engine ends the session of a client that breaks the rules of a message."""
    prepared = PreparedRequests(TENSORS)
    with pytest.raises(BadPolicy, match=f"all_reduce|{option}"):
        prepared.request("all_reduce", TENSORS.block(GRADIENT), **{option: wrong})
    assert not len(prepared)


def test_integers_carry_no_loss_scale() -> None:
    with pytest.raises(BadPolicy, match="carries no loss scale"):
        ask(tensor=torch.ones(4, dtype=torch.int32), scale=2.0)
    assert ask(scale=2.0).scale == 2.0


@pytest.mark.parametrize("name", ["sum", "avg", "product", "min", "max"])
def test_operations_by_name_and_by_torch(name: str) -> None:
    member = getattr(dist.ReduceOp, name.upper())
    assert ask(name).reduce == ask(member).reduce == ask(dist.ReduceOp(member)).reduce == name


@pytest.mark.parametrize("name", ["band", "bor", "bxor"])
def test_operations_on_bits_by_name_and_by_torch(name: str) -> None:
    member = getattr(dist.ReduceOp, name.upper())
    assert ask(name).reduce == ask(member).reduce == ask(dist.ReduceOp(member)).reduce == name


@pytest.mark.parametrize("op", ["mean", "SUM", dist.ReduceOp.PREMUL_SUM, 3, None, ["sum"]])
def test_other_operations_are_refused(op: Any) -> None:
    with pytest.raises(BadPolicy, match="sum, avg, product, min, max, band, bor, bxor"):
        ask(op)


def test_avg_of_integers_is_refused() -> None:
    with pytest.raises(BadTensor, match="round"):
        ask("avg", torch.zeros(4, dtype=torch.int64))
    assert ask("sum", torch.zeros(4, dtype=torch.int64)).reduce == "sum"


def test_avg_of_complex_numbers_is_taken() -> None:
    assert ask("avg", torch.zeros(4, dtype=torch.complex64)).reduce == "avg"


@pytest.mark.parametrize("op", ["product", "min", "max", "band", "bor", "bxor"])
def test_bounded_extremes_are_refused(op: str) -> None:
    with pytest.raises(BadPolicy, match="never comes back"):
        ask(op, policy=bounded(), name="gradient")


@pytest.mark.parametrize("name", [None, ""])
def test_bounded_needs_a_name(name: str | None) -> None:
    with pytest.raises(BadPolicy, match="needs name="):
        ask(policy=bounded(), name=name)


def test_a_codec_needs_a_name_or_forgets() -> None:
    with pytest.raises(BadPolicy, match=r"needs name=.*fill=\"zero\""):
        ask(policy=exact(codec="int8"))
    submit = ask(policy=exact(codec="topk:1e-2", fill="zero"))
    assert decode_untrusted(encode(submit)) == submit
    assert (submit.codec, submit.fill, submit.max_loss) == ("topk:0.01", "zero", 0.0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64, torch.bfloat16])
def test_what_a_codec_cannot_take_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(BadPolicy, match=r"codec bf16: .*leave the codec out"):
        ask(tensor=torch.ones(4, dtype=dtype), policy=bounded(codec="bf16"), name="n")


def test_a_name_has_a_limit() -> None:
    assert ask(name="n" * 256).name == "n" * 256
    with pytest.raises(BadPolicy, match="257 characters"):
        ask(name="n" * 257)


def test_a_policy_is_a_policy() -> None:
    with pytest.raises(BadPolicy, match=r"write exact\(\) or bounded"):
        ask(policy="exact")


@pytest.mark.parametrize("bad", [(-1, 4), (0, 401), (8, 4)])
def test_exempt_ranges_lie_within_the_tensor(bad: tuple[int, int]) -> None:
    with pytest.raises(BadPolicy, match="not within the 400 B tensor"):
        ask(exempt=[bad])


def test_the_message_says_everything_and_is_valid() -> None:
    policy = LossPolicy("bounded", 0.02, "zero", "front", 7.0)
    submit = ask("avg", policy=policy, name="layer", exempt=[(100, 200), (0, 4), (150, 300)])
    assert decode_untrusted(encode(submit)) == submit
    assert submit == Submit(
        operation=1,
        group=0,
        collective="all_reduce",
        schedule="",
        peer=-1,
        tag=0,
        input=4096,
        input_count=100,
        output=4096,
        output_count=100,
        sizes=[],
        dtype="float32",
        reduce="avg",
        max_loss=0.02,
        fill="zero",
        traffic_class=1,
        deadline=7.0,
        in_place=True,
        name="layer",
        exempt=[ByteRange(0, 4), ByteRange(100, 300)],
        layers=[],
    )


def test_layers_have_the_bound_of_their_class() -> None:
    policy = bounded(0.02, per_class={"front": 0.01})
    submit = ask("avg", policy=policy, name="layer", layers=[(0, "front"), (200, "back")])
    assert decode_untrusted(encode(submit)) == submit
    assert submit.layers == [(0, 1, 10_000), (200, 3, 20_000)]
    assert submit.max_loss == 0.02


def test_without_layers_the_bound_is_that_of_the_policys_class() -> None:
    policy = bounded(0.02, per_class={"front": 0.01}, traffic_class="front")
    assert ask("avg", policy=policy, name="layer").max_loss == 0.01


def test_more_layers_than_a_message_holds_are_joined() -> None:
    many = [(4 * i, ("front", "back")[i % 2]) for i in range(MAX_LAYERS + 10)]
    submit = ask(tensor=torch.zeros(2 * MAX_LAYERS), layers=many)
    assert 1 < len(submit.layers) <= MAX_LAYERS


def test_more_ranges_than_a_message_holds_are_merged() -> None:
    many = [(8 * i, 8 * i + 4) for i in range(MAX_EXEMPT + 10)]
    submit = ask(tensor=torch.zeros(4 * MAX_EXEMPT), exempt=many)
    assert len(submit.exempt) == MAX_EXEMPT


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=20)


def covered(ranges: list[tuple[int, int]]) -> set[int]:
    return {byte for start, stop in ranges for byte in range(start, stop)}


@given(RANGES, st.integers(1, 20))
def test_merged_ranges_cover_all_that_was_asked(ranges: list[tuple[int, int]], limit: int) -> None:
    out = merged(ranges, limit)
    assert covered(ranges) <= covered(out)
    assert len(out) <= limit
    assert all(a[1] < b[0] for a, b in pairwise(out))
    if len(merged(ranges, 100)) <= limit:
        assert covered(out) == covered(ranges)

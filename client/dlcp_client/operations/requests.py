"""The message of an operation: its options are checked before any copy."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, Generic, TypedDict

from msgspec.structs import replace

from dlcp_client.arena.blocks import A, Block
from dlcp_client.long_times import noted
from dlcp_client.operations.layers import Layer, in_one_class, rows
from dlcpd.contract.codec import check_takes, parsed
from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.errors import BadMessage, BadPolicy, BadTensor
from dlcpd.contract.frames import encode_checked
from dlcpd.contract.messages import (
    MAX_EXEMPT,
    MAX_SCALE,
    MIN_SCALE,
    REDUCE_OPS,
    ByteRange,
    Counts,
    Submit,
)
from dlcpd.contract.policy import EXACT, LossPolicy, checked
from dlcpd.contract.traffic import traffic_classes

ANY: Final = -1  # source of a message that may come from any rank
MAX_NAME: Final = 256  # characters, as Submit.name
Range = tuple[int, int]  # [start, stop) in bytes
_REAL: Final = frozenset({"float32", "float64", "float16", "bfloat16"})
_COMPLEX: Final = frozenset({"complex64", "complex128"})


def part(message: Submit, low: int, high: int, number: int) -> Submit:
    """The message for bytes [low, high) of its input, as operation `number` of several.

    Residuals are kept by name, so each part has its own name.
    """
    inside = [(max(r.start, low) - low, min(r.stop, high) - low) for r in message.exempt]
    # The row in effect at the begin of the part is the last one that starts at or before it.
    first = max((i for i, row in enumerate(message.layers) if row.start <= low), default=0)
    return replace(
        message,
        name=_numbered(message.name, number) if message.name else "",
        exempt=[ByteRange(*r) for r in inside if r[0] < r[1]],
        layers=[
            row._replace(start=max(row.start - low, 0))
            for row in message.layers[first:]
            if row.start < high
        ],
    )


def _numbered(name: str, number: int) -> str:
    """The name of a part: unique among the caller's names, of at most MAX_NAME characters."""
    numbered = f"{name}#{number}"
    if len(numbered) <= MAX_NAME:
        return numbered
    return f"{blake2b(name.encode(), digest_size=16).hexdigest()}#{number}"


class GradientOptions(TypedDict, total=False):
    """Options for gradients beside the policy, by keyword. `Session.all_reduce` describes them."""

    name: str | None
    exempt: Iterable[Range]
    layers: Iterable[Layer]
    scale: float


class ReductionOptions(GradientOptions, total=False):
    """Options of a reduction of gradients, by keyword. `Session.all_reduce` describes them."""

    policy: LossPolicy  # by default exact


class RequestOptions(GradientOptions, total=False):
    """Options of `request` beside the policy, by keyword."""

    peer: int  # rank in the group
    tag: int
    sizes: Iterable[tuple[int, int]]  # counts of input and output by rank, if they differ
    schedule: str
    computes: bool  # of an all_reduce: this client computes the output from the sums


class AllReduceOptions(ReductionOptions, Generic[A], total=False):
    """Options of an all-reduce, by keyword. `Session.all_reduce` describes them."""

    into: A | None
    schedule: str
    result_only: bool


def request(  # noqa: PLR0913  # all but the first four by keyword
    collective: str,
    block: Block[Any],
    op: Any = "sum",
    policy: LossPolicy = EXACT,
    *,
    peer: int = ANY,
    tag: int = 0,
    sizes: Iterable[tuple[int, int]] = (),
    schedule: str = "",
    name: str | None = None,
    exempt: Iterable[Range] = (),
    layers: Iterable[Layer] = (),
    scale: float = 1.0,
    computes: bool = False,
) -> Submit:
    """The message of an operation on `block`, without group, number, engines and places.

    The options are those of RequestOptions.
    Raises: BadTensor or BadPolicy, saying what to do.
    """
    if not COLLECTIVES[collective].may_lose and not getattr(policy, "is_plain", True):
        raise BadPolicy(
            "only all_reduce and reduce_scatter support bounded loss and codecs: use exact()"
        )
    reduce = _reduce(op, block.dtype)
    _check_policy(policy, reduce, name)
    codec = _codec(policy, block.dtype, reduce, computes=computes)
    _check_scale(scale, block.dtype)
    found = rows(layers, policy, block.nbytes)
    if computes:
        found = in_one_class(found, policy)
    message = Submit(
        operation=1,
        group=0,
        collective=collective,
        schedule=schedule,
        peer=peer,
        tag=tag,
        input=0,
        input_count=block.count,
        output=0,
        output_count=block.count,
        sizes=[Counts(*row) for row in sizes],
        dtype=block.dtype,
        reduce=reduce,
        max_loss=policy.max_loss if found else policy.max_loss_of(policy.traffic_class),
        fill=policy.fill,
        traffic_class=traffic_classes()[policy.traffic_class].rank,
        deadline=noted(policy.deadline),
        in_place=False,
        name=name or "",
        exempt=[ByteRange(*r) for r in merged(_within(exempt, block.nbytes), MAX_EXEMPT)],
        layers=found,
        scale=float(scale),
        codec=codec,
        computes=computes,
    )
    _check_as_engine(message)
    return message


def merged(ranges: Iterable[Range], limit: int) -> list[Range]:
    """Sorted, disjoint ranges that cover `ranges`: at most `limit`, by closing the smallest gaps.

    Covering more than requested is safe: more segments are exempt.
    """
    joined: list[Range] = []
    for start, stop in sorted(r for r in ranges if r[0] < r[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined if len(joined) <= limit else _coarser(joined, limit)


def _coarser(ranges: list[Range], limit: int) -> list[Range]:
    gaps = sorted(range(1, len(ranges)), key=lambda i: ranges[i][0] - ranges[i - 1][1])
    closed = set(gaps[: len(ranges) - limit])
    out: list[Range] = []
    for index, (start, stop) in enumerate(ranges):
        if index in closed:
            out[-1] = (out[-1][0], stop)
        else:
            out.append((start, stop))
    return out


def _reduce(op: Any, dtype: str) -> str:
    if not isinstance(op, str) or op not in REDUCE_OPS:
        raise BadPolicy(f"operation {op!r}: dlcpd reduces by {', '.join(REDUCE_OPS)}")
    if op == "avg" and dtype not in _REAL | _COMPLEX:
        raise BadTensor(f"avg of {dtype} would round; use sum and divide, or a float dtype")
    return op


def _check_policy(policy: Any, reduce: str, name: str | None) -> None:
    policy = checked(policy)
    given: Any = name  # a caller without a type checker may give anything
    if given is not None and not isinstance(given, str):
        raise BadPolicy(f"name {given!r:.80}: give a text")
    if name is not None and len(name) > MAX_NAME:
        raise BadPolicy(f"a name of {len(name)} characters, at most {MAX_NAME}")
    if policy.codec and policy.fill == "residual" and not name:
        raise BadPolicy(
            "a codec needs name=...: what it rounds away is added to the next operation of the "
            'same name; give each gradient its own, or fill="zero" to forget it'
        )
    if policy.mode == "exact":
        return
    if reduce not in ("sum", "avg"):
        raise BadPolicy(f"{reduce} cannot be bounded: what is lost never comes back; use exact()")
    if not name:
        raise BadPolicy(
            "a bounded operation needs name=...: what was lost is added to the next operation "
            "of the same name, so give each gradient its own and the same one at every step"
        )


def _codec(policy: LossPolicy, dtype: str, reduce: str, *, computes: bool) -> str:
    """Name of the codec, of results alone if a client computes them. Raises: BadPolicy."""
    if policy.codec and computes:
        raise BadPolicy("a computation follows this reduction: give a policy without a codec")
    if policy.gather and not computes:
        raise BadPolicy(
            f"gather={policy.gather!r} encodes weights of fused.register: leave it out here"
        )
    name = policy.gather if computes else policy.codec
    if name:
        check_takes(parsed(name), dtype, reduce)
    return name


def _check_as_engine(message: Submit) -> None:
    """The engine would end the session. Raises: BadTensor, BadPolicy."""
    if type(message.peer) is int and message.peer < ANY:
        raise BadTensor(f"{message.collective}: rank {message.peer} is not in this group")
    try:
        encode_checked(message)
    except BadMessage as exc:
        raise BadPolicy(f"{message.collective}: {exc}") from exc


def _check_scale(scale: Any, dtype: str) -> None:
    if not isinstance(scale, int | float) or not MIN_SCALE <= scale <= MAX_SCALE:
        raise BadPolicy(f"scale {scale!r}: a loss scale is a normal float32 above 0")
    if scale != 1 and dtype not in _REAL:
        raise BadPolicy(f"scale {scale:g}: {dtype} carries no loss scale; leave it out")


def _within(ranges: Iterable[Range], size: int) -> list[Range]:
    try:
        found = [(int(start), int(stop)) for start, stop in ranges]
    except (TypeError, ValueError) as exc:
        raise BadPolicy(f"exempt {ranges!r:.80}: give (start, stop) in bytes for each") from exc
    for start, stop in found:
        if not 0 <= start <= stop <= size:
            raise BadPolicy(f"exempt range {start}..{stop} is not within the {size} B tensor")
    return found

"""All that leaves for a peer at once, in few datagrams: each of them costs both hosts a call."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.paths.paths import CONTROL, Paths
from dlcpd.core.wire import bundle
from dlcpd.core.wire.datagram import Control, Transmit
from dlcpd.core.wire.header import KIND, Kind
from dlcpd.core.wire.sizes import BASE

# Packets of its class in flight on a path up to which a datagram of data joins control there. The
# bundle leaves in the class of the data, and a queue of that class would delay the control.
FEW: Final = 32


def bundled(
    controls: Sequence[Control], batches: Sequence[Transmit], paths: Paths, token: int, size: int
) -> tuple[list[Control], list[Transmit]]:
    """The control of one flow in bundles, and the batches that joined them. `paths`, `token`,
    `size`: of the flow; `size` is that of its segments, in bytes.

    Control for one path with one tag shares a bundle, which fits the least MTU. Batches of one
    segment and one tag follow the control of their path, since a READY before them lets them in.
    """
    if len(controls) == 1 and not batches:
        return list(controls), []
    groups = dict[tuple[int, int], list[Control]]()
    for each in controls:
        groups.setdefault((each.path, each.tag), []).append(each)
    out, joined = list[Control](), list[Transmit]()
    for (path, tag), group in groups.items():
        joining = list(_joining(path, batches, paths)) if tag == CONTROL else []
        joined += joining
        group += [_alone(batch) for batch in joining]
        out += _bundles(group, path, group[-1].tag, token, size)
    return out, joined


def _joining(path: int, batches: Iterable[Transmit], paths: Paths) -> Iterator[Transmit]:
    """Batches for one path that may join its control: all of the tag of the first one."""
    tag = None
    for batch in batches:
        if batch.path != path or len(batch.segments) > 1 or tag not in (None, batch.tags[0]):
            continue
        if paths.space(path, int(batch.tags[0]) // DROP_PRECEDENCES).in_flight <= FEW:
            tag = batch.tags[0]
            yield batch


def _alone(batch: Transmit) -> Control:
    """The datagram of a batch of one segment."""
    segment, tag = int(batch.segments[0]), int(batch.tags[0])
    header = batch.first._replace(segment=segment, tag=tag, flags=int(batch.flags[0]))
    begin = segment * batch.segment_size
    payload = batch.payload[begin : begin + batch.segment_size]
    return Control(batch.peer, batch.path, header.pack() + payload.tobytes(), tag)


def _bundles(
    group: Sequence[Control], path: int, tag: int, token: int, size: int
) -> Iterator[Control]:
    parts, filled, long = list[bytes](), 0, False
    for each in group:
        more = len(each.data) - bundle.PART_SAVES
        lengthens = each.data[KIND] == Kind.DATA or more > BASE
        most = size if long or lengthens else min(size, BASE)
        if parts and (filled + more > most or len(parts) == bundle.MAX_PARTS):
            yield _bundle(group[0].peer, path, tag, token, parts)
            parts, filled, long = [], 0, False
        parts.append(each.data)
        filled, long = filled + more, long or lengthens
    yield _bundle(group[0].peer, path, tag, token, parts)


def _bundle(peer: int, path: int, tag: int, token: int, parts: list[bytes]) -> Control:
    """One datagram; a part that is alone stays what it is."""
    data = parts[0] if len(parts) == 1 else bundle.pack(token, path, tag, parts)
    return Control(peer, path, data, tag)

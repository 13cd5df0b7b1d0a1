"""Values that the ranks of an operation compare: terms in words, and a digest of all the rest."""

from hashlib import blake2b
from typing import Final

from dlcpd.collectives.order import Group
from dlcpd.contract.collectives import COLLECTIVES, Shape, Share
from dlcpd.contract.messages import Submit
from dlcpd.core.wire.control import MAX_TEXT
from dlcpd.schedules.choose import Choice
from dlcpd.schedules.network import JobNetwork

MAX_RANKS_TEXT: Final = 64  # characters: the words of a READY have 256


def signature(ask: Submit, group: Group, choice: Choice, share: Share) -> str:
    """The terms, which must be equal at both ends of a transfer, in words."""
    row = COLLECTIVES[ask.collective]
    if row.message:
        return f"message of {ask.dtype}{_among(group)}"
    what = f"{ask.reduce} of " if row.reduces else ""
    root = f" root {ask.peer}" if ask.peer >= 0 else ""
    count = f"[{ask.input_count}]" if row.reduces and row.shape is Shape.ELEMENTS else ""
    loss = f"max_loss {ask.max_loss:g}, fill {ask.fill}" if ask.max_loss else "exact"
    if ask.computes:
        loss += ", computed by its clients" + (f" in {ask.codec}" if ask.codec else "")
    elif ask.codec:
        loss += f", codec {ask.codec}" + (", fill zero" if ask.fill == "zero" else "")
    words = (
        f"{ask.collective} {what}{ask.dtype}{count}{root}, {loss}, class {ask.traffic_class}, "
        f"schedule {choice.name}{_among(group)}"
    )
    if share.of > 1:
        words += f", part {share.number + 1} of {share.of}"
    digests = {"name": ask.name, "exempt ranges": ask.exempt, "layers": ask.layers}
    said = words + "".join(f", {k} {_digest(v) % (1 << 32):08x}" for k, v in digests.items() if v)
    return said[:MAX_TEXT]  # the fingerprint covers the rest


def _digest(value: object) -> int:
    """Digest of a value that is too long for the words."""
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest(), "little")


def _among(group: Group) -> str:
    """Ranks and name of a group as this member has them, cut if they are long: shows that two
    groups were given one number."""
    if not group.number:
        return ""
    ranks = ",".join(map(str, group.members))
    named = f", group {group.name!a}"
    return f", ranks {_cut(ranks)}{_cut(named)}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_RANKS_TEXT else text[:MAX_RANKS_TEXT] + "..."


def fingerprint(ask: Submit, group: Group, choice: Choice, network: JobNetwork | None) -> int:
    """Digest of the values that the words leave out: ranks, name of the group and of the
    operation, exempt ranges, layers, schedule in full, and the network of a collective."""
    what = (group.members, group.name, ask.name, ask.exempt, ask.layers, choice.fingerprint)
    if network is None or COLLECTIVES[ask.collective].message:
        return _digest(what)
    return _digest((*what, network.digest))

"""A client's Join, checked: who the peers are and where."""

import secrets
from typing import Final

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.messages import Join, PeerRow
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.peers.peers import PeerAddress
from dlcpd.io.udp.stranger_filter import PREFIX_BITS

SECRET_BYTES: Final = 32  # as many as the keys that data are encrypted with


def links_of(request: Join, prefix: int) -> dict[int, Link]:
    """A silent link to every other rank, each with a token of its own that begins with `prefix`.

    Raises: BadMessage.
    """
    if request.rank >= request.world_size:
        raise BadMessage(f"Join.rank {request.rank} of {request.world_size} ranks")
    ranks = [peer.rank for peer in request.peers]
    others = set(range(request.world_size)) - {request.rank}
    if len(ranks) != len(set(ranks)) or set(ranks) - {request.rank} != others:
        raise BadMessage(f"Join.peers: names each of {request.world_size} ranks once")
    tokens = _tokens(len(others), prefix)
    return {
        peer.rank: _link(peer, tokens.pop()) for peer in request.peers if peer.rank != request.rank
    }


def _link(peer: PeerRow, token: int) -> Link:
    address = PeerAddress.parse_untrusted(peer.endpoint, peer.key)
    secret = secrets.token_hex(SECRET_BYTES)
    return Link(peer.rank, peer.host, address.endpoint, address.key, token, secret)


def token_prefix() -> int:
    """What all tokens of a daemon's life begin with: a number that strangers do not know."""
    return secrets.randbelow((1 << PREFIX_BITS) - 1) + 1


def _tokens(count: int, prefix: int) -> list[int]:
    """Different random numbers that nobody can guess, in what follows the prefix."""
    rest = 64 - PREFIX_BITS
    tokens: set[int] = set()
    while len(tokens) < count:
        tokens.add(prefix << rest | secrets.randbits(rest))
    return list(tokens)

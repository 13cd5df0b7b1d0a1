"""Checks a client's Join, and makes the links to its peers."""

import secrets
from typing import Final

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.messages import Join, PeerRow
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.peers.peers import PeerAddress
from dlcpd.io.udp.stranger_filter import PREFIX_BITS

SECRET_BYTES: Final = 32  # the size of the keys that encrypt data


def links_of(request: Join, prefix: int) -> dict[int, Link]:
    """A link to every other rank, in state SILENT, with its own token that begins with `prefix`.

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
    """A random number, not 0, with which all tokens of this daemon process begin."""
    return secrets.randbelow((1 << PREFIX_BITS) - 1) + 1


def _tokens(count: int, prefix: int) -> list[int]:
    """Distinct tokens: `prefix`, then random bits that cannot be guessed."""
    rest = 64 - PREFIX_BITS
    tokens: set[int] = set()
    while len(tokens) < count:
        tokens.add(prefix << rest | secrets.randbits(rest))
    return list(tokens)

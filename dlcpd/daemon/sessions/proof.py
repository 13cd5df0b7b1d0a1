"""The proof that the peers of a Join belong to the job, and the policy without a proof."""

from collections.abc import Collection
from enum import Enum
from typing import Final

from dlcpd.contract.errors import NotAuthorised
from dlcpd.contract.messages import Join
from dlcpd.daemon.peers.authorised import Authorised
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.peers.peers import PeerAddress, is_loopback

UNPROVED: Final = "whoever can write the job's store can become one of its ranks"
HOW_TO_PROVE: Final = (
    "give all ranks the same DLCPD_JOB_SECRET, or authorise the keys of hosts (docs/security.md)"
)


class Proof(Enum):
    """The proof that a session's peers belong to the job."""

    KEYS = "authorised keys"
    SECRET = "the job's secret"  # noqa: S105  # no password
    HOST = "this host alone"
    NONE = "the job's store alone"


def check_keys(links: Collection[Link], authorised: Authorised, host: str) -> None:
    """Name each peer as its key is authorised. `host`: this host's name.

    Raises: NotAuthorised.
    """
    for link in links:
        if not authorised.allows(link.key):
            raise NotAuthorised(
                f"{link} ({link.endpoint}) has the key {link.key}, which no file of "
                f"{authorised.folder} on {host} names: if it is that host's, let `dlcpctl keys "
                f"authorise` add here what `dlcpctl keys show` prints there"
            )
        link.known_as = authorised.host_of(link.key)
        link.host = link.known_as or link.host


def proof_of(
    links: Collection[Link], request_proof: str, authorised: Authorised, own_endpoint: str
) -> Proof:
    """The strongest proof that there is."""
    if authorised.folder:
        return Proof.KEYS
    if request_proof:
        return Proof.SECRET
    remote = any(_is_elsewhere(link.endpoint, own_endpoint) for link in links)
    return Proof.NONE if remote else Proof.HOST


def refusal(request: Join, host: str) -> NotAuthorised:
    """The error for a job that [security] unproved = "refuse" rejects."""
    return NotAuthorised(
        f"job {request.job!r}: {UNPROVED}, which [security] unproved on {host} refuses: "
        f"{HOW_TO_PROVE}"
    )


def _is_elsewhere(endpoint: str, own_endpoint: str) -> bool:
    return not is_loopback(endpoint) and _address(endpoint) != _address(own_endpoint)


def _address(endpoint: str) -> str:
    return PeerAddress(endpoint, "").target[0]

"""The error tree: one root, one stable code per class, and back from the code to the class."""

import inspect

import pytest

from dlcpd.contract import errors
from dlcpd.contract.errors import (
    DlcpError,
    LocalError,
    MalformedDatagram,
    OutcomeError,
    Peer,
    PeerError,
    PeerLost,
    error_for,
)

KINDS: list[type[DlcpError]] = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DlcpError)
]


def test_codes_are_unique_and_each_class_has_its_own() -> None:
    assert len({kind.code for kind in KINDS}) == len(KINDS)
    assert all("code" in vars(kind) for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_code_can_be_a_metric_label(kind: type[DlcpError]) -> None:
    assert kind.code.replace("_", "").isalpha()
    assert kind.code == kind.code.lower()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_class_says_whose_fault_it_is(kind: type[DlcpError]) -> None:
    blames = [blame for blame in (LocalError, PeerError, OutcomeError) if issubclass(kind, blame)]
    assert len(blames) == (0 if kind is DlcpError else 1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_code_and_text_become_the_same_error_again(kind: type[DlcpError]) -> None:
    error = error_for(kind.code, "rank 3 on host b")
    assert type(error) is kind
    assert str(error) == "rank 3 on host b"


def test_an_unknown_code_of_a_newer_daemon_is_still_an_error() -> None:
    error = error_for("from_the_future", "text")
    assert type(error) is DlcpError
    assert str(error) == "text"


def test_a_malformed_datagram_is_counted_under_its_reason() -> None:
    bare, detailed = MalformedDatagram("short"), MalformedDatagram("short", "3 B, need 32")
    assert bare.reason == detailed.reason == "short"
    assert (str(bare), str(detailed)) == ("short", "short: 3 B, need 32")


def test_a_lost_peer_is_described_by_fields_too() -> None:
    known = Peer(3, "host-b", "10.0.0.7:4040", "data of rank(s) 3 for operation 7")
    for error in (PeerLost("gone", known), error_for("peer_lost", "gone", known)):
        assert isinstance(error, PeerLost)
        assert (error.rank, error.host) == (3, "host-b")
        assert (error.address, error.awaiting) == known[2:]
    unknown = PeerLost("two of them")
    assert (unknown.rank, unknown.host, unknown.address, unknown.awaiting) == (-1, "", "", "")


def test_no_error_has_control_characters_in_its_text() -> None:
    said = "rank 1: \x1b]0;owned\x07\n\x9b\u202e"
    shown = r"rank 1: \x1b]0;owned\x07" + "\n" + r"\x9b\u202e"
    for error in (
        DlcpError(said),
        PeerLost(said),
        error_for("too_many", said),
        error_for("peer_lost", said),
    ):
        assert str(error) == shown
        assert error.args == (shown,)

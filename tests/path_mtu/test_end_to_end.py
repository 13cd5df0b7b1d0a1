"""Real daemons and clients over links of every MTU, and over one that changes under way."""

from pathlib import Path

import pytest

from dlcp_client import DlcpError
from dlcpd.core.wire.aead import TAG
from dlcpd.core.wire.sizes import MAX_SEGMENT, segment_within
from tests.path_mtu.daemons import hosts, until
from tests.path_mtu.network import Network, network

pytestmark = pytest.mark.netns

FAMILIES = pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
SIZE = 3_000_000  # bytes: two chunks of each rank
ENCRYPTED = 'data_encryption = "aes-256-gcm"'
SLOW = "rate_limit_bps = 1e8"  # bit/s: 16 MB take seconds, time enough to change a link
LARGE = 16_000_000  # bytes


def headers(v6: bool) -> int:
    return 48 if v6 else 28


@pytest.mark.parametrize(
    ("near", "mtu", "v6"),
    [
        (1280, 1280, False), (1400, 1400, False), (1460, 1460, False), (9000, 9000, False),
        (9000, 1280, False), (9000, 1400, False), (1500, 1460, False), (9000, 8900, False),
        (1500, 1280, True), (1460, 1460, True), (9000, 9000, True),
    ],
)  # fmt: skip
def test_steps_complete_and_segments_fit_the_path(
    tmp_path: Path, near: int, mtu: int, v6: bool
) -> None:
    best = segment_within(mtu, headers(v6))
    with network(near, mtu, v6=v6) as net, hosts(net, tmp_path) as both:
        for size in (4, 4_000, 40_000, SIZE):
            both.all_reduce(size)
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == best, f"rank {rank} finds {best}")  # type: ignore[misc]
            assert both.path(rank)["segment_size"] == best
            assert mtu - 64 < both.path(rank)["mtu"] <= mtu
        for size in (4, 4_000, 40_000, SIZE):
            both.all_reduce(size)
        for rank in (0, 1):
            counters = both.counters(rank)
            assert not [name for name in counters if name.startswith("send_")], counters
            assert "in_pieces" not in counters
            assert "length" not in counters
            assert f"mtu={both.path(rank)['mtu']}" in both.log(rank)


@pytest.mark.parametrize(("mtu", "v6"), [(1280, True), (1500, False), (1500, True), (9000, True)])
def test_encrypted_segments_leave_room_for_their_tag(tmp_path: Path, mtu: int, v6: bool) -> None:
    best = segment_within(mtu, headers(v6) + TAG)
    with network(mtu, mtu, v6=v6) as net, hosts(net, tmp_path, ENCRYPTED) as both:
        both.all_reduce(SIZE)
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == best, f"rank {rank} finds {best}")  # type: ignore[misc]
            assert mtu - 64 < both.path(rank)["mtu"] <= mtu
        for size in (4, 40_000, SIZE):
            both.all_reduce(size)
        for rank in (0, 1):
            counters = both.counters(rank)
            assert not [name for name in counters if name.startswith("send_")], counters
            assert not {"in_pieces", "checksum", "replayed"} & counters.keys()


def test_an_encrypted_operation_whose_link_shrinks_goes_on_in_pieces(tmp_path: Path) -> None:
    best = segment_within(1400, headers(v6=True) + TAG)
    slow = f"{SLOW}\n{ENCRYPTED}"
    with network(1500, 1500, v6=True) as net, hosts(net, tmp_path, slow) as both:
        both.all_reduce(SIZE)
        before = segment_within(1500, headers(v6=True) + TAG)
        assert before < segment_within(1500, headers(v6=True))
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == before, "it is found")  # type: ignore[misc]
        finish = both.begin(LARGE)
        net.set_mtu(b=1400)
        finish()
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == best, f"rank {rank} falls")  # type: ignore[misc]
            assert both.counters(rank)["in_pieces"] > 0
            assert not {"checksum", "replayed"} & both.counters(rank).keys()


def test_a_setting_limits_what_is_tried_and_need_not_be_the_others(tmp_path: Path) -> None:
    with network(9000, 9000) as net, hosts(net, tmp_path, "segment_size = 1024") as both:
        both.all_reduce(SIZE)
        for rank in (0, 1):
            assert both.path(rank)["segment_size"] == 1024


@FAMILIES
def test_a_link_that_shrinks_in_mid_operation(tmp_path: Path, v6: bool) -> None:
    """b's own interface and the router's shrink: the operation goes on in pieces, the next
    one in segments that fit."""
    best = segment_within(1400, headers(v6))
    with network(1500, 1500, v6=v6) as net, hosts(net, tmp_path, SLOW) as both:
        both.all_reduce(SIZE)
        before = segment_within(1500, headers(v6))
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == before, "it is found")  # type: ignore[misc]
        finish = both.begin(LARGE)
        net.set_mtu(b=1400)
        finish()
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == best, f"rank {rank} falls")  # type: ignore[misc]
            until(lambda r=rank: "path_mtu_fell" in both.log(r), "the log tells")  # type: ignore[misc]
            assert both.counters(rank)["in_pieces"] > 0
        known = [both.counters(rank)["in_pieces"] for rank in (0, 1)]
        both.all_reduce(SIZE)
        assert [both.counters(rank)["in_pieces"] for rank in (0, 1)] == known


def test_a_black_hole_in_mid_operation(tmp_path: Path) -> None:
    """The router drops what is too large, both ways, and says nothing."""
    best = segment_within(1400, headers(v6=False))
    with network(1500, 1500) as net, hosts(net, tmp_path, SLOW) as both:
        both.all_reduce(SIZE)
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == 1408, "it is found")  # type: ignore[misc]
        net.silence()
        finish = both.begin(LARGE)
        net.set_router_mtu(1400)
        finish()
        both.all_reduce(SIZE)
        until(lambda: both.path(0)["segment"] == best, "rank 0 falls")
        # a link takes 4 bytes more than it sends, for a VLAN's tag: one step more fits
        until(lambda: both.path(1)["segment"] in (best, best + 64), "rank 1 falls")
        assert all("path_mtu_fell" in both.log(rank) for rank in (0, 1))


def test_a_black_hole_between_small_operations(tmp_path: Path) -> None:
    """READY with the data of an operation is too large for it, and DATA alone would pass."""
    best, size = segment_within(1300, headers(v6=False)), 1200
    with network(1500, 1500) as net, hosts(net, tmp_path, SLOW) as both:
        both.all_reduce(SIZE)
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == 1408, "it is found")  # type: ignore[misc]
        net.silence()
        net.set_router_mtu(1300)
        both.all_reduce(size)
        until(lambda: both.path(0)["segment"] == best, "rank 0 falls")
        until(lambda: both.path(1)["segment"] in (best, best + 64), "rank 1 falls")
        both.all_reduce(size)


def test_below_the_least_mtu_it_works_and_the_log_says_what_is_wrong(tmp_path: Path) -> None:
    with network(1500, 1000) as net, hosts(net, tmp_path) as both:
        net.drop_fragments()
        both.all_reduce(SIZE)
        until(lambda: "path_mtu_too_small" in both.log(0), "the log tells")
        assert both.path(0)["mtu"] == 0
        assert both.path(0)["mtu_search"] == "blocked"
        both.all_reduce(SIZE)


def test_where_hardly_anything_passes_the_error_says_why(tmp_path: Path) -> None:
    """Too small a path even for pieces: who joins hears it, or the first operation."""
    with network(1500, 1500) as net:
        net.drop_longer(300)
        with pytest.raises(DlcpError) as caught:
            _join_and_reduce(net, tmp_path)
    text = str(caught.value)
    assert "path MTU below 1,280 between host-a and host-b" in text or (
        "path MTU below 1,280 between host-b and host-a" in text
    )
    assert "raise the MTU" in text


def _join_and_reduce(net: Network, folder: Path) -> None:
    with hosts(net, folder) as both:
        until(lambda: "path_mtu_too_small" in both.log(0), "the log tells")
        both.all_reduce(SIZE, deadline=3.0)


def test_jumbo_frames_carry_large_segments_from_the_second_operation_on(tmp_path: Path) -> None:
    with network(9000, 9000) as net, hosts(net, tmp_path) as both:
        for rank in (0, 1):
            until(lambda r=rank: both.path(r)["segment"] == MAX_SEGMENT, "it is found")  # type: ignore[misc]
        before = both.path(0)["sent"]
        both.all_reduce(SIZE)
        assert both.path(0)["sent"] - before < 1.5 * SIZE / MAX_SEGMENT

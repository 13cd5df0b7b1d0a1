"""A path whose socket takes nothing more: others take what it would carry."""

from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.paths.paths import Paths
from dlcpd.core.send_scheduler import SendScheduler


def test_a_full_path_is_not_picked() -> None:
    full: set[int] = set()
    paths = Paths.new(2, full=full)
    for number in (0, 1):
        full.add(number)
        index, room, _ = paths.pick(4, 100, 1000, 1.0)
        assert (index, room > 0) == (1 - number, True)
        full.clear()


def test_where_all_are_full_nothing_goes() -> None:
    for count in (1, 2):
        paths = Paths.new(count, full=set(range(count)))
        assert paths.pick(4, 100, 1000, 1.0)[1] == 0
        assert paths.paced_until(4) is None


def test_control_takes_another_path() -> None:
    full = {0}
    paths = Paths.new(2, full=full)
    assert {paths.for_control(attempt) for attempt in range(4)} == {1}
    assert {paths.for_credit() for _ in range(8)} == {1}
    full.add(1)
    assert paths.for_control(0) in (0, 1), "better than nothing: its timer repeats it"


def test_flows_that_waited_for_room_go_on() -> None:
    endpoint = Endpoint(1024, 1 << 20, SendScheduler(Pacer(0)))
    peers = [PeerSpec(1, "there", 7, 8, 1), PeerSpec(2, "here", 9, 10, 1)]
    session = endpoint.open_session(1, 0, peers, peer_timeout=1.0)
    waiting, idle = session.flows[1], session.flows[2]
    endpoint.full.add(0)
    assert waiting.paths.pick(4, 100, 1000, 1.0)[1] == 0
    endpoint._agenda.sending[waiting.index] = None  # noqa: SLF001  # as Outgoing.queue does
    waiting.outgoing.held = idle.outgoing.held = True
    endpoint.on_room(0)
    assert not waiting.outgoing.held and idle.outgoing.held
    assert waiting.paths.pick(4, 100, 1000, 1.0)[1] > 0

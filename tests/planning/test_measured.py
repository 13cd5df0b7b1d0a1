"""Claims of hosts that measured rates contradict."""

from dlcpd.planning.measured import corrected
from dlcpd.schedules.network import HostCapacity

G = 10**9


def test_a_claim_of_ten_times_the_measured_rate_gives_way_and_is_named_once() -> None:
    told = [(f"h{n}", HostCapacity((100 * G,), (100 * G,))) for n in range(4)]
    measured = {
        "h1": HostCapacity((10 * G,), (10 * G,)),
        "h2": HostCapacity((90 * G,), (9 * G,)),
        "h9": HostCapacity((1,), (1,)),
    }
    found, said = corrected(told, measured)
    assert found == [
        told[0],
        ("h1", HostCapacity((10 * G,), (10 * G,))),
        ("h2", HostCapacity((100 * G,), (9 * G,))),
        told[3],
    ]
    assert said == (
        "'h1' sends 10gbit as measured, and 100gbit as told (and 2 more): measured rates are used; "
        "correct the topology files"
    )


def test_other_claims_stand() -> None:
    told = [("a", HostCapacity((100 * G,), (99 * G,), "r", 10 * G, 10 * G))]
    measured = {"a": HostCapacity((11 * G,), (300 * G,), "rack 0", 2 * G, 2 * G)}
    assert corrected(told, measured) == (told, "")


def test_rails_keep_their_parts_and_uplinks_are_compared() -> None:
    told = [("a", HostCapacity((30 * G, 10 * G), (G, G), "r", 100 * G, 100 * G))]
    measured = {"a": HostCapacity((4 * G,), (2 * G,), "rack 0", 5 * G, 50 * G)}
    [(_, found)], said = corrected(told, measured)
    assert found == HostCapacity((3 * G, G), (G, G), "r", 5 * G, 100 * G)
    assert said.startswith("'a' sends 4gbit as measured, and 40gbit as told (and 1 more)")

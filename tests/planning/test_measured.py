"""Claims of a topology file that measured rates contradict."""

from dlcpd.planning import bounds
from dlcpd.planning.graph import Rates
from dlcpd.planning.measured import with_measured
from tests.planning.networks import both, dgx_1v, on_a_switch, racks

G = 10**9


def test_a_claim_of_ten_times_the_measured_rate_gives_way_and_is_named_once() -> None:
    graph = on_a_switch([100 * G] * 4)
    measured = {"h1": both(10 * G), "h2": Rates(90 * G, 9 * G), "h9": both(1)}
    found, said = with_measured(graph, measured, "net.toml")
    rates = {link[:2]: link.rate for link in found.links}
    assert rates[1, 4] == rates[4, 1] == 10 * G
    assert rates[2, 4] == 100 * G and rates[4, 2] == 9 * G
    assert bounds.all_reduce(found).rate == 9 * G
    assert said == (
        "net.toml: hosts: 'h1' sends 10gbit as measured, and the file says 100gbit (likewise 1 "
        "others); the plan uses the measured rate: correct the file"
    )


def test_other_claims_stand() -> None:
    graph = racks(2, 2, 100 * G, 50 * G)
    measured = {"h0.0": both(11 * G), "h0.1": both(0), "h1.0": both(300 * G)}
    assert with_measured(graph, measured, "net.toml") == (graph, "")


def test_a_host_with_several_links_keeps_their_proportion() -> None:
    found, said = with_measured(dgx_1v(), {"h0": Rates(0, 1)}, "net.toml")
    assert found == dgx_1v() and said == ""  # 6 links are less than ten times 1
    ten = dgx_1v()
    ten = type(ten)(ten.hosts, (), tuple(link._replace(rate=link.rate * 100) for link in ten.links))
    found, said = with_measured(ten, {"h0": Rates(60, 6000)}, "net.toml")
    assert sorted(link.rate for link in found.links if link.source == 0) == [10, 10, 20, 20]
    assert "'h0' sends 60bit as measured, and the file says 600bit; the plan" in said

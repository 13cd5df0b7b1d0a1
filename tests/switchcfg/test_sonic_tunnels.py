"""Tunnels of SONiC with maps of their own: a switch of a pair of leaves (dual ToR)."""

from typing import Any

from switchcfg.model.known import model_of
from switchcfg.model.values import POINTS, Point, Treatment
from tests.switchcfg.accounted import PORTS, planned, refusal
from tests.switchcfg.stock import sonic_roce, sonic_text

KEEP = "queues = [3, 4]"
INSIDE = "Ethernet0 (from TUNNEL|MuxTunnel0)"


def leaf(**rows: dict[str, Any]) -> str:
    """A leaf that sends and receives packets by a tunnel; `rows`: changes of its tables."""
    tables = sonic_roce(PORTS["sonic"])
    tables["TUNNEL"] = {
        "MuxTunnel0": {
            "tunnel_type": "IPINIP",
            "dscp_mode": "pipe",
            "decap_dscp_to_tc_map": "TUNNEL",
            "decap_tc_to_pg_map": "TUNNEL",
            "encap_tc_to_queue_map": "TUNNEL",
            "encap_tc_to_dscp_map": "TUNNEL",
        }
    }
    tables["DSCP_TO_TC_MAP"]["TUNNEL"] = {str(dscp): "0" for dscp in range(64)} | {"2": "3"}
    tables["TC_TO_PRIORITY_GROUP_MAP"]["TUNNEL"] = {str(tc): "0" for tc in range(8)} | {"3": "3"}
    tables["TC_TO_QUEUE_MAP"]["TUNNEL"] = {str(tc): "0" for tc in range(8)} | {"3": "2"}
    tables["TC_TO_DSCP_MAP"] = {"TUNNEL": {str(tc): "0" for tc in range(8)} | {"3": "2"}}
    for table, changed in rows.items():
        for key, fields in changed.items():
            tables[table].setdefault(key, {}).update(fields)
    return sonic_text(tables)


def at(text: str, port: str, dscp: int) -> Treatment:
    return model_of("sonic", text).port(port)[POINTS.index(Point("DSCP", dscp))]


def test_packets_from_a_tunnel_are_classified_by_its_maps() -> None:
    inside, direct = at(leaf(), INSIDE, 2), at(leaf(), "Ethernet0", 2)
    assert (inside.traffic_class, inside.queue, inside.group) == ("3", "3", "3")
    assert direct.queue == "1"
    assert at(leaf(), INSIDE, 3).queue == "0"


def test_packets_into_a_tunnel_have_a_queue_and_a_code_point_by_traffic_class() -> None:
    said = at(leaf(), "Ethernet0", 3).rewrite
    assert "TUNNEL|MuxTunnel0 encap_tc_to_queue_map 2" in said
    assert "TUNNEL|MuxTunnel0 encap_tc_to_dscp_map 2" in said


def test_a_plan_that_keeps_all_of_it_is_made_and_says_that_tunnels_have_other_maps() -> None:
    made = planned("sonic", leaf(), KEEP)
    assert any(each.startswith("tunnel: TUNNEL|MuxTunnel0 has decap_") for each in made.degraded)
    assert made.read[0] == made.read[1]


def test_a_plan_that_moves_packets_of_a_tunnel_out_of_a_kept_queue_is_refused() -> None:
    """The port sends traffic class 1, which only the tunnel uses, to queue 3."""
    direct = {str(dscp): "0" for dscp in range(64)} | {"3": "3", "4": "4"}
    said = refusal(
        "sonic",
        leaf(
            DSCP_TO_TC_MAP={"AZURE": direct, "TUNNEL": {"5": "1"}},
            TC_TO_QUEUE_MAP={"AZURE": {"1": "3"}},
        ),
        KEEP,
    )
    assert f"kept-treatment: {INSIDE}: DSCP 5: queue: 3 -> 1" in said


def test_a_map_that_is_not_there_is_not_understood() -> None:
    text = leaf().replace('"decap_dscp_to_tc_map": "TUNNEL"', '"decap_dscp_to_tc_map": "GONE"')
    assert "GONE" in at(text, INSIDE, 2).unknown

"""Cases of configurations that other operators have: each has a test, and each kind more instances.

A: a line that is not read; B: classification by something else than the map of the port; C: keys
and numbers; D: all that a kept queue has; E: rewriting on the way out; F: use. Instances are of the
vendors' documents that are named beside them.
"""

import importlib
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from switchcfg.errors import SwitchcfgError
from tests.switchcfg.accounted import PORTS, planned, refusal
from tests.switchcfg.stock import sonic_roce, sonic_text
from tests.switchcfg.test_accounted_lines import EOS, PORT, REPLACES, TAKES, nxos
from tests.switchcfg.test_accounted_nvue import PFC, TRUST
from tests.switchcfg.test_model_faults import KEPT
from tests.switchcfg.test_openconfig import CAPTURED

# Case -> (module, test)
TESTS: Final = {
    "A1": ("test_accounted_lines", "test_ecn_of_a_kept_queue_is_seen_in_every_unit_of_eos"),
    "A2": (
        "test_accounted_lines",
        "test_a_class_that_is_not_matched_by_our_code_points_is_not_ended_on_nxos",
    ),
    "A3": ("test_accounted_lines", "test_all_that_a_kept_queue_has_in_a_queuing_policy_is_seen"),
    "A4": (
        "test_accounted_lines",
        "test_lines_of_a_port_of_eos_that_win_over_its_profile_are_refused",
    ),
    "A5": (
        "test_accounted_lines",
        "test_lines_of_a_port_of_eos_that_win_over_its_profile_are_refused",
    ),
    "A6": (
        "test_accounted_lines",
        "test_lines_of_a_port_of_eos_that_win_over_its_profile_are_refused",
    ),
    "A7": ("test_accounted_lines", "test_a_switch_of_four_queues_is_refused"),
    "B1": ("test_accounted_tables", "test_the_map_of_the_whole_switch_holds_for_ports_without_one"),
    "B2": (
        "test_accounted_nvue",
        "test_a_kept_queue_that_is_fed_by_vlan_priority_or_port_is_refused",
    ),
    "B3": ("test_accounted_tables", "test_a_field_that_is_not_known_is_refused_where_it_is_bound"),
    "B4": ("test_openconfig", "test_queues_without_a_number_are_refused_by_name"),
    "C1": (
        "test_sonic_shared_keys",
        "test_a_plan_splits_the_keys_that_it_changes_and_a_rollback_joins_them",
    ),
    "C2": ("test_accounted_tables", "test_queues_beyond_7_are_read_and_stay"),
    "C3": ("test_accounted_tables", "test_pfc_of_priority_0_is_refused"),
    "D1": (
        "test_accounted_tables",
        "test_traffic_classes_of_ours_reach_a_priority_group_with_a_buffer",
    ),
    "D2": ("test_accounted_lines", "test_share_and_limit_of_a_kept_queue_go_on_in_ours_on_nxos"),
    "D3": ("test_accounted_lines", "test_share_and_limit_of_a_kept_queue_go_on_in_ours_on_nxos"),
    "D4": ("test_given_back", "test_a_removal_gives_back_the_very_state_or_is_refused"),
    "D5": ("test_accounted_tables", "test_a_hash_of_others_is_replaced_only_with_consent"),
    "E1": ("test_accounted_lines", "test_lines_of_the_whole_switch_are_read_or_refused_on_eos"),
    "E2": ("test_accounted_nvue", "test_a_line_that_is_not_known_is_refused_by_itself"),
    "F1": ("test_import", "test_a_switch_whose_ports_have_two_maps_has_two_groups"),
    "F2": ("test_workflow", "test_the_time_to_revert_is_longer_than_the_steps"),
    "F3": ("test_secrets", "test_states_plans_errors_and_records_have_none"),
    "F4": ("test_import", "test_many_lines_of_one_kind_are_one"),
}  # fmt: skip
# Further instances of F: (module, test)
USE: Final = (
    ("test_import", "test_ports_of_several_speeds_are_groups_with_their_rates"),
    ("test_import", "test_a_switch_without_qos_has_all_its_ports"),
    ("test_import", "test_nothing_of_a_device_gets_out_of_its_comment"),
    ("test_workflow", "test_a_time_that_is_too_short_is_refused_with_the_least_that_works"),
    ("test_workflow", "test_long_steps_are_told_one_by_one_and_short_ones_are_not"),
    ("test_secrets", "test_a_line_keeps_its_words_and_loses_its_secret"),
    ("test_plan", "test_objects_with_the_same_changes_share_their_lines"),
    ("test_bad_input", "test_the_first_line_of_the_other_platform_is_named"),
)
_BARE: Final = PORT.replace("   LINE\n", "")
_JUNOS: Final = (
    "set system host-name leaf\n"
    "set firewall family inet filter F term 1 then forwarding-class NO-LOSS\n"
)
_NVUE: Final = PFC + TRUST.format("l3")
_MMU: Final = "platform trident mmu queue profile P\n"
_BOND: Final = "nv set interface bond1 bond member swp1-2\n"


def queue(line: str) -> str:
    """EOS: a line of a kept queue, in a profile that the plan would replace."""
    return EOS.replace("LINE", line)


def sonic(more: Mapping[str, Any]) -> str:
    tables = sonic_roce(PORTS["sonic"])
    for table, rows in more.items():
        for key, fields in rows.items():
            tables.setdefault(table, {}).setdefault(key, {}).update(fields)
    return sonic_text(tables)


def openconfig(interface: Mapping[str, Any]) -> str:
    """A device with one more interface, and a classifier E that rewrites code points."""
    document = json.loads(CAPTURED)
    qos = document["openconfig-qos:qos"]
    action = {"remark": {"config": {"set-dscp": 0}}}
    term = {"id": "1", "config": {"id": "1"}, "actions": action}
    qos["openconfig-qos:classifiers"]["openconfig-qos:classifier"].append(
        {"name": "E", "config": {"name": "E", "type": "IPV4"}, "terms": {"term": [term]}}
    )
    qos["openconfig-qos:interfaces"]["interface"].append(interface)
    return json.dumps(document)


_OUT: Final = "policy-map type queuing OUT\n  class type queuing c-out-8q-q3\n    "
_NQ: Final = "policy-map type network-qos NQ\n  class type network-qos c-8q-nq3\n    "
# (kind, source, platform, configuration, [keep], words of the refusal)
MORE: Final = (
    ("A", 'EOS, "QoS Commands", latency', "eos", queue("latency maximum 50 microseconds"), TAKES,
     "latency maximum"),
    ("A", 'EOS, "Explicit Congestion Notification", delay', "eos",
     queue("random-detect ecn delay threshold 5 microseconds"), TAKES, "ecn delay threshold"),
    ("A", 'EOS, "QoS Commands", drop thresholds', "eos",
     queue("drop-precedence 1 drop-threshold percent 50"), TAKES, "drop-threshold percent"),
    ("A", 'NX-OS QoS guide, "Configuring Queuing and Scheduling", AFD', "nxos",
     nxos() + _OUT + "afd queue-desired 150 kbytes ecn\n", REPLACES, "`afd` in kept queue 3"),
    ("A", 'NX-OS QoS guide, "Configuring Queuing and Scheduling", DPP', "nxos",
     nxos() + _OUT + "dpp set-qos-group 7\n", REPLACES, "dpp set-qos-group 7"),
    ("A", 'NX-OS QoS guide, "Configuring Queuing and Scheduling", WRED', "nxos",
     nxos() + _OUT + "random-detect forward-nonecn\n", REPLACES, "lose ECN in kept queue 3"),
    ("A", 'NVUE, "Quality of Service", Egress Shaping', "nvue",
     _NVUE + "nv set qos egress-shaper default-global traffic-class 3 max-rate 100\n",
     "queues = [3]", "egress-shaper"),
    ("A", 'NVUE, "Quality of Service", PFC', "nvue",
     _NVUE + "nv set qos pfc default-global xoff-size 25000\n", "queues = [3]", "xoff-size"),
    ("B", 'Azure Local, "Top-of-rack switch": EOS, a trunk with RoCE by CoS', "eos",
     PORT.replace("LINE", "switchport trunk allowed vlan 711\n   switchport mode trunk\n"
                  "   priority-flow-control on\n   priority-flow-control priority 3 no-drop"),
     "queues = [3]", "kept-pcp: Ethernet1/1: VLAN priority 3 chooses a kept queue or has flow"),
    ("B", 'EOS, "QoS Policies on SVIs"', "eos",
     _BARE + "interface Vlan10\n   service-policy type qos input MARK\n", "queues = [3]",
     "unread: Vlan10: "),
    ("B", 'EOS, "Port channel interfaces: QoS of members"', "eos",
     PORT.replace("LINE", "channel-group 1 mode active"), "queues = [3]",
     "channel: Ethernet1/1 is a member of Port-Channel1"),
    ("B", 'NX-OS QoS guide, "Classification": SVIs', "nxos",
     nxos() + "interface Vlan10\n  service-policy type qos input MARK\n", REPLACES,
     "unread: Vlan10: "),
    ("B", 'NX-OS QoS guide, "Using Modular QoS CLI": subinterfaces', "nxos",
     nxos() + "interface Ethernet1/1.5\n  service-policy type qos input MARK\n", REPLACES,
     "unread: Ethernet1/1.5: "),
    ("B", 'NX-OS QoS guide, "QoS for VXLAN": pipe mode', "nxos",
     nxos() + "interface nve1\n  qos-mode pipe\n", REPLACES, "unread: nve1: "),
    ("B", 'NX-OS interfaces guide, "Port Channels"', "nxos",
     nxos().replace("interface Ethernet1/2\n", "interface Ethernet1/2\n  channel-group 7\n"),
     REPLACES, "channel: Ethernet1/2 is a member of port-channel7"),
    ("B", 'NVUE, "Access Control List Configuration": SVIs', "nvue",
     _NVUE + "nv set interface vlan10 acl A inbound\nnv set acl A rule 1 action set cos 3\n",
     "queues = [3]", "unread: acl A: "),
    ("B", 'Junos, "Firewall Filter Nonterminating Actions": IRB', "junos",
     _JUNOS + "set interfaces irb unit 10 family inet filter input F\n", "queues = [4]",
     "unread: filter F: "),
    ("B", 'Junos, "Firewall Filters in Bridge Domains"', "junos",
     _JUNOS + "set bridge-domains B forwarding-options filter input F\n", "queues = [4]",
     "unread: filter F: "),
    ("B", 'Junos, "CoS on Aggregated Ethernet Interfaces"', "junos",
     _JUNOS + "set interfaces et-0/0/0 ether-options 802.3ad ae0\n", "queues = [4]",
     "channel: et-0/0/0 is a member of ae0"),
    ("B", 'Junos, "CoS for Logical Systems"', "junos",
     _JUNOS + "set logical-systems L class-of-service interfaces et-0/0/0 scheduler-map X\n",
     "queues = [4]", "logical-systems L class-of-service"),
    ("C", "sonic-queue.yang, keys of VOQ", "sonic",
     sonic({"QUEUE": {"Ethernet0|3|x": {"scheduler": "scheduler.0"}}}), "queues = [3, 4]",
     "a key of a VOQ switch"),
    ("C", "sonic-port-qos-map.yang, global", "sonic",
     sonic({"PORT_QOS_MAP": {"global": {"dot1p_to_tc_map": "X"}}}), "queues = [3, 4]",
     "PORT_QOS_MAP|global dot1p_to_tc_map"),
    ("C", 'NX-OS QoS guide, "Network QoS": a second no-drop class', "nxos",
     nxos() + _NQ.replace("nq3", "nq4") + "pause pfc-cos 4\n", REPLACES,
     "Ethernet1/1 queue 4 has PFC"),
    ("C", 'NVUE, "Quality of Service", priority lists', "nvue",
     _NVUE.replace("switch-priority 3", "switch-priority 3,5"), "queues = [3]", "queue 5 has PFC"),
    ("C", 'EOS, "Priority Flow Control", a second priority', "eos",
     PORT.replace("LINE", "priority-flow-control priority 5 no-drop"), "queues = [3]",
     "Ethernet1/1 queue 5 has PFC"),
    ("D", 'NX-OS QoS guide, "Network QoS": ECN of a class', "nxos",
     nxos() + _NQ + "congestion-control random-detect ecn\n", REPLACES, "congestion-control"),
    ("D", 'NX-OS QoS guide, "PFC buffers of a class"', "nxos",
     nxos() + _OUT + "pause buffer-size 100 pause-threshold 20 resume-threshold 3\n", REPLACES,
     "pause buffer-size 100"),
    ("D", 'NX-OS QoS guide, "Network Switch Buffer Profiles"', "nxos",
     nxos() + "hardware qos ns-buffer-profile burst\n", REPLACES, "ns-buffer-profile"),
    ("D", 'NVUE, "Advanced Buffer Tuning"', "nvue",
     _NVUE + "nv set qos advance-buffer-config default-global ingress-lossless-buffer "
     "shared-alpha alpha_2\n", "queues = [3]", "ingress-lossless-buffer"),
    ("D", 'EOS, "QoS Commands", guaranteed bandwidth', "eos",
     queue("bandwidth guaranteed 10 mbps"), TAKES, "`bandwidth guaranteed` in kept queue 3"),
    ("D", "schedulerorch.h of sonic-swss, groups", "sonic",
     sonic({"SCHEDULER_GROUP": {"Ethernet0|1": {"scheduler": "scheduler.1"}}}), "queues = [3, 4]",
     "SCHEDULER_GROUP"),
    ("B", 'Junos, "Firewall Filters" before Enhanced Layer 2 Software', "junos",
     _JUNOS + "set vlans V filter input F\n", "queues = [4]", "unread: filter F: "),
    ("B", 'Junos, "Forwarding Table Filters" of a routing instance', "junos",
     _JUNOS + "set routing-instances V forwarding-options family inet filter input F\n",
     "queues = [4]", "unread: filter F: "),
    ("B", 'Junos, "Logical Systems for Routers and Switches"', "junos",
     _JUNOS + "set logical-systems L interfaces et-0/0/0 unit 0 family inet filter input F\n",
     "queues = [4]", "logical-systems L interfaces"),
    ("B", 'NVUE, "Quality of Service": profile of a bond', "nvue",
     _NVUE + _BOND + "nv set interface bond1 qos mapping profile X\n", "queues = [3]",
     "bond: swp1 is a member of bond1, which has 'X' (mapping)"),
    ("B", 'NVUE, "Quality of Service": scheduler of a bond', "nvue",
     _NVUE + _BOND + "nv set interface bond1 qos egress-scheduler profile X\n", "queues = [3]",
     "bond: swp2 is a member of bond1, which has 'X' (scheduler)"),
    ("B", 'SONiC, "Flow Based Services", CONFIG_DB', "sonic",
     sonic({"POLICY_BINDING_TABLE": {"Ethernet0": {"INGRESS_QOS_POLICY": "P"}}}),
     "queues = [3, 4]", "unread: Ethernet0: "),
    ("B", 'SONiC, "Flow Based Services": of the whole switch', "sonic",
     sonic({"POLICY_BINDING_TABLE": {"switch": {"EGRESS_QOS_POLICY": "P"}}}), "queues = [3, 4]",
     "unread: leaf: "),
    ("D", 'NX-OS QoS guide, "Priority Flow Control": override', "nxos",
     nxos() + "priority-flow-control override-interface mode off\n", REPLACES,
     "whatever their own lines say"),
    ("E", 'Junos, "BGP Flow Routes": marking', "junos",
     _JUNOS + "set routing-options flow route R then mark 0\n", "queues = [4]", "then mark 0"),
    ("E", 'NVUE, "VXLAN Tunnel DSCP Operations": a value', "nvue",
     _NVUE + "nv set nve vxlan encapsulation dscp action set\n", "queues = [3]",
     "other code points"),
    ("E", 'NVUE, "VXLAN Tunnel DSCP Operations": by switch priority', "nvue",
     _NVUE + "nv set nve vxlan decapsulation dscp action derive\n", "queues = [3]",
     "other code points"),
    ("E", 'NVUE, "Packet Trimming"', "nvue",
     _NVUE + "nv set system forwarding packet-trim remark dscp 10\n", "queues = [3]",
     "packet-trim remark dscp 10"),
    ("E", "openconfig-qos: a subinterface by its name", "openconfig",
     openconfig({"interface-id": "eth1.5", "config": {"interface-id": "eth1.5"}, "input": {
         "classifiers": {"classifier": [
             {"type": "IPV4", "config": {"type": "IPV4", "name": "E"}}]}}}),
     KEPT["openconfig"][1], "remark/config/set-dscp 0"),
    ("B", 'EOS, "DCBX and Flow Control": negotiated flow control', "eos",
     PORT.replace("LINE", "dcbx mode ieee"), "queues = [3]", "negotiates flow control"),
    ("B", 'EOS, "DCBX and Flow Control": application priority', "eos",
     PORT.replace("LINE", "dcbx application iscsi priority 4"), "queues = [3]",
     "negotiates flow control"),
    ("D", "eos/platform-trident of Arista's AVD", "eos",
     _BARE + _MMU + "   egress unicast queue 3 drop-precedence 1 drop-threshold 1/8\n",
     "queues = [3]", "earlier than the intent says"),
    ("D", "sonic-port.yang, pfc_asym", "sonic", sonic({"PORT": {"Ethernet4": {"pfc_asym": "on"}}}),
     "queues = [3, 4]", "the neighbour can pause every queue of the port"),
    ("B", "sonic-tunnel.yang: another map", "sonic",
     sonic({"TUNNEL": {"MuxTunnel0": {"decap_dot1p_to_tc_map": "X"}}}), "queues = [3, 4]",
     "TUNNEL|MuxTunnel0 decap_dot1p_to_tc_map"),
    ("E", 'EOS, "VXLAN DSCP Mapping": another way', "eos",
     _BARE + "interface Vxlan1\n   vxlan qos dscp propagation decapsulation\n", "queues = [3]",
     "unread: Vxlan1: "),
    ("E", "match of router-adaptive-virtual-topology in Arista's AVD", "eos",
     _BARE + "router adaptive-virtual-topology\n   policy P\n      match application-profile A\n"
     "         dscp 26\n", "queues = [3]", "dscp 26"),
    ("E", "match of router-adaptive-virtual-topology in Arista's AVD", "eos",
     _BARE + "router adaptive-virtual-topology\n   policy P\n      match application-profile A\n"
     "         traffic-class 3\n", "queues = [3]", "rewrites code points"),
    ("E", 'EOS, "QoS Commands", traffic class to EXP', "eos",
     _BARE + "qos map traffic-class 3 to exp 1\n", "queues = [3]", "rewrites code points"),
    ("E", 'NX-OS QoS guide, "Marking": table maps', "nxos",
     nxos().replace("set qos-group 3", "set qos-group 3\n    set dscp dscp table T"), REPLACES,
     "set dscp dscp table T"),
    ("E", "aclorch.h of sonic-swss, DSCP_ACTION", "sonic",
     sonic({"ACL_RULE": {"T|R": {"PRIORITY": "9", "DSCP_ACTION": "5"}}}), "queues = [3, 4]",
     "a filter that changes code points"),
    ("E", 'Junos, "Applying Rewrite Rules": all interfaces', "junos",
     _JUNOS + "set class-of-service interfaces all unit 0 rewrite-rules dscp X\n", "queues = [4]",
     "rewrite"),
    ("A", 'EOS, "DCBX and Flow Control": a priority that drops', "eos",
     PORT.replace("LINE", "priority-flow-control priority 3 drop"), "queues = [3]",
     "the port's own line wins"),
    ("B", 'EOS, "QoS Profiles": of a subinterface', "eos",
     _BARE + "interface Ethernet1/1.10\n   service-profile X\n", "queues = [3]",
     "unread: Ethernet1/1.10: "),
    ("B", 'EOS, "Traffic Policies" on interfaces of VLANs', "eos",
     _BARE + "interface Vlan10\n   traffic-policy input X\n", "queues = [3]",
     'unread: Vlan10: "traffic-policy input X"'),
    ("B", 'EOS, "QoS Configuration: Petra Platform Switches"', "eos",
     _BARE + "platform petraA traffic-class 3 Et1/1\n", "queues = [3]", "platform petraA"),
    ("E", 'EOS, "GRE Tunnels": code point of the outer header', "eos",
     _BARE + "interface Tunnel0\n   tunnel tos 10\n", "queues = [3]", "tunnel tos 10"),
    ("D", 'NX-OS QoS guide, "Link-Level Flow Control"', "nxos",
     nxos() + "interface Ethernet1/1\n  link-level flow-control receive on\n", REPLACES,
     "pauses all queues of the port"),
    ("E", 'NX-OS unicast routing guide, "Policy-Based Routing"', "nxos",
     nxos() + "interface Vlan10\n  ip policy route-map R\nroute-map R permit 10\n"
     "  set ip precedence 3\n", REPLACES, 'unread: route-map R: "set ip precedence 3"'),
    ("B", 'NVUE, "Quality of Service": profile of a subinterface', "nvue",
     _NVUE + "nv set interface swp1.10 qos mapping profile X\n", "queues = [3]",
     "unread: swp1.10: "),
    ("B", 'NVUE, "Quality of Service": profile of a VLAN', "nvue",
     _NVUE + "nv set interface vlan10 qos mapping profile X\n", "queues = [3]",
     "unread: vlan10: "),
    ("A", 'NVUE, "Configure NVUE to Ignore Linux Files"', "nvue",
     _NVUE + "nv set system config apply ignore /etc/cumulus/datapath/qos/qos_features.conf\n",
     "queues = [3]", "NVUE would not write the files"),
    ("A", 'NVUE, "NVUE Snippets": traffic.conf', "nvue",
     _NVUE + "nv set system config snippet traffic.conf x\n", "queues = [3]",
     "or others write them"),
    ("B", 'Junos, "Classifiers and Rewrite Rules at the Logical Interface"', "junos",
     _JUNOS + "set class-of-service interfaces et-0/0/0 unit 100 classifiers dscp X\n",
     "queues = [4]", "otherwise than the plan, which is for unit 0"),
    ("B", 'Junos, "Actions in Routing Policy Terms"', "junos",
     _JUNOS + "set policy-options policy-statement P term 1 then forwarding-class R\n",
     "queues = [4]", "chooses the class of packets by their route"),
    ("E", 'Junos, "tunnel (Interfaces)": traffic-class', "junos",
     _JUNOS + "set interfaces gr-0/0/0 unit 0 tunnel traffic-class 3\n", "queues = [4]",
     "unread: gr-0/0/0: "),
    ("E", 'NVUE, "Quality of Service", 802.1p or DSCP for Marking', "nvue",
     _NVUE + "nv set qos remark default-global rewrite l2\n", "queues = [3]",
     "rewrites code points"),
)  # fmt: skip


@pytest.mark.parametrize(("module", "name"), [*TESTS.values(), *USE])
def test_each_case_has_a_test(module: str, name: str) -> None:
    assert callable(getattr(importlib.import_module(f"tests.switchcfg.{module}"), name))


def test_each_kind_has_further_instances() -> None:
    kinds = [kind for kind, *_ in MORE]
    assert all(kinds.count(kind) >= 5 for kind in "ABCDE")


@pytest.mark.parametrize(
    ("platform", "text", "keep", "says"),
    [each[2:] for each in MORE],
    ids=[f"{kind}: {source}" for kind, source, *_ in MORE],
)
def test_an_instance_is_refused_by_its_line(platform: str, text: str, keep: str, says: str) -> None:
    assert says in refusal(platform, text, keep)


@pytest.mark.parametrize(
    ("platform", "text", "keep"),
    [
        ("eos", _BARE + "interface Vlan10\n   description qos\n   ip address 192.0.2.1/24\n", ""),
        ("eos", _BARE + "interface Vxlan1\n   vxlan vni 10 vlan 10\n", ""),
        ("eos", _BARE + "interface Vxlan1\n   no vxlan qos dscp propagation encapsulation\n", ""),
        ("eos", _BARE + "interface Tunnel1\n   tunnel mode ipsec\n", ""),
        ("eos", _BARE + "router adaptive-virtual-topology\n   topology role edge\n   policy P\n"
         "      match application-profile A\n         avt profile B\n         no dscp\n", ""),
        ("eos", PORT.replace("LINE", "no priority-flow-control priority 3"), ""),
        ("eos", PORT.replace("LINE", "no mvrp"), ""),
        ("eos", PORT.replace("LINE", "no flow-spec ipv4 ipv6"), ""),
        ("eos", PORT.replace("LINE", "sync-e"), ""),
        ("eos", _BARE + "interface Port-Channel1\n   qos trust cos\n", ""),
        ("eos", _BARE + "interface Ethernet9/1\n   channel-group 1 mode active\n", ""),
        ("nxos", nxos() + "interface Vlan10\n  description qos\n  no shutdown\n", REPLACES),
        ("nxos", nxos() + "interface nve1\n  member vni 10\n", REPLACES),
        ("nvue", _NVUE + _BOND, "queues = [3]"),
        ("nvue", _NVUE + "nv set nve vxlan encapsulation dscp action copy\n"
         "nv set nve vxlan decapsulation dscp action preserve\n", "queues = [3]"),
        ("nvue", _NVUE + "nv set system forwarding ecmp-hash source-port on\n", "queues = [3]"),
        ("eos", _BARE + "qos profile X\n   priority-flow-control priority 3 drop\n", ""),
        ("eos", _BARE + "interface Ethernet3/1.10\n   service-profile X\n", ""),
        ("nxos", nxos() + "platform qos ing-pg-share\nroute-map R permit 10\n"
         "  set ip precedence 3\ninterface Ethernet1/1\n  ip policy route-map S\n"
         "route-map S permit 10\n  set ip next-hop 192.0.2.1\n", REPLACES),
        ("nxos", nxos().replace("pfc-cos 3", "pfc-cos 3 receive"), REPLACES),
        ("nvue", _NVUE + "nv set system config apply ignore /etc/hosts\n", "queues = [3]"),
        ("junos", _JUNOS + "set class-of-service interfaces et-0/0/9 unit 100 classifiers dscp X\n",
         "queues = [4]"),
        ("eos", PORT.replace("LINE", "no dcbx mode"), ""),
        ("eos", _BARE + _MMU + "   ingress threshold 1/16\n   egress unicast queue 3 reserved "
         "bytes 0\n   egress multicast queue 3 threshold 1/4\n" + _MMU.strip() + " apply\n", ""),
        ("eos", _BARE + "interface Vxlan1\n   vxlan qos dscp propagation encapsulation\n"
         "   vxlan qos ecn propagation\n   vxlan qos map dscp to traffic-class decapsulation\n",
         ""),
        ("nxos", nxos() + "policy-map type queuing IN\n  class type queuing c-in-q3\n"
         "    pause buffer-size 39936 pause-threshold 12480 resume-threshold 12480\n"
         "system qos\n  service-policy type queuing input IN\n"
         "interface Ethernet1/1\n  service-policy type queuing input IN no-stats\n", REPLACES),
        ("nvue", _NVUE + "nv set qos pfc default-global port-buffer 99000\nnv set qos pfc "
         "default-global xoff-threshold 9000\nnv set qos pfc default-global xon-threshold 2000\n",
         "queues = [3]"),
        ("sonic", sonic({"PORT": {"Ethernet4": {"pfc_asym": "off"}}}), "queues = [3, 4]"),
        ("eos", _BARE + "management ssh\n   qos dscp 16\n", ""),
        ("junos", _JUNOS + "set forwarding-options enhanced-hash-key ecmp-dlb flowlet "
         "inactivity-interval 50\n", "queues = [4]"),
        ("nvue", _NVUE + "nv set interface vlan10 acl A inbound\n"
         "nv set acl A rule 1 action permit\n", "queues = [3]"),
        ("junos", _JUNOS + "set interfaces irb unit 10 family inet address 192.0.2.1/24\n",
         "queues = [4]"),
        ("sonic", sonic({"ACL_RULE": {"T|R": {"PACKET_ACTION": "DROP", "DSCP": "8"}}}),
         "queues = [3, 4]"),
    ],
)  # fmt: skip
def test_lines_around_that_choose_nothing_are_of_no_matter(
    platform: str, text: str, keep: str
) -> None:
    try:
        assert planned(platform, text, keep).changes
    except SwitchcfgError as exc:
        pytest.fail(str(exc))


@pytest.mark.parametrize(
    ("platform", "text", "keep", "says"),
    [
        ("nvue", _NVUE + "nv set nve vxlan enable on\n", "queues = [3]",
         "vxlan: encapsulation sets the code point of packets by their switch priority"),
        ("sonic",
         sonic({"TUNNEL": {"MuxTunnel0": {"decap_dscp_to_tc_map": "AZURE", "dscp_mode": "pipe"}}}),
         "queues = [3, 4]", "tunnel: TUNNEL|MuxTunnel0 has decap_dscp_to_tc_map"),
        ("sonic", sonic({"SRV6_MY_SIDS": {"L|fd00::/48": {"decap_dscp_mode": "uniform"}}}),
         "queues = [3, 4]", "tunnel: SRV6_MY_SIDS|L|fd00::/48 has decap_dscp_mode uniform"),
        ("eos", _BARE + "interface Vxlan1\n   vxlan vni 10 vlan 10\n", "",
         "vxlan: the outer code point of packets in tunnels follows from their traffic class"),
        ("eos", _BARE + "interface Vxlan1\n   vxlan vni 10 vlan 10\n", "",
         "vxlan: the outer ECN of packets in tunnels is 0: `vxlan qos ecn propagation` copies it"),
    ],
)  # fmt: skip
def test_effects_that_no_queue_has_are_told(platform: str, text: str, keep: str, says: str) -> None:
    assert any(says in each for each in planned(platform, text, keep).degraded)
    quiet = text.replace("decap_dscp_to_tc_map", "src_ip")
    quiet = quiet.replace("vxlan enable on", "vxlan enable off").replace("uniform", "pipe")
    copies = "vxlan qos ecn propagation\n   vxlan qos dscp propagation encapsulation\n"
    quiet = quiet.replace("vxlan vni", f"{copies}   vxlan vni")
    assert not any(says in each for each in planned(platform, quiet, keep).degraded)


@pytest.mark.parametrize(
    ("platform", "text", "banner"),
    [
        ("eos", _BARE, "banner login\nqos map dscp 10 to traffic-class 3\npolicy-map: none\nEOF\n"),
        ("eos", PORT.replace("LINE", "mtu 9214"), "interface Ethernet1/1\n   comment\n"
         "   qos trust cos\n   EOF\n"),
        ("eos", _BARE, "banner motd\ninterface Ethernet1/1\n   qos trust cos\nEOF\n"),
        ("nxos", nxos(), "banner motd #qos map\npolicy-map type queuing OUT\n"
         "  class type queuing c-out-8q-q3\n    shape min 1 gbps max 9 gbps\n#\n"),
        ("nxos", nxos(), "banner exec ^service-policy type qos input X^\n"),
    ],
)  # fmt: skip
def test_the_text_of_a_banner_is_no_configuration(platform: str, text: str, banner: str) -> None:
    keep = REPLACES if platform == "nxos" else "queues = [3]"
    with_it, without = planned(platform, text + banner, keep), planned(platform, text, keep)
    assert with_it.changes == without.changes
    assert with_it.read[0] == with_it.read[1] <= without.read[1] + 1

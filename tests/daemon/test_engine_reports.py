"""Reports of several engines become one that reads like that of one."""

from typing import Any

from dlcpd.daemon.engine_reports import joined


def one(number: int, **changes: Any) -> dict[str, Any]:
    session = {
        "rank": 0,
        "submitted": 1 + number,
        "open": 1,
        "waiting": [f"part {number}"],
        "late": [],
        "alarms": {"silent_peers": number, "paths_down": 1, "paths_gray": number},
        "residual_bytes": 10,
        "held_bytes": 12,
        "residual_evicted": 0,
        "broken": "",
        "peers": [
            {
                "rank": 2,
                "queued": 1,
                "missing": 0,
                "silent": number,
                "paths": [{"sent": number}],
            },
            {
                "rank": 1,
                "queued": 5,
                "missing": 2,
                "silent": 0,
                "paths": [{"sent": 10 + number}],
            },
        ],
        "totals": {"seconds": 0.5, "used": 0.1 * number, "took": [number, 1], "failed": {"x": 1}},
        "ledger": [{"operation": number}],
    }
    return {
        "counters": {"token": number, f"only{number}": 1},
        "effort": {"wakes": 5},
        "paths": [{"address": ["127.0.0.1", number]}],
        "links": {"out": {"most": 9, "rate": 8, "part": 60 + number, "hosts": 3 - number}},
        "sessions": {"7": session},
    } | changes


def test_a_single_report_stays_as_it_is() -> None:
    assert joined({0: one(0)}) == one(0)
    assert joined({0: {"stand_in": True}}) == {"stand_in": True}


def test_counts_add_up_and_paths_follow_each_other() -> None:
    whole = joined({0: one(0), 1: one(1)}, of=2)
    assert whole["counters"] == {"token": 1, "only0": 1, "only1": 1}
    assert whole["effort"] == {"wakes": 10}
    assert [path["address"][1] for path in whole["paths"]] == [0, 1]
    assert whole["links"] == {"out": {"most": 18, "rate": 16, "part": 60, "hosts": 2}}
    session = whole["sessions"]["7"]
    assert (session["submitted"], session["open"], session["residual_bytes"]) == (3, 2, 20)
    assert session["held_bytes"] == 24
    assert session["waiting"] == ["part 0", "part 1"]
    assert [row["operation"] for row in session["ledger"]] == [0, 1]
    peers = {peer["rank"]: [path["sent"] for path in peer["paths"]] for peer in session["peers"]}
    assert peers == {2: [0, 1], 1: [10, 11]}
    assert [(p["queued"], p["missing"]) for p in session["peers"]] == [(2, 0), (10, 4)]
    assert [p["silent"] for p in session["peers"]] == [1, 0]
    assert session["totals"] == {"seconds": 1.0, "used": 0.1, "took": [1, 2], "failed": {"x": 2}}
    assert session["alarms"] == {"silent_peers": 1, "paths_down": 2, "paths_gray": 1}
    assert "truncated" not in whole


def test_a_session_of_some_engines_only_and_one_that_is_broken_in_one() -> None:
    third = one(2, sessions={})
    broken = one(1)
    broken["sessions"]["7"]["broken"] = "rank 1 is silent"
    whole = joined({0: one(0), 1: broken, 2: third}, of=3)
    assert whole["sessions"]["7"]["broken"] == "rank 1 is silent"
    assert whole["sessions"]["7"]["submitted"] == 3


def test_what_was_left_out_of_one_is_said() -> None:
    assert joined({0: one(0), 1: one(1, truncated=True)}, of=2)["truncated"] is True


def test_an_engine_that_does_not_answer_is_named_and_the_others_are_there() -> None:
    whole = joined({0: one(0), 1: {"error": "did not answer"}}, of=2)
    assert whole == {**joined({0: one(0)}, of=2), "error": "engine 1: did not answer"}
    assert whole["counters"] == one(0)["counters"]


def test_an_engine_that_is_about_to_be_there_is_no_error() -> None:
    assert joined({}, of=1)["sessions"] == {}
    assert "error" not in joined({1: one(1)}, of=2)

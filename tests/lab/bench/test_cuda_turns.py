"""`bench cuda`: the order of the turns, warm-up, and a transport that fails."""

from collections.abc import Callable
from functools import partial

from dlcp_lab.bench.cuda_turns import MeasuredTransport, attempt, take_turns


def _lane(name: str, log: list[str], more: Callable[[], None] = lambda: None) -> MeasuredTransport:
    def call(what: str) -> float:
        log.append(f"{name} {what}")
        more()
        return float(len(log))

    return MeasuredTransport(name, {what: partial(call, what) for what in ("step", "reduce")})


def _own(reason: str) -> str:
    return reason


def test_each_round_has_a_turn_of_each_and_begins_with_another() -> None:
    log: list[str] = []
    lanes = [_lane(name, log) for name in "abc"]
    take_turns(lanes, _own, warmup=1, rounds=2)
    firsts = [said.split()[0] for said in log if said.endswith("step")]
    assert "".join(firsts) == "abcbcacab"
    assert lanes[0].times == {"step": [11.0, 15.0], "reduce": [12.0, 16.0]}  # not the warm-up


def test_a_lane_that_fails_leaves_and_the_others_go_on() -> None:
    def fails() -> None:
        raise RuntimeError("first line\nsecond line")

    log: list[str] = []
    good, bad = _lane("good", log), _lane("bad", log, fails)
    take_turns([bad, good], _own, warmup=1, rounds=3)
    assert bad.reason == "RuntimeError: first line"
    assert bad.times == {}
    assert [len(times) for times in good.times.values()] == [3, 3]
    assert log.count("bad step") == 1


def test_a_failure_of_another_rank_counts() -> None:
    lane = MeasuredTransport("dlcp")
    assert attempt(lane, lambda: 1, lambda _: "rank 1: RuntimeError: a fault") is None
    assert lane.reason == "rank 1: RuntimeError: a fault"


def test_a_lane_with_a_reason_is_not_called() -> None:
    log: list[str] = []
    lane = _lane("nccl", log)
    lane.reason = "torch has no NCCL"
    take_turns([lane], _own, warmup=1, rounds=1)
    assert log == []
